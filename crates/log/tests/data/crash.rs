//! A crash between any two operations of a writer's life loses nothing, and what is left over goes.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use tidemill_log::{
    ckpt::{ChainState, Landed, close, read_chain},
    keys,
    recover::{Recovered, RecoveredPartition, SealedWal, replay},
    roll::Leftovers,
};
use tidemill_store::{
    Backend, NumberedLog, ObjectMeta, Payload, PutAnswer, Store, StoreError, StoreOptions,
};
use tidemill_wire::ids::{LeaderEpoch, Offset, PartitionId, WriterId};

use crate::harness::{CLUSTER, Oracle, Rig, START_MS, World, partition, simulate, small_limits};

/// Carries out so many writing operations, then never answers again: the process has died.
#[derive(Debug)]
struct Mortal {
    below: Arc<dyn Backend>,
    left: AtomicU64,
    /// The last operation is carried out, but nobody learns of it.
    lands: bool,
}

impl Mortal {
    async fn live(&self) -> bool {
        let spend = |left: u64| left.checked_sub(1);
        match self
            .left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, spend)
        {
            Ok(_) => true,
            Err(_) => std::future::pending().await,
        }
    }

    async fn answer<T>(&self, answer: T) -> T {
        if self.lands && self.left.load(Ordering::Acquire) == 0 {
            std::future::pending::<()>().await;
        }
        answer
    }
}

#[async_trait]
impl Backend for Mortal {
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        self.live().await;
        let answer = self.below.put_if_absent(key, body).await;
        self.answer(answer).await
    }
    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.below.get(key).await
    }
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.below.get_range(key, range).await
    }
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.below.head(key).await
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.live().await;
        let answer = self.below.delete(key).await;
        self.answer(answer).await
    }
    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        self.below.list(prefix, start_after, limit).await
    }
    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        self.below.copy_if_absent(from, to).await
    }
    fn is_local(&self) -> bool {
        self.below.is_local()
    }
    fn describe(&self) -> String {
        self.below.describe()
    }
}

pub const PARTITIONS: i32 = 3;

impl World {
    fn mortal(&self, operations: u64, lands: bool) -> Self {
        let mortal = Mortal {
            below: self.memory.clone(),
            left: AtomicU64::new(operations),
            lands,
        };
        let store = Store::new(
            Arc::new(mortal),
            self.runtime.clone(),
            StoreOptions::default(),
        );
        Self {
            runtime: self.runtime.clone(),
            memory: self.memory.clone(),
            faulty: self.faulty.clone(),
            store,
        }
    }

    /// Seals dead writers, newest last, and takes their partitions over.
    pub async fn recover(&self, dead: &[WriterId]) -> Recovered {
        // What lies below the newest that has published may be gone.
        self.recover_through(dead, |chain| chain.newest.is_some())
            .await
    }

    /// The same, down to the first of which `is_last` holds.
    pub async fn recover_through(
        &self,
        dead: &[WriterId],
        is_last: impl Fn(&ChainState) -> bool,
    ) -> Recovered {
        let exists = |id: PartitionId| id.index < PARTITIONS;
        let mut chains: BTreeMap<WriterId, ChainState> = BTreeMap::new();
        let mut leftovers = Leftovers::default();
        let mut is_complete = false;
        for writer in dead.iter().rev() {
            let before = read_chain(&self.store, *writer).await.unwrap();
            if before.closing.is_none() {
                let wal = NumberedLog::new(self.store.clone(), keys::wal_prefix(*writer));
                let numbers = wal.list_from(before.replay_from).await.unwrap();
                let landed: Vec<u64> = numbers.iter().map(|(number, _)| *number).collect();
                let landed = Landed {
                    decided_below: before.replay_from,
                    above: landed,
                };
                close(&self.store, *writer, CLUSTER, &landed, None)
                    .await
                    .unwrap();
            }
            let chain = read_chain(&self.store, *writer).await.unwrap();
            if !is_complete {
                is_complete = leftovers.add(*writer, &chain, exists);
            }
            let last = is_last(&chain);
            chains.insert(*writer, chain);
            if last {
                break;
            }
        }
        let mut partitions: BTreeMap<PartitionId, RecoveredPartition> = (0..PARTITIONS)
            .map(|index| {
                (
                    partition(index),
                    RecoveredPartition::empty(partition(index)),
                )
            })
            .collect();
        for (writer, chain) in chains {
            for (id, state) in chain.partitions.iter().filter(|(id, _)| exists(**id)) {
                let recovered = partitions.get_mut(id).unwrap();
                recovered.head = state.head.clone();
                recovered.extents = state.extents.clone();
                recovered.tail.clear();
            }
            let (_, closing) = chain.closing.unwrap();
            let wal = SealedWal {
                writer,
                replay_from: chain.replay_from,
                closing,
            };
            replay(&self.store, CLUSTER, &wal, &mut partitions)
                .await
                .unwrap();
        }
        for recovered in partitions.values_mut() {
            recovered.head.leader_epoch = LeaderEpoch(1);
        }
        Recovered {
            partitions: partitions.into_values().collect(),
            leftovers,
        }
    }
}

/// A short life in which everything happens.
async fn live(rig: &mut Rig) {
    // A deleted topic's id never comes back.
    let doomed = PARTITIONS + i32::try_from(rig.log.writer().0).unwrap();
    rig.lead(doomed);
    for round in 0..7 {
        rig.append(0, &[START_MS], 300).await;
        rig.append(1, &[START_MS, START_MS + 1], 70_000).await;
        rig.append(1, &[START_MS], 20).await;
        if round < 3 {
            rig.append(doomed, &[START_MS], 300).await;
        }
        if round == 3 {
            rig.log.drop_partition(partition(doomed));
            rig.oracle.remove(&partition(doomed));
        }
        if round == 4 {
            rig.delete_records(1, Offset(4)).await;
        }
        rig.roller.round().await.unwrap();
        rig.roller.merge_step().await.unwrap();
        if round % 2 == 1 {
            rig.log.runtime().clock.sleep(Duration::from_secs(1)).await;
            rig.roller.tidy().await;
            // A dead store is no answer.
            let _ = rig.roller.clean_up().await;
        }
    }
}

