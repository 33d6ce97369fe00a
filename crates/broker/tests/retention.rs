//! O3: retention, DeleteRecords and rounds go on beside produce, and nobody waits for them.

mod common;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use common::{
    Harness,
    admin::{creatable, create, text},
    batch, fetch_request,
    stored::{empty, open_store},
    values,
};
use tidemill_broker::config::BrokerConfig;
use tidemill_log::{
    LogLimits,
    roll::{Roll, SoleLeader},
};
use tidemill_store::{
    Store, StoreOptions,
    testing::{DelayedBackend, Operation, S3Latency},
};
use tidemill_wire::{
    ErrorCode,
    messages::{
        delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic},
        fetch::FetchRequest,
    },
};

/// A PUT of the WAL, and what else a produce request may take of simulated time.
const PUT: Duration = Duration::from_millis(5);
const SLACK: Duration = Duration::from_millis(5);
/// What is asked for of data objects, and any DELETE: a store that throttles all but the WAL.
const THROTTLED: Duration = Duration::from_millis(400);
/// Records of a kilobyte and a little, one in 15 ms: 70 kB/s, for a minute.
const RECORDS: usize = 4_000;
const RECORD_BYTES: usize = 1_000;
/// `retention.bytes`: three seconds' worth.
const KEPT: &str = "200000";

async fn throttled() -> Harness {
    let (runtime, backend) = empty();
    let slow = DelayedBackend::new(Arc::new(backend.clone()), runtime.clone(), |request| {
        let first_byte = match request.operation {
            Operation::Delete => THROTTLED,
            _ if request.key.contains("/data/") => THROTTLED,
            Operation::Put => PUT,
            _ => Duration::ZERO,
        };
        S3Latency {
            first_byte,
            transfer: Duration::ZERO,
        }
    });
    let store = Store::new(Arc::new(slow), runtime, StoreOptions::default());
    let mut limits = LogLimits::local();
    limits.roll.bytes = 100_000;
    limits.roll.retention_interval = Duration::from_secs(1);
    limits.roll.grace = Duration::from_secs(1);
    // So little is in memory that reads of what is kept ask the store, too.
    limits.tail_bytes_max = 50_000;
    open_store(store, backend, BrokerConfig::default(), limits).await
}

fn value(n: usize) -> String {
    format!("{n:0RECORD_BYTES$}")
}

/// Produces one by one; each is acknowledged at its offset, in the time that its PUT takes.
async fn produce(h: &Harness) {
    let mut client = h.connect();
    for n in 0..RECORDS {
        let began = h.runtime.clock.monotonic();
        let produced = client.produce("t", 0, batch(&[&value(n)])).await;
        let took = h.runtime.clock.monotonic() - began;
        let told = (produced.error_code, usize::try_from(produced.base_offset));
        assert_eq!(told, (ErrorCode::NONE, Ok(n)));
        assert!(took <= PUT + SLACK, "record {n} took {took:?}");
        h.sleep(Duration::from_millis(10)).await;
    }
}

/// Deletes every few seconds all but the newest hundred; the log starts that were answered.
async fn delete(h: &Harness) -> Vec<i64> {
    let mut client = h.connect();
    let mut starts = Vec::new();
    for _ in 0..8 {
        h.sleep(Duration::from_secs(6)).await;
        let end = client.fetch("t", 0, 0).await.high_watermark.max(end(h));
        let request = DeleteRecordsRequest {
            topics: vec![DeleteRecordsTopic {
                name: text("t"),
                partitions: vec![DeleteRecordsPartition {
                    partition_index: 0,
                    offset: end - 100,
                }],
            }],
            timeout_ms: 5_000,
        };
        let deleted = client.call(2, &request).await;
        let deleted = &deleted.topics[0].partitions[0];
        assert_eq!(deleted.error_code, ErrorCode::NONE);
        assert!(deleted.low_watermark >= end - 100);
        starts.push(deleted.low_watermark);
    }
    starts
}

fn partition(h: &Harness) -> Arc<tidemill_log::Partition> {
    let mut partitions = h.log.partitions().into_iter();
    partitions.next().expect("there is one")
}

fn end(h: &Harness) -> i64 {
    partition(h).high_watermark().0
}

/// All records from `offset` on, and that before it there is none.
async fn read(h: &Harness, offset: i64) -> BTreeMap<i64, String> {
    let mut client = h.connect();
    let before = client.fetch("t", 0, offset - 1).await.error_code;
    assert_eq!(before, ErrorCode::OFFSET_OUT_OF_RANGE);
    let mut found = BTreeMap::new();
    let mut next = offset;
    while next < end(h) {
        let request = FetchRequest {
            max_wait_ms: 30_000,
            ..fetch_request("t", &[(0, next)])
        };
        let response = client.call(11, &request).await;
        let read = values(&response.responses[0].partitions[0]);
        assert!(!read.is_empty(), "at {next}");
        found.extend((next..).zip(read));
        next = *found.last_key_value().expect("not empty").0 + 1;
    }
    found
}

#[tokio::test(start_paused = true)]
async fn o3_retention_and_delete_records_keep_pace_and_delay_no_produce() {
    let h = throttled().await;
    let configs = [("retention.bytes", Some(KEPT))];
    create(&mut h.connect(), vec![creatable("t", 1, &configs)]).await;
    let _roll = Roll::start(h.log.clone(), Arc::new(SoleLeader));
    let watch = async {
        let (mut seen, mut most) = (0, 0);
        while end(&h) < 4_000 {
            let start = partition(&h).log_start().0;
            assert!(
                start >= seen,
                "the log start went back from {seen} to {start}"
            );
            (seen, most) = (start, most.max(end(&h) - start));
            h.sleep(Duration::from_millis(7)).await;
        }
        most
    };
    let ((), starts, most) = tokio::join!(produce(&h), delete(&h), watch);
    assert!(starts.is_sorted(), "{starts:?}");
    // What is kept, what comes in until the next round and look, and those under way.
    assert!(most < 600, "{most} records were kept at once");
    h.sleep(Duration::from_secs(30)).await;
    let start = partition(&h).log_start().0;
    assert!(
        start > 3_600,
        "retention went on after the last deletion: {start}"
    );
    let wanted = (start..4_000).map(|n| (n, value(usize::try_from(n).expect("positive"))));
    assert!(
        read(&h, start).await.into_iter().eq(wanted),
        "what is left is what was stored"
    );
    // Nothing of what went is left in the store.
    let stored = h.log.store().list_all("").await.expect("a healthy store");
    let data: Vec<_> = stored
        .iter()
        .filter(|meta| meta.key.contains("/data/"))
        .collect();
    let bytes: u64 = data.iter().map(|meta| meta.size).sum();
    assert!(
        bytes < 1_000_000,
        "{} objects with {bytes} bytes",
        data.len()
    );
}
