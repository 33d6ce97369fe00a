//! A log over a memory store with faults, on simulated time.

use std::{sync::Arc, time::Duration};

use tidemill_log::{
    Appended, Entry, Latency, Log, LogLimits, LogOptions, Partition, PartitionConfig,
    recover::Recovered, wal,
};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Backend, Memory, NumberedLog, Store, StoreOptions,
    testing::{FaultPlan, FaultyBackend},
};
use tidemill_wire::{
    batch::{
        BatchBuilder, BatchHeader, Compression, HEADER_BYTES, Hashed, NewRecord, Pieces, ValidBatch,
    },
    ids::{LeaderEpoch, PartitionId, ProducerEpoch, ProducerId, TopicId, WriterId},
};

pub const CLUSTER: [u8; 16] = [7; 16];
pub const START_MS: i64 = 1_800_000_000_000;

/// Runs `test` on a paused single-threaded runtime.
pub fn simulate<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(World) -> F) {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime can be built");
    executor.block_on(async { test(World::new(seed)).await });
}

#[derive(Clone)]
pub struct World {
    pub runtime: Runtime,
    pub memory: Arc<Memory>,
    pub faulty: FaultyBackend,
    pub store: Store,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let runtime = Runtime::simulated(seed, START_MS);
        let memory = Arc::new(Memory::new(runtime.clock.clone()));
        let below: Arc<dyn Backend> = memory.clone();
        let faulty = FaultyBackend::new(below, runtime.clone(), seed, FaultPlan::none());
        // No read gives up in these tests.
        let read_deadline = Duration::from_secs(86_400);
        let options = StoreOptions {
            read_deadline,
            ..StoreOptions::default()
        };
        let store = Store::new(Arc::new(faulty.clone()), runtime.clone(), options);
        Self {
            runtime,
            memory,
            faulty,
            store,
        }
    }

    pub fn wal(&self, writer: u64) -> NumberedLog {
        let prefix = tidemill_log::keys::wal_prefix(WriterId(writer));
        NumberedLog::new(self.store.clone(), prefix)
    }

    pub fn options(&self, writer: u64, limits: LogLimits) -> LogOptions {
        LogOptions {
            writer: WriterId(writer),
            cluster_id: CLUSTER,
            store: self.store.clone(),
            runtime: self.runtime.clone(),
            limits,
            exclusive: false,
        }
    }

    pub async fn open_with(&self, writer: u64, limits: LogLimits, from: Recovered) -> Arc<Log> {
        let objects = self.wal(writer);
        wal::start(&self.runtime, &objects, WriterId(writer), CLUSTER, None)
            .await
            .expect("object 0 is written");
        Log::open(self.options(writer, limits), from)
    }

    pub async fn open(&self, writer: u64) -> Arc<Log> {
        self.open_with(writer, LogLimits::local(), Recovered::default())
            .await
    }

    pub async fn sleep_ms(&self, ms: u64) {
        self.runtime.clock.sleep(Duration::from_millis(ms)).await;
    }
}

pub fn partition(index: i32) -> PartitionId {
    PartitionId {
        topic: TopicId([1; 16]),
        index,
    }
}

pub fn lead(log: &Log, index: i32) -> Arc<Partition> {
    log.create_partition(partition(index), LeaderEpoch(1), PartitionConfig::default())
}

fn valid(builder: &BatchBuilder) -> ValidBatch {
    let bytes = builder.build().expect("the batch is not empty");
    let header = BatchHeader::parse(&bytes).expect("the builder makes batches");
    let (pieces, _) = Pieces::of(&bytes[HEADER_BYTES..], &Hashed::default());
    ValidBatch {
        header,
        max_timestamp: header.max_timestamp,
        inflated_bytes: 0,
        pieces,
        bytes,
    }
}

/// `count` records whose values are `value`.
pub fn batch(value: &[u8], count: usize) -> ValidBatch {
    let mut builder = BatchBuilder::new(Compression::None);
    for _ in 0..count {
        builder
            .push(&NewRecord::key_value(b"", value))
            .expect("the record is short");
    }
    valid(&builder)
}

/// The same from an idempotent producer.
pub fn sequenced(producer: i64, epoch: i16, sequence: i32, value: &[u8], n: usize) -> ValidBatch {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.producer(ProducerId(producer), ProducerEpoch(epoch), sequence);
    for _ in 0..n {
        builder
            .push(&NewRecord::key_value(b"", value))
            .expect("the record is short");
    }
    valid(&builder)
}

pub fn append(log: &Log, index: i32, batch: ValidBatch) -> Appended {
    let entry = Entry::records(partition(index), batch, Latency::Low);
    let appended = log.append(entry).expect("the entry is taken");
    appended.into_iter().next().expect("it has one part")
}
