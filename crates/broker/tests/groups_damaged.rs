//! Groups whose offsets cannot be read: what the log says, and what comes back once they can.
//!
//! One test in a program of its own: what a thread without a subscriber meets first is taken for
//! unwanted by all threads.

#[allow(dead_code, reason = "shared with the tests of groups")]
#[path = "groups/client.rs"]
mod client;
mod common;

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use client::{commit, committed, restart, start};
use tidemill_store::{Backend, Payload, testing::FaultyBackend};
use tidemill_wire::ErrorCode;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Keeps the log's lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Those that speak of loading, taken out.
    fn of_loading(&self) -> Vec<String> {
        let lines = std::mem::take(&mut *self.0.lock().expect("no panic while held"));
        let of_loading = lines.into_iter().filter(|line| line.contains("groups "));
        of_loading.collect()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidemill_broker")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("no panic while held").push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

async fn flip(backend: &FaultyBackend, key: &str) {
    let mut bytes = backend.get(key).await.expect("it is there").to_vec();
    *bytes.last_mut().expect("never empty") ^= 1;
    backend.delete(key).await.expect("healthy");
    let body = Payload::from(Bytes::from(bytes));
    backend.put_if_absent(key, body).await.expect("healthy");
}

#[tokio::test(start_paused = true)]
async fn damaged_offsets_are_one_line_and_come_back_once_they_are_whole() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    assert_eq!(commit(&mut client, "g", &[(0, 41)]).await, ErrorCode::NONE);
    let wal = h.log.wal_objects();
    let (newest, _) = *wal
        .list_from(0)
        .await
        .expect("healthy")
        .last()
        .expect("one");
    let key = wal.key(newest);
    // Below what is decided, so that the start goes on.
    let stored = client.produce("t", 0, common::batch(&["a"])).await;
    assert_eq!(stored.error_code, ErrorCode::NONE);
    flip(&h.backend, &key).await;
    let next = restart(&h).await;
    next.sleep(Duration::from_secs(300)).await;
    let said = lines.of_loading();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("not loaded yet"), "{said:?}");
    next.sleep(Duration::from_secs(3_600)).await;
    let said = lines.of_loading();
    assert!((1..=6).contains(&said.len()), "{said:?}");
    flip(&h.backend, &key).await;
    next.sleep(Duration::from_secs(20)).await;
    let said = lines.of_loading();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("groups are loaded"), "{said:?}");
    let kept = committed(&mut next.connect(), "g", 0).await;
    assert_eq!(
        (kept.error_code, kept.committed_offset),
        (ErrorCode::NONE, 41)
    );
}
