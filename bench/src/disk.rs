//! What the disk itself gives: synced put-if-absent through the directory backend.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use tidemill_runtime::{Entropy, Runtime};
use tidemill_store::{Backend, LocalSync, OpenOptions, Payload, PutAnswer, open};
use tokio::sync::Semaphore;

use crate::{
    error::BenchError,
    load::{Outcome, payload::filler},
};

/// What is written.
#[derive(Clone, Copy, Debug)]
pub struct DiskLoad {
    /// Bytes of an object.
    pub object_bytes: usize,
    /// Objects.
    pub objects: u64,
    /// Objects written at the same time.
    pub in_flight: usize,
    /// Whether each is synced before it counts.
    pub sync: LocalSync,
}

/// Writes new objects into a directory, which must not be in use.
///
/// # Errors
/// The directory cannot be opened or written to.
pub async fn disk(dir: &Path, load: DiskLoad, runtime: &Runtime) -> Result<Outcome, BenchError> {
    let options = OpenOptions {
        sync: load.sync,
        ..OpenOptions::default()
    };
    let url = format!("file:{}", dir.display());
    let opened = open(&url, &options, runtime.clone()).await;
    let store = opened.map_err(|error| BenchError::Failed(error.to_string()))?;
    let body = Bytes::from(filler(load.object_bytes, &Entropy::from_seed(1)));
    let permits = Arc::new(Semaphore::new(load.in_flight.max(1)));
    let run = runtime.entropy.next_u64();
    let clock = &runtime.clock;
    let start = clock.monotonic();
    let mut running = Vec::new();
    for number in 0..load.objects {
        let Ok(permit) = permits.clone().acquire_owned().await else {
            break;
        };
        let (store, body, clock) = (store.clone(), body.clone(), clock.clone());
        running.push(runtime.tasks.spawn("bench-put", async move {
            let key = format!("bench/{run:016x}/{number:012}");
            let began = clock.monotonic();
            let put = put(&*store, &key, body).await;
            drop(permit);
            put.map(|()| clock.monotonic().saturating_duration_since(began))
        }));
    }
    let mut outcome = Outcome::default();
    for put in running {
        outcome.latency.record(put.join().await??);
        outcome.records += 1;
        outcome.requests += 1;
        outcome.bytes += load.object_bytes as u64;
    }
    outcome.elapsed = clock.monotonic().saturating_duration_since(start);
    Ok(outcome)
}

async fn put(store: &dyn Backend, key: &str, body: Bytes) -> Result<(), BenchError> {
    match store.put_if_absent(key, Payload::from(body)).await {
        Ok(PutAnswer::Created) => Ok(()),
        Ok(PutAnswer::Exists) => Err(BenchError::Failed(format!("`{key}` exists"))),
        Err(error) => Err(BenchError::Failed(format!("`{key}`: {error}"))),
    }
}
