//! What is deleted goes, what is forgotten is gone, and `fsck` sees both, and damage.

mod common;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use common::{faulty, new_topic, registration, runtime, store, topic_id};
use tidemill_cluster::{Change, StartOptions, Started, fsck::fsck, start};
use tidemill_log::{
    Entry, Latency, LogLimits,
    fsck::Report,
    roll::{Roll, SoleLeader},
};
use tidemill_store::{
    Backend, Payload,
    testing::{FaultPlan, FaultyBackend},
};
use tidemill_wire::{
    batch::{BatchBuilder, Compression, NewRecord, ValidateOptions, validate},
    ids::PartitionId,
};

async fn started(backend: &FaultyBackend, seed: u64) -> (Started, Arc<Roll>) {
    let store = store(backend, &runtime(seed));
    let mut options = StartOptions::new(store, registration(1), LogLimits::bucket());
    options.snapshot_every = 4;
    let started = start(options).await.expect("a healthy store");
    let roll = Roll::start(Arc::clone(&started.log), Arc::new(SoleLeader));
    (started, roll)
}

async fn commit(broker: &Started, change: Change) {
    let decide = move |_: &_| Ok::<_, Infallible>(vec![change.clone()]);
    broker.cluster.commit(decide).await.expect("committed");
    broker.leadership.reconcile();
}

async fn append(broker: &Started, n: u64) {
    let mut builder = BatchBuilder::new(Compression::None);
    let mut record = NewRecord::key_value(b"k", b"v");
    let now_ms = broker.log.runtime().clock.now_ms();
    record.timestamp = now_ms;
    builder.push(&record).expect("small");
    let bytes = builder.build().expect("one record");
    let options = ValidateOptions {
        now_ms,
        ..ValidateOptions::default()
    };
    let batch = validate(bytes, &options).expect("just built");
    let id = PartitionId {
        topic: topic_id(n),
        index: 0,
    };
    let entry = Entry::records(id, batch, Latency::Low);
    let appended = broker.log.append(entry).expect("accepted");
    appended[0].wait().await.expect("healthy");
}

async fn checked(broker: &Started) -> Report {
    let patience = Duration::from_secs(10);
    let report = fsck(broker.log.store(), true, patience, &|_| {}).await;
    report.expect("a healthy store")
}

#[tokio::test(start_paused = true)]
async fn of_a_deleted_topic_nothing_is_left_in_the_end() {
    let backend = faulty(1, FaultPlan::none());
    let (first, roll) = started(&backend, 1).await;
    let leader = first.cluster.writer();
    for n in [1, 2] {
        let mut topic = new_topic(n, &format!("t{n}"), 1, leader);
        topic.configs.clear();
        commit(&first, Change::TopicCreated(topic)).await;
    }
    append(&first, 1).await;
    roll.round().await.expect("healthy");
    append(&first, 2).await;
    roll.round().await.expect("healthy");
    assert!(checked(&first).await.is_clean());
    first.log.runtime().tasks.abort_all();
    // The next broker deletes what the first one has rolled.
    let (second, _roll) = started(&backend, 2).await;
    commit(&second, Change::TopicDeleted { topic: topic_id(1) }).await;
    let clock = second.log.runtime().clock.clone();
    clock.sleep(Duration::from_secs(30)).await;
    assert_eq!(
        second.cluster.image().deleted_topics().count(),
        1,
        "not yet"
    );
    clock.sleep(Duration::from_secs(600)).await;
    assert_eq!(
        second.cluster.image().deleted_topics().count(),
        0,
        "forgotten"
    );
    let report = checked(&second).await;
    assert!(report.is_clean() && report.others.is_empty(), "{report:?}");
    assert_eq!(report.pending, 0);
    let keys = backend.list("", None, 1_000).await.expect("healthy");
    let data = keys
        .iter()
        .filter(|meta| meta.key.contains("/data/"))
        .count();
    assert_eq!(data, 1, "the other topic's");
    let again = second.cluster.image().topic_by_name("t2").is_some();
    assert!(again, "the other topic stays");
}

#[tokio::test(start_paused = true)]
async fn damage_of_the_metadata_is_named() {
    let backend = faulty(1, FaultPlan::none());
    let (broker, _roll) = started(&backend, 1).await;
    for n in 1..=6 {
        let topic = new_topic(n, &format!("t{n}"), 1, broker.cluster.writer());
        commit(&broker, Change::TopicCreated(topic)).await;
    }
    tokio::task::yield_now().await;
    assert!(checked(&broker).await.is_clean());
    let entry = "meta/00000000000000000003";
    backend.delete(entry).await.expect("healthy");
    let stranger = Payload::from(Bytes::from_static(b"?"));
    backend
        .put_if_absent("photo.jpg", stranger)
        .await
        .expect("healthy");
    let report = checked(&broker).await;
    let damaged: Vec<_> = report
        .damage
        .iter()
        .map(|found| found.key.as_str())
        .collect();
    assert!(damaged.contains(&entry), "{damaged:?}");
    assert_eq!(report.others, ["photo.jpg"]);
}
