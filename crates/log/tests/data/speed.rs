//! How fast cold data is read from a local directory. Measures; asserts nothing about time.
//! `cargo test --release -p tidemill-log --test data -- --ignored --nocapture speed`
#![allow(clippy::print_stderr, reason = "it prints what it measured")]

use std::{sync::Arc, time::Duration};

use tidemill_log::{
    Entry, Latency, Log, LogLimits, LogOptions, PartitionConfig,
    read::{Isolation, ReadRequest},
    recover::Recovered,
    roll::{Roller, SoleLeader},
    wal,
};
use tidemill_runtime::Runtime;
use tidemill_store::{NumberedLog, OpenOptions, Store, StoreOptions, backends::LocalSync, open};
use tidemill_wire::ids::{LeaderEpoch, Offset};

use crate::harness::{CLUSTER, WRITER, batch, partition};

const PARTITIONS: i32 = 8;
const BATCHES: usize = 640;

async fn filled(dir: &std::path::Path, runtime: &Runtime) -> (Arc<Log>, Roller) {
    let url = format!("file:{}", dir.display());
    let options = OpenOptions {
        sync: LocalSync::Os,
        ..OpenOptions::default()
    };
    let backend = open(&url, &options, runtime.clone()).await.unwrap();
    let store = Store::new(backend, runtime.clone(), StoreOptions::default());
    let objects = NumberedLog::new(store.clone(), tidemill_log::keys::wal_prefix(WRITER));
    wal::start(runtime, &objects, WRITER, CLUSTER, None)
        .await
        .unwrap();
    let mut limits = LogLimits::local();
    limits.tail_bytes_max = 0;
    let options = LogOptions {
        writer: WRITER,
        cluster_id: CLUSTER,
        store,
        runtime: runtime.clone(),
        limits,
        exclusive: true,
    };
    let log = Log::open(options, Recovered::default());
    for index in 0..PARTITIONS {
        log.create_partition(partition(index), LeaderEpoch(1), PartitionConfig::default());
    }
    let value = batch(&[1_000; 100], 1_000, 7);
    for _ in 0..BATCHES {
        let mut tickets = Vec::new();
        for index in 0..PARTITIONS {
            let entry = Entry::records(partition(index), value.clone(), Latency::Low);
            tickets.extend(log.append(entry).unwrap());
        }
        for ticket in tickets {
            ticket.wait().await.unwrap();
        }
    }
    let roller = Roller::new(log.clone(), Arc::new(SoleLeader));
    (log, roller)
}

async fn read_all(log: &Arc<Log>, runtime: &Runtime) -> u64 {
    let readers = (0..PARTITIONS).map(|index| {
        let partition = log.partition(partition(index)).unwrap();
        runtime.tasks.spawn("reader", async move {
            let (mut offset, mut bytes) = (Offset(0), 0);
            while offset < partition.high_watermark() {
                let request = ReadRequest {
                    offset,
                    max_bytes: 1 << 20,
                    isolation: Isolation::Uncommitted,
                    at_least_one: true,
                };
                let read = partition.read(request).await.unwrap();
                bytes += read.size as u64;
                offset = read.next_offset;
            }
            bytes
        })
    });
    let mut total = 0;
    for reader in readers.collect::<Vec<_>>() {
        total += reader.join().await.unwrap();
    }
    total
}

/// CPU time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<u64> = after
        .split(' ')
        .filter_map(|field| field.parse().ok())
        .collect();
    // Fields 14 and 15 of the line; the state before them is no number.
    let ticks = fields.get(10).unwrap_or(&0) + fields.get(11).unwrap_or(&0);
    Duration::from_millis(ticks * 10)
}

#[test]
#[ignore = "measures"]
fn cold_reads_from_a_directory() {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    executor.block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::system();
        let (log, mut roller) = filled(dir.path(), &runtime).await;
        for what in ["WAL", "extents", "extents again"] {
            let (started, before) = (runtime.clock.monotonic(), cpu());
            let bytes = read_all(&log, &runtime).await;
            let took = runtime.clock.monotonic() - started;
            let mb = bytes as f64 / 1e6;
            let used = (cpu() - before).as_secs_f64();
            eprintln!(
                "{what}: {mb:.0} MB, {:.0} MB/s, {:.3} CPU s/GB",
                mb / took.as_secs_f64(),
                used / mb * 1e3
            );
            if what == "WAL" {
                let started = runtime.clock.monotonic();
                let report = roller.round().await.unwrap();
                let took = runtime.clock.monotonic() - started;
                eprintln!("round: {} bytes in {took:?}", report.bytes);
            }
        }
    });
}
