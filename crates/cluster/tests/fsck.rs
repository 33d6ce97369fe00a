//! What is deleted goes, what is forgotten is gone, and `fsck` sees both, and damage.

mod common;

use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use common::{faulty, new_topic, registration, runtime, store, topic_id};
use tidemill_cluster::{Change, StartOptions, Started, fsck::fsck, start};
use tidemill_log::{
    Entry, Latency, LogLimits,
    fsck::Report,
    keys,
    roll::{Roll, Roller, SoleLeader},
};
use tidemill_store::{
    Backend, Envelope, ObjectKind, Payload, PutAnswer,
    testing::{FaultPlan, FaultyBackend},
};
use tidemill_wire::{
    batch::{BatchBuilder, Compression, NewRecord, ValidateOptions, validate},
    ids::PartitionId,
};

async fn started(backend: &FaultyBackend, seed: u64) -> (Started, Arc<Roll>) {
    start_with(backend, seed, LogLimits::bucket()).await
}

async fn start_without_roll(backend: &FaultyBackend, seed: u64, limits: LogLimits) -> Started {
    let store = store(backend, &runtime(seed));
    let mut options = StartOptions::new(store, registration(1), limits);
    options.snapshot_every = 4;
    start(options).await.expect("a healthy store")
}

async fn start_with(backend: &FaultyBackend, seed: u64, limits: LogLimits) -> (Started, Arc<Roll>) {
    let started = start_without_roll(backend, seed, limits).await;
    let roll = Roll::start(Arc::clone(&started.log), Arc::new(SoleLeader));
    (started, roll)
}

async fn commit(broker: &Started, change: Change) {
    let decide = move |_: &_| Ok::<_, Infallible>(vec![change.clone()]);
    broker.cluster.commit(decide).await.expect("committed");
    broker.leadership.reconcile();
}

async fn create(broker: &Started, n: u64) {
    let mut topic = new_topic(n, &format!("t{n}"), 1, broker.cluster.writer());
    topic.configs.clear();
    commit(broker, Change::TopicCreated(topic)).await;
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
    let store = broker.log.store();
    let report = fsck(store, true, patience, &|_| {}).await;
    let report = report.expect("a healthy store");
    // Each object is listed, waiting or garbage (I22), and counted once.
    let stored = store.list_all("").await.expect("healthy").len() as u64;
    let garbage = report.garbage.len() as u64;
    let counted = report.objects + report.pending + garbage;
    assert!(
        !report.damage.is_empty() || counted == stored,
        "of {stored}: {report:?}"
    );
    report
}

/// A broker whose two topics have an object each.
async fn with_two_topics(backend: &FaultyBackend) -> Started {
    let (first, roll) = started(backend, 1).await;
    for topic in [1, 2] {
        create(&first, topic).await;
    }
    for topic in [1, 2] {
        append(&first, topic).await;
        roll.round().await.expect("healthy");
    }
    first
}

