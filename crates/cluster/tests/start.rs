//! A broker's start on whatever it finds.

mod common;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use common::{Bucket, faulty, new_topic, registration, runtime, store, topic_id};
use tidemill_cluster::{
    Change, StartError, StartOptions, StartWarning, Started, fsck::fsck, start,
};
use tidemill_log::{
    AppendFailed, Entry, Latency, LogLimits,
    read::{Isolation, ReadError, ReadRequest},
    roll::{Roll, SoleLeader},
};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Backend, Memory, Payload, RootError, Store, StoreOptions,
    testing::{FaultPlan, FaultyBackend},
};
use tidemill_wire::{
    batch::{BatchBuilder, Compression, NewRecord, ValidateOptions, validate},
    ids::{Offset, PartitionId, WriterId},
};

async fn try_started(backend: &FaultyBackend, seed: u64) -> Result<Started, StartError> {
    let store = store(backend, &runtime(seed));
    start(StartOptions::new(
        store,
        registration(1),
        LogLimits::bucket(),
    ))
    .await
}

async fn started(backend: &FaultyBackend, seed: u64) -> Started {
    try_started(backend, seed).await.expect("a start")
}

async fn create(broker: &Started, n: u64, partitions: u32) {
    let topic = new_topic(n, &format!("t{n}"), partitions, broker.cluster.writer());
    let decide =
        move |_: &_| Ok::<_, std::convert::Infallible>(vec![Change::TopicCreated(topic.clone())]);
    broker.cluster.commit(decide).await.expect("committed");
    broker.leadership.reconcile();
}

fn partition(n: u64, index: i32) -> PartitionId {
    PartitionId {
        topic: topic_id(n),
        index,
    }
}

fn entry(partition: PartitionId, value: &str) -> Entry {
    let mut builder = BatchBuilder::new(Compression::None);
    let record = NewRecord::key_value(b"k", value.as_bytes());
    builder.push(&record).expect("small");
    let bytes = builder.build().expect("one record");
    let batch = validate(bytes, &ValidateOptions::default()).expect("just built");
    Entry::records(partition, batch, Latency::Low)
}

async fn append(broker: &Started, id: PartitionId, value: &str) -> Result<Offset, AppendFailed> {
    let appended = broker.log.append(entry(id, value)).expect("accepted");
    appended[0]
        .wait()
        .await
        .map(|committed| committed.base_offset)
}

fn kill(broker: Started) {
    broker.log.runtime().tasks.abort_all();
    broker.cluster.close();
}

