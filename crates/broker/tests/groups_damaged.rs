//! Groups whose offsets cannot be read: what the log says, and what comes back once they can.
//!
//! One test in a program of its own: what a thread without a subscriber meets first is taken for
//! unwanted by all threads.

#[allow(dead_code, reason = "shared with the tests of groups")]
#[path = "groups/client.rs"]
mod client;
mod common;

use std::time::Duration;

use bytes::Bytes;
use client::{commit, committed, restart, start};
use tidemill_store::{
    Backend, Payload,
    testing::{FaultyBackend, Lines},
};
use tidemill_wire::ErrorCode;

/// Lines that speak of loading.
fn of_loading(lines: &Lines) -> Vec<String> {
    let lines = lines.take().into_iter();
    lines.filter(|line| line.contains("groups ")).collect()
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
    let lines = Lines::of("tidemill_broker");
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
    let said = of_loading(&lines);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("not loaded yet"), "{said:?}");
    next.sleep(Duration::from_secs(3_600)).await;
    let said = of_loading(&lines);
    assert!((1..=6).contains(&said.len()), "{said:?}");
    flip(&h.backend, &key).await;
    next.sleep(Duration::from_secs(20)).await;
    let said = of_loading(&lines);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("groups are loaded"), "{said:?}");
    let kept = committed(&mut next.connect(), "g", 0).await;
    assert_eq!(
        (kept.error_code, kept.committed_offset),
        (ErrorCode::NONE, 41)
    );
}