#[tokio::test(start_paused = true)]
async fn of_a_deleted_topic_nothing_is_left_in_the_end() {
    let backend = faulty(1, FaultPlan::none());
    let first = with_two_topics(&backend).await;
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
    assert!(report.is_clean(), "{report:?}");
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

/// Until the next round has freed them, and whoever runs it: nobody has to do anything.
#[tokio::test(start_paused = true)]
async fn objects_of_a_topic_just_deleted_wait_and_are_no_garbage() {
    let backend = faulty(3, FaultPlan::none());
    let first = with_two_topics(&backend).await;
    // As if killed before it could do more.
    first.log.runtime().tasks.abort_all();
    let before = checked(&first).await;
    commit(&first, Change::TopicDeleted { topic: topic_id(1) }).await;
    let report = checked(&first).await;
    assert!(before.is_clean() && report.is_clean(), "{report:?}");
    assert_eq!(report.pending, before.pending + 1, "the deleted topic's");
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
    let garbage: Vec<_> = report.garbage.iter().map(|f| f.key.as_str()).collect();
    assert_eq!(garbage, ["photo.jpg"]);
}

/// A PUT under way when its writer was sealed may land hours later, when all that the writer left
/// has been cleaned up. The next start finds it (I20, R11).
#[tokio::test(start_paused = true)]
async fn what_lands_after_the_clean_up_goes_with_the_next_start() {
    let backend = faulty(1, FaultPlan::none());
    let (first, roll) = started(&backend, 1).await;
    let writer = first.cluster.writer();
    create(&first, 1).await;
    append(&first, 1).await;
    let wal = format!("{}/{:020}", keys::wal_prefix(writer), 1);
    let late_wal = backend.get(&wal).await.expect("the first entry");
    roll.round().await.expect("healthy");
    let checkpoint = format!("{}/{:020}", keys::ckpt_prefix(writer), 0);
    let late_checkpoint = backend.get(&checkpoint).await.expect("the first");
    let data = format!("{}/{:020}", keys::data_prefix(writer), 0);
    let late_data = backend.get(&data).await.expect("the first");
    first.log.runtime().tasks.abort_all();
    let (second, second_roll) = started(&backend, 2).await;
    append(&second, 1).await;
    second_roll.round().await.expect("healthy");
    let clock = second.log.runtime().clock.clone();
    clock.sleep(Duration::from_secs(300)).await;
    // A checkpoint that no longer speaks of the clean-up.
    append(&second, 1).await;
    second_roll.round().await.expect("healthy");
    clock.sleep(Duration::from_secs(300)).await;
    let report = checked(&second).await;
    assert!(report.is_clean() && report.pending == 0, "{report:?}");
    let orphan = format!("{}/{:020}", keys::data_prefix(writer), 77);
    let late = [
        (&wal, late_wal),
        (&checkpoint, late_checkpoint),
        (&orphan, late_data),
    ];
    for (key, bytes) in late {
        let body = Payload::from(bytes);
        let put = backend.put_if_absent(key, body).await.expect("healthy");
        assert_eq!(put, PutAnswer::Created, "`{key}` was cleaned up");
    }
    let report = checked(&second).await;
    assert_eq!(report.damage, [], "it harms nobody");
    let garbage: BTreeSet<_> = report.garbage.iter().map(|f| f.key.clone()).collect();
    assert_eq!(garbage, BTreeSet::from([wal, checkpoint, orphan]));
    second.log.runtime().tasks.abort_all();
    let (third, third_roll) = started(&backend, 3).await;
    append(&third, 1).await;
    third_roll.round().await.expect("healthy");
    let clock = third.log.runtime().clock.clone();
    clock.sleep(Duration::from_secs(300)).await;
    let report = checked(&third).await;
    assert!(report.is_clean(), "{report:?}");
}

/// The clean-up after a sealed writer must leave to the next round what a topic has just listed.
#[tokio::test(start_paused = true)]
async fn a_topic_may_be_deleted_at_any_moment_of_the_clean_up() {
    // Manifests, which are read from the store, and nothing that a merge would replace.
    let mut limits = LogLimits::bucket();
    limits.roll.recent_max = 2;
    limits.roll.merge_fan_in = 100;
    limits.read.cache_bytes = 0;
    for tenths in (0..160).step_by(7) {
        let backend = faulty(1, FaultPlan::none());
        let (first, roll) = start_with(&backend, 1, limits.clone()).await;
        create(&first, 1).await;
        create(&first, 2).await;
        for _ in 0..5 {
            append(&first, 1).await;
            append(&first, 2).await;
            roll.round().await.expect("healthy");
        }
        first.log.runtime().tasks.abort_all();
        let (second, roll) = start_with(&backend, 2, limits.clone()).await;
        append(&second, 1).await;
        append(&second, 2).await;
        roll.round().await.expect("healthy");
        let clock = second.log.runtime().clock.clone();
        // The clean-up begins some 65 s after the start.
        clock
            .sleep(Duration::from_millis(57_000 + tenths * 100))
            .await;
        commit(&second, Change::TopicDeleted { topic: topic_id(1) }).await;
        clock.sleep(Duration::from_secs(900)).await;
        append(&second, 2).await;
        let done = clock.timeout(Duration::from_secs(60), roll.round()).await;
        done.expect("in time").expect("healthy");
        clock.sleep(Duration::from_secs(300)).await;
        let report = checked(&second).await;
        assert!(
            report.is_clean() && report.pending == 0,
            "{tenths}: {report:?}"
        );
        assert_eq!(second.cluster.image().deleted_topics().count(), 0);
        second.log.runtime().tasks.abort_all();
    }
}

/// The clean-up meets a topic that is deleted, but still listed by the newest checkpoint: what it
/// lists is the next round's to free, which reads its manifests.
#[tokio::test(start_paused = true)]
async fn what_a_topic_that_was_just_deleted_lists_is_left_to_the_next_round() {
    let mut limits = LogLimits::bucket();
    limits.roll.recent_max = 2;
    limits.roll.merge_fan_in = 100;
    limits.read.cache_bytes = 0;
    let backend = faulty(1, FaultPlan::none());
    let (first, roll) = start_with(&backend, 1, limits.clone()).await;
    create(&first, 1).await;
    create(&first, 2).await;
    // Rounds of its own, so that nobody else lists a manifest of the first topic's.
    append(&first, 2).await;
    for _ in 0..5 {
        append(&first, 1).await;
        roll.round().await.expect("healthy");
    }
    first.log.runtime().tasks.abort_all();
    let second = start_without_roll(&backend, 2, limits).await;
    let mut roller = Roller::new(Arc::clone(&second.log), Arc::new(SoleLeader));
    append(&second, 2).await;
    roller.round().await.expect("healthy");
    commit(&second, Change::TopicDeleted { topic: topic_id(1) }).await;
    roller.clean_up().await.expect("healthy");
    roller.round().await.expect("all it has to read is there");
    second
        .log
        .runtime()
        .clock
        .sleep(Duration::from_secs(300))
        .await;
    roller.tidy().await;
    let report = checked(&second).await;
    assert!(report.is_clean() && report.pending == 0, "{report:?}");
}

/// Keys of objects with their kinds.
async fn kinds(backend: &FaultyBackend) -> Vec<(ObjectKind, String, Bytes)> {
    let mut kinds = Vec::new();
    for meta in backend.list("", None, 1_000).await.expect("healthy") {
        let bytes = backend.get(&meta.key).await.expect("healthy");
        let (envelope, ..) = Envelope::decode_header(&bytes).expect("own bytes");
        kinds.push((envelope.kind, meta.key, bytes));
    }
    kinds
}

/// One byte less, one more, and each byte with a wrong bit.
fn damaged(bytes: &Bytes) -> Vec<(String, Bytes)> {
    let mut all = vec![
        ("cut".to_owned(), bytes.slice(..bytes.len() - 1)),
        ("extended".to_owned(), [bytes, &b"\0"[..]].concat().into()),
    ];
    for at in 0..bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        all.push((format!("flipped at {at}"), flipped.into()));
    }
    all
}