#[tokio::test(start_paused = true)]
async fn the_first_start_writes_three_objects() {
    let backend = faulty(1, FaultPlan::none());
    let broker = started(&backend, 1).await;
    assert_eq!(broker.cluster.writer(), WriterId(1));
    assert!(broker.warnings.is_empty());
    let keys = backend.list("", None, 100).await.expect("healthy");
    assert_eq!(
        keys.len(),
        3,
        "`root`, registration, WAL object 0: {keys:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_restart_finds_what_was_acknowledged() {
    let backend = faulty(1, FaultPlan::none());
    let mut expected = 0;
    for restart in 1..6 {
        let broker = started(&backend, restart).await;
        if restart == 1 {
            create(&broker, 1, 2).await;
            create(&broker, 2, 1).await;
        }
        // Memory counts as local: no other broker can be alive there.
        assert!(broker.warnings.is_empty(), "{:?}", broker.warnings);
        for (n, index) in [(1, 0), (1, 1), (2, 0)] {
            let state = broker.log.partition(partition(n, index)).expect("led");
            assert_eq!(state.high_watermark(), Offset(expected));
            let epoch = i32::try_from(restart).expect("small") - 1;
            assert_eq!(state.leader_epoch().0, epoch);
        }
        for at in 0..10 {
            for id in [partition(1, 0), partition(1, 1), partition(2, 0)] {
                let offset = append(&broker, id, "v").await.expect("healthy");
                assert_eq!(offset, Offset(expected + at));
            }
        }
        expected += 10;
        kill(broker);
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_takes_over_and_the_old_broker_acknowledges_nothing_more() {
    let backend = faulty(1, FaultPlan::none());
    let old = started(&backend, 1).await;
    create(&old, 1, 1).await;
    assert_eq!(append(&old, partition(1, 0), "a").await, Ok(Offset(0)));
    let new = started(&backend, 2).await;
    assert_eq!(
        append(&old, partition(1, 0), "b").await,
        Err(AppendFailed::Fenced)
    );
    old.log.fenced().await;
    assert_eq!(append(&new, partition(1, 0), "c").await, Ok(Offset(1)));
}

#[tokio::test(start_paused = true)]
async fn two_newcomers_at_once_leave_one_leader() {
    for seed in 0..30 {
        let backend = faulty(seed, FaultPlan::bad_day());
        let old = started(&backend, seed * 10).await;
        create(&old, 1, 1).await;
        let mut acked = Vec::new();
        for at in 0..5 {
            let offset = append(&old, partition(1, 0), &at.to_string()).await;
            acked.push(offset.expect("nobody else"));
        }
        kill(old);
        let both = tokio::join!(
            try_started(&backend, seed * 10 + 1),
            try_started(&backend, seed * 10 + 2),
        );
        let mut leading = 0;
        for broker in [both.0, both.1] {
            match broker {
                Ok(broker) => {
                    let state = broker.log.partition(partition(1, 0)).expect("led");
                    assert_eq!(state.high_watermark(), Offset(5), "seed {seed}");
                    leading += usize::from(append(&broker, partition(1, 0), "z").await.is_ok());
                }
                Err(StartError::Superseded) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        assert!(leading <= 1, "seed {seed}");
        backend.heal();
        let last = started(&backend, seed * 10 + 3).await;
        let state = last.log.partition(partition(1, 0)).expect("led");
        assert!(
            state.high_watermark() >= Offset(5 + i64::from(leading == 1)),
            "seed {seed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_is_gone_and_its_name_starts_anew() {
    let backend = faulty(1, FaultPlan::none());
    let broker = started(&backend, 1).await;
    create(&broker, 1, 1).await;
    assert_eq!(append(&broker, partition(1, 0), "a").await, Ok(Offset(0)));
    let delete = |_: &_| {
        Ok::<_, std::convert::Infallible>(vec![Change::TopicDeleted { topic: topic_id(1) }])
    };
    broker.cluster.commit(delete).await.expect("committed");
    broker.leadership.reconcile();
    assert!(broker.log.partition(partition(1, 0)).is_none());
    create(&broker, 2, 1).await;
    assert_eq!(append(&broker, partition(2, 0), "b").await, Ok(Offset(0)));
    kill(broker);
    let again = started(&backend, 2).await;
    assert!(again.log.partition(partition(1, 0)).is_none());
    let state = again.log.partition(partition(2, 0)).expect("led");
    assert_eq!(state.high_watermark(), Offset(1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_holds_something_else_is_refused() {
    let backend = faulty(1, FaultPlan::none());
    let body = Payload::from(Bytes::from_static(b"somebody's"));
    backend
        .put_if_absent("file.txt", body)
        .await
        .expect("healthy");
    let error = try_started(&backend, 1).await.expect_err("occupied");
    assert!(
        matches!(error, StartError::Root(RootError::Occupied { .. })),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_that_dies_anywhere_is_followed_by_another() {
    for ms in (0..3_000).step_by(40) {
        let backend = faulty(ms, FaultPlan::bad_day());
        let old = started(&backend, 1).await;
        create(&old, 1, 1).await;
        let acked = append(&old, partition(1, 0), "a").await;
        assert_eq!(acked, Ok(Offset(0)));
        kill(old);
        let dying = runtime(2);
        let store = store(&backend, &dying);
        let options = StartOptions::new(store, registration(1), LogLimits::bucket());
        let task = dying
            .tasks
            .spawn("dying", async move { drop(start(options).await) });
        dying.clock.sleep(Duration::from_millis(ms)).await;
        dying.tasks.abort_all();
        drop(task);
        let next = Arc::new(started(&backend, 3).await);
        assert_eq!(
            append(&next, partition(1, 0), "b").await,
            Ok(Offset(1)),
            "after {ms} ms"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_wrote_within_a_minute_is_warned_of() {
    // Seconds since its last write, seconds that the newcomer's clock is behind.
    for (seconds, behind, is_warned) in [
        (0, 0, true),
        (59, 0, true),
        (61, 0, false),
        (86_400, 0, false),
        (5, 30, true),
    ] {
        let (early, late) = (runtime(1), runtime(2));
        let bucket = Bucket(Arc::new(Memory::new(early.clock.clone())));
        let options = |runtime: &Runtime| {
            let backend = Arc::new(bucket.clone());
            let store = Store::new(backend, runtime.clone(), StoreOptions::default());
            StartOptions::new(store, registration(1), LogLimits::bucket())
        };
        let first = start(options(&early)).await.expect("an empty bucket");
        create(&first, 1, 1).await;
        let appended = append(&first, partition(1, 0), "a").await;
        assert_eq!(appended, Ok(Offset(0)));
        // The process is gone, or cannot be reached.
        early.tasks.abort_all();
        late.clock.sleep(Duration::from_secs(seconds)).await;
        late.clock.step_ms(-1_000 * behind);
        let second = start(options(&late)).await.expect("a start");
        let writer = first.cluster.writer();
        let warned = second.warnings.iter().any(|warning| {
            matches!(warning, StartWarning::RecentlyAlive { writer: of, .. } if *of == writer)
        });
        assert_eq!(warned, is_warned, "{seconds} s: {:?}", second.warnings);
        late.tasks.abort_all();
    }
}

/// The last byte of an object, changed.
async fn flip(backend: &FaultyBackend, key: &str) {
    let mut bytes = backend.get(key).await.expect("it is there").to_vec();
    *bytes.last_mut().expect("no empty object") ^= 1;
    backend.delete(key).await.expect("healthy");
    let put = backend.put_if_absent(key, Payload::from(Bytes::from(bytes)));
    put.await.expect("healthy");
}

async fn read(broker: &Started, id: PartitionId, offset: i64) -> Result<usize, ReadError> {
    let request = ReadRequest {
        offset: Offset(offset),
        max_bytes: 1,
        isolation: Isolation::Uncommitted,
        at_least_one: true,
    };
    let state = broker.log.partition(id).expect("led");
    state.read(request).await.map(|read| read.size)
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_taken_over_is_kept_while_all_else_goes_on() {
    let backend = faulty(1, FaultPlan::none());
    let (sick, sound) = (partition(1, 0), partition(1, 1));
    let broker = started(&backend, 1).await;
    create(&broker, 1, 2).await;
    append(&broker, sick, "a").await.expect("healthy");
    let wal = broker.log.wal_objects();
    let key = wal.key(broker.log.next_number() - 1);
    append(&broker, sound, "a").await.expect("healthy");
    kill(broker);
    flip(&backend, &key).await;
    // Again and again: the damaged part is kept, with all that came to its partition since.
    for life in 2..5 {
        let broker = started(&backend, life).await;
        let expected = 3 * i64::try_from(life).expect("small") - 5;
        for id in [sick, sound] {
            let state = broker.log.partition(id).expect("led");
            assert_eq!(state.high_watermark(), Offset(expected), "life {life}");
            append(&broker, id, "v").await.expect("healthy");
        }
        let roll = Roll::start(Arc::clone(&broker.log), Arc::new(SoleLeader));
        for _ in 0..2 {
            roll.round().await.expect("it goes on");
            append(&broker, sound, "w").await.expect("healthy");
            let deleted = Entry::log_start(sound, Offset(expected + 1), Latency::Low);
            let _ = broker.log.append(deleted).expect("accepted")[0]
                .wait()
                .await;
            append(&broker, sick, "w").await.expect("healthy");
        }
        broker
            .log
            .runtime()
            .clock
            .sleep(Duration::from_secs(300))
            .await;
        assert_eq!(broker.log.left_out(), 1);
        assert!(
            broker
                .log
                .partition(sound)
                .expect("led")
                .extents()
                .end_offset()
                > Offset(1)
        );
        assert!(matches!(
            read(&broker, sick, 0).await,
            Err(ReadError::Corrupt { .. })
        ));
        assert!(read(&broker, sick, 1).await.expect("later ones are read") > 0);
        let report = fsck(broker.log.store(), true, Duration::from_secs(1), &|_| ());
        let report = report.await.expect("healthy");
        let damaged: Vec<_> = report
            .damage
            .iter()
            .map(|found| found.key.as_str())
            .collect();
        assert_eq!((damaged, report.garbage), (vec![key.as_str()], vec![]));
        kill(broker);
    }
    // Once it is repaired, all is taken over, and the old writers are cleaned up after.
    flip(&backend, &key).await;
    let broker = started(&backend, 9).await;
    let roll = Roll::start(Arc::clone(&broker.log), Arc::new(SoleLeader));
    roll.round().await.expect("it goes on");
    broker
        .log
        .runtime()
        .clock
        .sleep(Duration::from_secs(300))
        .await;
    assert_eq!(broker.log.left_out(), 0);
    assert!(read(&broker, sick, 0).await.expect("repaired") > 0);
    assert!(backend.get(&key).await.is_err(), "cleaned up");
    let report = fsck(broker.log.store(), true, Duration::from_secs(1), &|_| ());
    assert!(report.await.expect("healthy").is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_dies_again_and_again_does_not_start_later_each_time() {
    const LIVES: u64 = 16;
    let backend = faulty(1, FaultPlan::none());
    let mut gets = Vec::new();
    for life in 0..LIVES {
        let broker = started(&backend, life).await;
        gets.push(broker.log.store().counters().gets);
        if life == 0 {
            create(&broker, 1, 1).await;
        }
        let expected = Offset(i64::try_from(20 * life).expect("small"));
        let state = broker.log.partition(partition(1, 0)).expect("led");
        assert_eq!(state.high_watermark(), expected);
        let _roll = Roll::start(Arc::clone(&broker.log), Arc::new(SoleLeader));
        for _ in 0..20 {
            append(&broker, partition(1, 0), "v")
                .await
                .expect("healthy");
        }
        // Less than a usual start waits with its first checkpoint.
        let clock = broker.log.runtime().clock.clone();
        clock.sleep(Duration::from_secs(2)).await;
        kill(broker);
    }
    // Two or three lives are replayed, not all sixteen; the metadata grows by two entries a life.
    let one = gets[1];
    let most = gets.iter().skip(2).max().copied().unwrap_or(u64::MAX);
    assert!(most <= 4 * one, "{gets:?}");
}
