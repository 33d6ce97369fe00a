//! A log with its roller over a memory store, and an oracle that knows what must be read.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use tidemill_log::{
    Entry, Latency, Log, LogLimits, LogOptions, PartitionConfig,
    ckpt::read_chain,
    fsck::{self, FsckOptions},
    read::{Isolation, ReadRequest},
    recover::Recovered,
    roll::{Roller, SoleLeader},
    wal,
};
use tidemill_runtime::{Entropy, Runtime};
use tidemill_store::{
    Backend, Memory, NumberedLog, Store, StoreOptions,
    testing::{FaultPlan, FaultyBackend},
};
use tidemill_wire::{
    batch::{
        BatchBuilder, BatchHeader, BatchIter, Compression, HEADER_BYTES, Hashed, NewRecord, Pieces,
        ValidBatch,
    },
    ids::{LeaderEpoch, Offset, PartitionId, TopicId, WriterId},
};

pub const CLUSTER: [u8; 16] = [7; 16];
pub const START_MS: i64 = 1_800_000_000_000;
pub const WRITER: WriterId = WriterId(5);

/// Runs `test` on a paused single-threaded runtime.
pub fn simulate<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(World) -> F) {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    executor.block_on(async { test(World::new(seed)).await });
}

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
        let options = StoreOptions::default();
        let store = Store::new(Arc::new(faulty.clone()), runtime.clone(), options);
        Self {
            runtime,
            memory,
            faulty,
            store,
        }
    }

    pub async fn open(&self, writer: WriterId, limits: LogLimits, from: Recovered) -> Rig {
        let prefix = tidemill_log::keys::wal_prefix(writer);
        let objects = NumberedLog::new(self.store.clone(), prefix);
        wal::start(&self.runtime, &objects, writer, CLUSTER, None)
            .await
            .unwrap();
        let options = LogOptions {
            writer,
            cluster_id: CLUSTER,
            store: self.store.clone(),
            runtime: self.runtime.clone(),
            limits,
            exclusive: false,
        };
        let log = Log::open(options, from);
        let roller = Roller::new(log.clone(), Arc::new(SoleLeader));
        Rig {
            log,
            roller,
            oracle: BTreeMap::new(),
            entropy: self.runtime.entropy.fork(),
        }
    }
}

/// Limits so small that everything happens soon.
pub fn small_limits() -> LogLimits {
    let mut limits = LogLimits::local();
    limits.tail_bytes_max = 256 << 10;
    limits.roll.segment_bytes_min = 128 << 10;
    limits.roll.segment_bytes_max = 512 << 10;
    limits.roll.set_bytes_max = 300 << 10;
    limits.roll.recent_max = 8;
    limits.roll.merge_fan_in = 3;
    limits.roll.grace = Duration::from_millis(500);
    limits
}

/// A stored batch as it must be read.
#[derive(Clone, Debug)]
pub struct Kept {
    pub base: Offset,
    pub last: Offset,
    pub bytes: Bytes,
    pub times: Vec<i64>,
}

#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub batches: Vec<Kept>,
    pub log_start: Offset,
}

pub struct Rig {
    pub log: Arc<Log>,
    pub roller: Roller,
    pub oracle: BTreeMap<PartitionId, Oracle>,
    pub entropy: Entropy,
}

pub fn partition(index: i32) -> PartitionId {
    PartitionId {
        topic: TopicId([1; 16]),
        index,
    }
}

/// A batch whose records have these timestamps and values of `len` bytes.
pub fn batch(times: &[i64], len: usize, fill: u8) -> ValidBatch {
    let mut builder = BatchBuilder::new(Compression::None);
    let value = vec![fill; len];
    for time in times {
        let mut record = NewRecord::key_value(b"k", &value);
        record.timestamp = *time;
        builder.push(&record).unwrap();
    }
    let bytes = builder.build().unwrap();
    let header = BatchHeader::parse(&bytes).unwrap();
    let (pieces, _) = Pieces::of(&bytes[HEADER_BYTES..], &Hashed::default());
    ValidBatch {
        header,
        max_timestamp: header.max_timestamp,
        inflated_bytes: 0,
        pieces,
        bytes,
    }
}

impl Rig {
    pub fn lead(&mut self, index: i32) {
        let id = partition(index);
        self.log
            .create_partition(id, LeaderEpoch(1), PartitionConfig::default());
        self.oracle.insert(id, Oracle::default());
    }

    /// Appends and waits for the commit.
    pub async fn append(&mut self, index: i32, times: &[i64], len: usize) {
        let id = partition(index);
        let fill = self.entropy.below(250) as u8;
        let batch = batch(times, len, fill);
        let entry = Entry::records(id, batch.clone(), Latency::Low);
        let appended = self.log.append(entry).unwrap().remove(0);
        let committed = appended.wait().await.unwrap();
        let (head, rest) = batch.assigned(committed.base_offset, LeaderEpoch(1));
        let oracle = self.oracle.get_mut(&id).unwrap();
        oracle.batches.push(Kept {
            base: committed.base_offset,
            last: committed.last_offset,
            bytes: [head, rest].concat().into(),
            times: times.to_vec(),
        });
    }

    pub async fn append_random(&mut self, index: i32) {
        let count = 1 + self.entropy.below(4) as usize;
        let times: Vec<i64> = (0..count)
            .map(|_| START_MS + self.entropy.below(100_000) as i64)
            .collect();
        let len = match self.entropy.below(10) {
            0 => 90_000,
            1..4 => 20_000,
            _ => 300,
        };
        self.append(index, &times, len).await;
    }