/// `fsck` finds every damage of the newest object of each of these kinds, and names it.
async fn is_found(backend: &FaultyBackend, wanted: &[ObjectKind]) {
    let store = store(backend, &runtime(9));
    let patience = Duration::from_secs(10);
    let stored = kinds(backend).await;
    let report = fsck(&store, true, patience, &|_| {})
        .await
        .expect("healthy");
    assert!(report.is_clean(), "{report:?}");
    for kind in wanted {
        let newest = stored.iter().rfind(|(found, ..)| found == kind);
        let (_, key, bytes) = newest.expect("there is one of each kind");
        for (how, damaged) in damaged(bytes) {
            backend.delete(key).await.expect("healthy");
            let put = backend.put_if_absent(key, Payload::from(damaged)).await;
            assert_eq!(put, Ok(PutAnswer::Created));
            let report = fsck(&store, true, patience, &|_| {}).await;
            let report = report.unwrap_or_else(|error| panic!("{kind:?} {how}: {error}"));
            let is_named = report.damage.iter().any(|found| found.key == *key);
            assert!(is_named, "{kind:?} `{key}` {how}: {report:?}");
        }
        backend.delete(key).await.expect("healthy");
        let body = Payload::from(bytes.clone());
        backend.put_if_absent(key, body).await.expect("healthy");
    }
    let report = fsck(&store, true, patience, &|_| {})
        .await
        .expect("healthy");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn every_byte_of_every_kind_of_object_counts() {
    let mut limits = LogLimits::bucket();
    limits.roll.recent_max = 2;
    limits.roll.merge_fan_in = 100;
    // Two batches of one partition make a segment.
    limits.roll.segment_bytes_min = 100;
    let backend = faulty(1, FaultPlan::none());
    let (first, roll) = start_with(&backend, 1, limits.clone()).await;
    for n in 1..4 {
        create(&first, n).await;
    }
    for _ in 0..5 {
        append(&first, 1).await;
        append(&first, 1).await;
        append(&first, 2).await;
        append(&first, 3).await;
        roll.round().await.expect("healthy");
    }
    append(&first, 1).await;
    first.log.runtime().tasks.abort_all();
    let of_a_writer = [
        ObjectKind::Root,
        ObjectKind::Metadata,
        ObjectKind::MetadataSnapshot,
        ObjectKind::Wal,
        ObjectKind::Checkpoint,
        ObjectKind::Segment,
        ObjectKind::SetObject,
        ObjectKind::Manifest,
    ];
    is_found(&backend, &of_a_writer).await;
    let (second, _roll) = start_with(&backend, 2, limits).await;
    second.log.runtime().tasks.abort_all();
    let of_a_sealer = [ObjectKind::ClosedMarker, ObjectKind::ClosingCheckpoint];
    is_found(&backend, &of_a_sealer).await;
}