/// What was acknowledged must be there; what was not may be.
fn adopt_oracle(rig: &mut Rig, before: &BTreeMap<PartitionId, Oracle>) {
    for index in 0..PARTITIONS {
        let id = partition(index);
        let known = before.get(&id).cloned().unwrap_or_default();
        let partition = rig.log.partition(id).unwrap();
        let end = known
            .batches
            .last()
            .map_or(Offset(0), |kept| kept.last.plus(1));
        assert!(
            partition.high_watermark() >= end,
            "{id} lost acknowledged records"
        );
        assert!(partition.log_start() >= known.log_start);
        rig.oracle.insert(id, known);
    }
}

/// Reads what a dying writer has written beyond what it acknowledged into the oracle.
async fn learn_rest(rig: &mut Rig) {
    use tidemill_log::read::{Isolation, ReadRequest};
    use tidemill_wire::batch::BatchIter;

    for (id, oracle) in &mut rig.oracle {
        let partition = rig.log.partition(*id).unwrap();
        oracle.log_start = partition.log_start();
        let end = oracle
            .batches
            .last()
            .map_or(Offset(0), |kept| kept.last.plus(1));
        let mut offset = end.max(oracle.log_start);
        while offset < partition.high_watermark() {
            let request = ReadRequest {
                offset,
                max_bytes: 1 << 20,
                isolation: Isolation::Uncommitted,
                at_least_one: true,
            };
            let read = partition.read(request).await.unwrap();
            for batch in BatchIter::new(read.slices.concat().into()) {
                let batch = batch.unwrap();
                oracle.batches.push(crate::harness::Kept {
                    base: batch.header.base_offset,
                    last: batch.header.last_offset(),
                    bytes: batch.bytes,
                    times: Vec::new(),
                });
            }
            offset = read.next_offset;
        }
    }
}

/// Lives until it dies; returns what it had acknowledged and whether it died.
async fn live_and_die(
    world: &World,
    writer: WriterId,
    operations: u64,
    lands: bool,
    dead: &[WriterId],
    before: BTreeMap<PartitionId, Oracle>,
) -> (BTreeMap<PartitionId, Oracle>, bool) {
    let mortal = world.mortal(operations, lands);
    let recovered = world.recover(dead).await;
    let clock = world.runtime.clock.clone();
    let opened = clock.timeout(
        Duration::from_secs(60),
        mortal.open(writer, small_limits(), recovered),
    );
    let Ok(mut rig) = opened.await else {
        return (before, true);
    };
    adopt_oracle(&mut rig, &before);
    learn_rest(&mut rig).await;
    let died = clock
        .timeout(Duration::from_secs(600), live(&mut rig))
        .await
        .is_err();
    rig.log.close();
    (std::mem::take(&mut rig.oracle), died)
}

pub async fn end(
    world: &World,
    writer: WriterId,
    dead: &[WriterId],
    before: BTreeMap<PartitionId, Oracle>,
) {
    let recovered = world.recover(dead).await;
    let mut rig = world.open(writer, small_limits(), recovered).await;
    adopt_oracle(&mut rig, &before);
    learn_rest(&mut rig).await;
    rig.check_all().await;
    rig.roller.round().await.unwrap();
    rig.merge_all().await;
    rig.check_all().await;
    world.runtime.clock.sleep(Duration::from_secs(1)).await;
    rig.roller.tidy().await;
    rig.roller.clean_up().await.unwrap();
    rig.check_all().await;
    rig.append(0, &[START_MS], 10).await;
    rig.roller.round().await.unwrap();
    world.runtime.clock.sleep(Duration::from_secs(1)).await;
    rig.roller.tidy().await;
    rig.check_stored(&world.store).await;
    rig.check_chain(&world.store).await;
    // Nothing is left of the dead but their closing checkpoints, the newest number of their WAL and
    // data that is listed.
    for writer in dead {
        for prefix in [keys::wal_prefix(*writer), keys::ckpt_prefix(*writer)] {
            let left = world.store.list_all(&format!("{prefix}/")).await.unwrap();
            assert!(left.len() <= 1, "{left:?}");
        }
    }
}

#[test]
fn a_crash_between_any_two_operations_loses_nothing() {
    for lands in [false, true] {
        for operations in 1.. {
            let mut survived = false;
            simulate(operations, |world| {
                let survived = &mut survived;
                async move {
                    let first = WriterId(5);
                    let (oracle, died) =
                        live_and_die(&world, first, operations, lands, &[], BTreeMap::new()).await;
                    *survived = !died;
                    end(&world, WriterId(6), &[first], oracle).await;
                }
            });
            if survived {
                break;
            }
        }
    }
}

#[test]
fn two_crashes_in_a_row_lose_nothing() {
    for operations in (3..70).step_by(7) {
        for second in (1..90).step_by(8) {
            simulate(operations, |world| async move {
                let (one, two) = (WriterId(5), WriterId(6));
                let nothing = BTreeMap::new();
                let (oracle, _) = live_and_die(&world, one, operations, true, &[], nothing).await;
                let (oracle, _) = live_and_die(&world, two, second, true, &[one], oracle).await;
                end(&world, WriterId(7), &[one, two], oracle).await;
            });
        }
    }
}