    pub async fn delete_records(&mut self, index: i32, offset: Offset) {
        let id = partition(index);
        let entry = Entry::log_start(id, offset, Latency::Low);
        self.log
            .append(entry)
            .unwrap()
            .remove(0)
            .wait()
            .await
            .unwrap();
        let oracle = self.oracle.get_mut(&id).unwrap();
        oracle.log_start = oracle.log_start.max(offset);
    }

    /// Follows the log starts that retention has moved.
    pub fn follow_log_starts(&mut self) {
        for (id, oracle) in &mut self.oracle {
            oracle.log_start = self.log.partition(*id).unwrap().log_start();
        }
    }

    /// Reads every partition from its log start to its end, in pieces of any size.
    pub async fn check_all(&self) {
        for (id, oracle) in &self.oracle {
            let mut offset = oracle.log_start;
            let partition = self.log.partition(*id).unwrap();
            let end = oracle
                .batches
                .last()
                .map_or(Offset(0), |kept| kept.last.plus(1));
            assert_eq!(partition.high_watermark(), end);
            let mut wanted = oracle
                .batches
                .iter()
                .filter(|kept| kept.last >= oracle.log_start);
            while offset < end {
                let max_bytes = 1 << self.entropy.below(22);
                let request = ReadRequest {
                    offset,
                    max_bytes,
                    isolation: Isolation::Uncommitted,
                    at_least_one: true,
                };
                let read = partition.read(request).await.unwrap();
                let joined: Bytes = read.slices.concat().into();
                assert_eq!(joined.len(), read.size);
                assert!(!joined.is_empty(), "{id} at {offset} of {end}");
                let batches: Vec<_> = BatchIter::new(joined).map(Result::unwrap).collect();
                assert!(read.size <= max_bytes || batches.len() == 1, "K11");
                for batch in batches {
                    let kept = wanted.next().unwrap();
                    assert_eq!(batch.header.base_offset, kept.base);
                    assert_eq!(batch.bytes, kept.bytes);
                }
                assert!(read.next_offset > offset);
                offset = read.next_offset;
            }
            assert!(wanted.next().is_none());
        }
    }

    /// Reads from every offset once and searches some timestamps.
    pub async fn check_offsets_and_times(&self) {
        for (id, oracle) in &self.oracle {
            let partition = self.log.partition(*id).unwrap();
            let alive = |kept: &&Kept| kept.last >= oracle.log_start;
            for kept in oracle.batches.iter().filter(alive) {
                let inside = self.entropy.below((kept.last.0 - kept.base.0 + 1) as u64);
                let offset = kept.base.plus(inside as i64).max(oracle.log_start);
                let request = ReadRequest {
                    offset,
                    max_bytes: 1,
                    isolation: Isolation::Committed,
                    at_least_one: true,
                };
                let read = partition.read(request).await.unwrap();
                assert_eq!(read.slices.concat(), kept.bytes, "K10");
                let none = ReadRequest {
                    at_least_one: false,
                    ..request
                };
                assert_eq!(partition.read(none).await.unwrap().size, 0);
            }
            let records = || {
                oracle.batches.iter().flat_map(|kept| {
                    let base = kept.base;
                    kept.times
                        .iter()
                        .enumerate()
                        .map(move |(i, t)| (base.plus(i as i64), *t))
                })
            };
            let records: Vec<_> = records()
                .filter(|(offset, _)| *offset >= oracle.log_start)
                .collect();
            for _ in 0..5 {
                let time = START_MS + self.entropy.below(101_000) as i64;
                let wanted = records.iter().find(|(_, t)| *t >= time).copied();
                let found = partition
                    .offset_for_timestamp(time, Isolation::Uncommitted)
                    .await;
                let found = found.unwrap().map(|hit| (hit.offset, hit.timestamp));
                assert_eq!(found, wanted, "K16");
            }
            let wanted = records.iter().rev().max_by_key(|(_, time)| *time).copied();
            let found = partition.max_timestamp().await.unwrap();
            assert_eq!(found.map(|hit| (hit.offset, hit.timestamp)), wanted, "K18");
        }
    }

    /// What the checkpoints say is what the partitions have in extents.
    pub async fn check_chain(&self, store: &Store) {
        let chain = read_chain(store, self.log.writer()).await.unwrap();
        for partition in self.log.partitions() {
            let Some(state) = chain.partitions.get(&partition.id()) else {
                assert!(partition.extents().is_empty());
                continue;
            };
            assert_eq!(state.extents, *partition.extents(), "{}", partition.id());
        }
        for id in chain.partitions.keys() {
            assert!(self.log.partition(*id).is_some(), "{id} was dropped");
        }
    }

    /// Everything stored fits together, and nothing is left over.
    pub async fn check_stored(&self, store: &Store) {
        let options = FsckOptions {
            deep: true,
            partitions: None,
        };
        let report = fsck::check(store, &options, &|_| ()).await.unwrap();
        assert_eq!(report.damage, [], "damage");
        assert_eq!(report.garbage, [], "garbage");
        assert!(report.others.is_empty());
        let stored = store.list_all("").await.unwrap().len() as u64;
        assert_eq!(report.objects + report.pending, stored, "{report:?}");
    }

    pub async fn merge_all(&mut self) {
        while self.roller.merge_step().await.unwrap() > 0 {}
    }
}
