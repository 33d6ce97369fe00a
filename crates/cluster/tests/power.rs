//! `local.sync = os` and a power failure: what was rolled stays, of the WAL's end some may go, and
//! the next start succeeds.

mod common;

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use common::{new_topic, registration, runtime, topic_id};
use tidemill_cluster::{
    Change, StartError, StartOptions, Started, fsck::fsck, seal::TornPolicy, start,
};
use tidemill_log::{
    Entry, Latency, LogLimits,
    read::{Isolation, ReadRequest},
    roll::{Roll, SoleLeader},
};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Directory, DirectoryOptions, LocalSync, Store, StoreOptions,
    testing::{Crash, SimFs},
};
use tidemill_wire::{
    batch::{BatchBuilder, Compression, NewRecord, ValidateOptions, validate},
    ids::{Offset, PartitionId},
};

async fn open(fs: &SimFs, runtime: &Runtime, read_only: bool) -> Store {
    let options = DirectoryOptions {
        sync: LocalSync::Os,
        read_only,
    };
    let fs = Arc::new(fs.clone());
    let directory = Directory::open_on(fs, Path::new("/data"), options, runtime.clone()).await;
    let directory = Arc::new(directory.expect("nobody holds it"));
    Store::new(directory, runtime.clone(), StoreOptions::default())
}

async fn started(fs: &SimFs, seed: u64) -> Result<Started, StartError> {
    let store = open(fs, &runtime(seed), false).await;
    let mut options = StartOptions::new(store, registration(1), LogLimits::local());
    options.torn = TornPolicy::NeverLanded;
    options.exclusive = true;
    start(options).await
}

fn partition() -> PartitionId {
    PartitionId {
        topic: topic_id(1),
        index: 0,
    }
}

async fn create_topic(broker: &Started) {
    let mut topic = new_topic(1, "t", 1, broker.cluster.writer());
    topic.configs.clear();
    let created = Change::TopicCreated(topic);
    let decide = move |_: &_| Ok::<_, Infallible>(vec![created.clone()]);
    broker.cluster.commit(decide).await.expect("committed");
    broker.leadership.reconcile();
}

/// The process is gone, with all that it had in memory.
fn kill(broker: Started) {
    broker.log.runtime().tasks.abort_all();
    broker.cluster.close();
    broker.log.close();
}

async fn append(broker: &Started, count: usize) {
    for _ in 0..count {
        let mut builder = BatchBuilder::new(Compression::None);
        let record = NewRecord::key_value(b"k", b"value");
        builder.push(&record).expect("small");
        let bytes = builder.build().expect("one record");
        let batch = validate(bytes, &ValidateOptions::default()).expect("just built");
        let entry = Entry::records(partition(), batch, Latency::Low);
        let appended = broker.log.append(entry).expect("accepted");
        appended[0].wait().await.expect("healthy");
    }
}

async fn read_all(broker: &Started) -> Offset {
    let partition = broker.log.partition(partition()).expect("led");
    let mut offset = partition.log_start();
    while offset < partition.high_watermark() {
        let request = ReadRequest {
            offset,
            max_bytes: 1 << 20,
            isolation: Isolation::Uncommitted,
            at_least_one: true,
        };
        let read = partition.read(request).await.expect("readable");
        assert!(read.next_offset > offset, "nothing at {offset}");
        offset = read.next_offset;
    }
    offset
}

#[tokio::test(start_paused = true)]
async fn what_was_rolled_survives_and_the_next_start_succeeds() {
    let mut lost = 0;
    for seed in 0..60 {
        let fs = SimFs::new();
        let broker = started(&fs, seed * 10).await.expect("an empty directory");
        create_topic(&broker).await;
        let roll = Roll::start(Arc::clone(&broker.log), Arc::new(SoleLeader));
        append(&broker, 20).await;
        roll.round().await.expect("healthy");
        // Long enough for the WAL to be trimmed on the checkpoint's word.
        broker
            .log
            .runtime()
            .clock
            .sleep(Duration::from_secs(30))
            .await;
        append(&broker, 10).await;
        let chance = broker.log.runtime().entropy.fork();
        drop(roll);
        kill(broker);
        fs.restart(&match seed % 2 {
            0 => Crash::Power,
            _ => Crash::PowerByChance(&chance),
        });
        let again = started(&fs, seed * 10 + 1).await.expect("it starts");
        let end = read_all(&again).await;
        assert!(
            end >= Offset(20),
            "seed {seed}: rolled data is lost, {end} is the end"
        );
        lost += u32::from(end < Offset(30));
        append(&again, 1).await;
        assert_eq!(read_all(&again).await, end.plus(1));
        again.log.runtime().tasks.abort_all();
        let tool = open(&fs, &runtime(seed), true).await;
        let report = fsck(&tool, true, Duration::from_secs(5), &|_| {}).await;
        let report = report.expect("readable");
        assert!(report.damage.is_empty(), "seed {seed}: {:?}", report.damage);
    }
    assert!(lost > 0, "the power failure had no effect");
}

#[tokio::test(start_paused = true)]
async fn what_a_restart_has_counted_survives_a_power_failure() {
    for seed in 0..40 {
        let fs = SimFs::new();
        let broker = started(&fs, seed * 10).await.expect("an empty directory");
        create_topic(&broker).await;
        append(&broker, 20).await;
        kill(broker);
        fs.restart(&Crash::Process);
        // Its predecessor's WAL is decided by now, on what lay in the page cache only.
        let broker = started(&fs, seed * 10 + 1).await.expect("all is there");
        assert_eq!(read_all(&broker).await, Offset(20));
        append(&broker, usize::try_from(seed % 3).expect("small")).await;
        let chance = broker.log.runtime().entropy.fork();
        kill(broker);
        fs.restart(&match seed % 2 {
            0 => Crash::Power,
            _ => Crash::PowerByChance(&chance),
        });
        let again = started(&fs, seed * 10 + 2).await.expect("it starts");
        let end = read_all(&again).await;
        assert!(end >= Offset(20), "seed {seed}: {end} is the end");
    }
}
