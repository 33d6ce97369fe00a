//! The handle on one writer's log.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tidemill_runtime::{Instant, Runtime};
use tidemill_store::{NumberedLog, Store};
use tidemill_wire::ids::{LeaderEpoch, PartitionId, WriterId};

use crate::{
    entry::{Appended, Entry},
    error::{AppendError, AppendFailed, DrainError, Superseded},
    limits::{LogLimits, PartitionConfig},
    partition::{Partition, TailBudget},
    read::Reader,
    recover::{Recovered, RecoveredPartition},
    roll::{Leftovers, RollState},
    stages::Stages,
    wal::{Gather, SpaceTaken, Wal},
};

/// What a log needs to start. The writer's WAL object 0 must have been written before
/// ([`crate::wal::start`]).
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// This broker incarnation.
    pub writer: WriterId,
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// The store.
    pub store: Store,
    /// Clock, entropy, tasks.
    pub runtime: Runtime,
    /// Limits.
    pub limits: LogLimits,
    /// True while a lock on the whole store is held that no other broker can take (a local
    /// directory's): freshness then needs no proof (R7).
    pub exclusive: bool,
}

/// The partitions one writer leads, over its WAL.
#[derive(Debug)]
pub struct Log {
    options: LogOptions,
    wal: Arc<Wal>,
    reader: Arc<Reader>,
    leftovers: Mutex<Leftovers>,
    roll_state: Mutex<Option<RollState>>,
    checkpoints: AtomicU64,
    left_out: AtomicU64,
}

impl Log {
    /// Starts the engine. `recovered` is what this writer leads from the start.
    #[must_use]
    pub fn open(options: LogOptions, recovered: Recovered) -> Arc<Self> {
        let budget = Arc::new(TailBudget::new(options.limits.tail_bytes_max));
        let wal = Wal::open(&options, budget);
        let reader = Reader::new(
            options.store.clone(),
            options.runtime.clone(),
            options.limits.read.clone(),
        );
        let log = Arc::new(Self {
            options,
            wal,
            reader,
            leftovers: Mutex::new(recovered.leftovers),
            roll_state: Mutex::new(None),
            checkpoints: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        });
        for partition in recovered.partitions {
            let partition = log.adopt(partition);
            let extents = partition.extents();
            if !extents.is_empty() {
                let inherited = (partition.id(), extents);
                log.leftovers.lock().inherited.push(inherited);
            }
        }
        log
    }

    /// Appends an entry; never waits for the store. All parts are taken, or none.
    ///
    /// # Errors
    /// [`AppendError`]; nothing was taken then.
    pub fn append(&self, entry: Entry) -> Result<Vec<Appended>, AppendError> {
        crate::wal::append::append(self, entry)
    }

    /// Entries appended until the guard is dropped leave in one flush, as those of one request
    /// should. Not to be held over an await: a flush waits for it a millisecond at most.
    pub fn gather(&self) -> Gather {
        self.wal.gather()
    }

    /// A partition this writer leads.
    #[must_use]
    pub fn partition(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.wal.partitions.read().get(&id).cloned()
    }

    /// All partitions, ordered by id.
    #[must_use]
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        self.wal.partitions.read().values().cloned().collect()
    }

    /// Begins to lead a partition as it was left; returns the one already led, if there is one.
    pub fn adopt(&self, recovered: RecoveredPartition) -> Arc<Partition> {
        let mut partitions = self.wal.partitions.write();
        if let Some(present) = partitions.get(&recovered.head.partition) {
            return present.clone();
        }
        let partition = self.wal.adopt(recovered, self.reader.clone());
        match self.wal.stopped() {
            // The engine stops what is in the map; it may have done so already.
            Some(why) => partition.stop(why),
            None => {
                partitions.insert(partition.id(), partition.clone());
            }
        }
        partition
    }

    /// Begins to lead a new, empty partition.
    pub fn create_partition(
        &self,
        id: PartitionId,
        epoch: LeaderEpoch,
        config: PartitionConfig,
    ) -> Arc<Partition> {
        let mut recovered = RecoveredPartition::empty(id);
        recovered.head.leader_epoch = epoch;
        recovered.config = config;
        self.adopt(recovered)
    }

    /// Ceases to lead a partition (its topic was deleted). What is pending is written all the same;
    /// readers are woken.
    pub fn drop_partition(&self, id: PartitionId) -> Option<Arc<Partition>> {
        let partition = self.wal.partitions.write().remove(&id)?;
        partition.stop(AppendFailed::Closed);
        // No round will move it, so nothing else would bring about that it is trimmed.
        if let Some(last) = partition.last_unrolled(self.writer()) {
            self.wal.note_forgotten(last);
        }
        partition.release_tail();
        Some(partition)
    }

    /// This broker incarnation.
    #[must_use]
    pub fn writer(&self) -> WriterId {
        self.options.writer
    }

    /// What the log was opened with.
    #[must_use]
    pub fn options(&self) -> &LogOptions {
        &self.options
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.options.store
    }

    /// Clock, entropy, tasks.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.options.runtime
    }

    /// How far the roll has come with what is to go; looked at every few seconds.
    #[must_use]
    pub fn roll_state(&self) -> Option<RollState> {
        *self.roll_state.lock()
    }

    pub(crate) fn note_roll_state(&self, state: RollState) {
        *self.roll_state.lock() = Some(state);
    }

    /// Checkpoints of this writer that count so far.
    #[must_use]
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints.load(Ordering::Relaxed)
    }

    pub(crate) fn note_checkpoint(&self) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    /// Partitions that are not rolled because their part of the WAL is damaged; the WAL is kept for
    /// them.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    pub(crate) fn note_left_out(&self, partitions: u64) {
        self.left_out.store(partitions, Ordering::Relaxed);
    }

    /// What recovery left to clean up; once.
    pub(crate) fn take_leftovers(&self) -> Leftovers {
        std::mem::take(&mut self.leftovers.lock())
    }

    /// Reads of what is not in memory.
    #[must_use]
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// This writer's WAL.
    #[must_use]
    pub fn wal_objects(&self) -> &NumberedLog {
        self.wal.objects()
    }

    pub(crate) fn wal(&self) -> &Arc<Wal> {
        &self.wal
    }

    /// Appended and not yet committed bytes.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.wal.pending_bytes()
    }

    /// True while less is pending than the limit, and space is above its floor.
    #[must_use]
    pub fn is_below_limit(&self) -> bool {
        self.wal.is_below_limit()
    }

    /// True while an eighth more is pending than the limit: nothing at all should be added.
    #[must_use]
    pub fn is_far_above_limit(&self) -> bool {
        self.wal.is_far_above_limit()
    }

    /// True if a request of `bytes` has to wait for space before it is taken.
    #[must_use]
    pub fn must_wait_for_space(&self, bytes: u64) -> bool {
        self.wal.must_wait_for_space(bytes)
    }

    /// Waits until there is space for a request of `bytes`, or the log takes nothing more. What
    /// fits passes others. What makes room does not wait. What it returns is to be held until the
    /// request ends; none if the log takes nothing more.
    pub async fn wait_for_space(&self, bytes: u64) -> Option<SpaceTaken> {
        self.wal.wait_for_space(bytes).await
    }

    /// Free bytes that a round may fill; `None` where there is no floor.
    pub(crate) async fn room(&self) -> Option<u64> {
        self.wal.room().await
    }

    /// Waits until less is pending than the limit and space is above its floor, or the log stopped.
    pub async fn below_limit(&self) {
        self.wal.below_limit().await;
    }

    /// Proves that nobody had sealed this writer at some moment after `since` (R7). Callers that
    /// wait share one GET. Waits as long as the store is silent.
    ///
    /// # Errors
    /// The writer was sealed or closed.
    pub async fn fresh(&self, since: Instant) -> Result<(), Superseded> {
        self.wal.fresh(since).await
    }

    /// As [`Log::fresh`], satisfied by a proof at most `age` old.
    ///
    /// # Errors
    /// The writer was sealed or closed.
    pub async fn fresh_within(&self, age: Duration) -> Result<(), Superseded> {
        self.wal.fresh_within(age).await
    }

    /// Waits until the writer is fenced: it met an object of somebody else. The process must end.
    pub async fn fenced(&self) {
        self.wal.fenced().await;
    }

    /// True once the writer is fenced.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.wal.stopped() == Some(AppendFailed::Fenced)
    }

    /// Why the log has stopped, if it has.
    pub(crate) fn stopped(&self) -> Option<AppendFailed> {
        self.wal.stopped()
    }

    /// Stops the writer as if it had met a foreign object: its checkpoint log was closed.
    pub fn fence(&self) {
        self.wal.stop(AppendFailed::Fenced);
    }

    /// Where entries spend their time.
    #[must_use]
    pub fn stages(&self) -> &Stages {
        self.wal.stages()
    }

    /// The largest WAL number at or below `decided_below` that no entry straddles: all below is
    /// committed and may be rolled.
    #[must_use]
    pub fn roll_cut(&self) -> u64 {
        self.wal.progress().roll_cut
    }

    /// All lower numbers landed.
    #[must_use]
    pub fn decided_below(&self) -> u64 {
        self.wal.progress().decided_below
    }

    /// One past the highest number a PUT was sent for.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.wal.progress().next
    }

    /// The largest number up to `cut`, which lies at or below [`Log::roll_cut`], that no entry
    /// straddles.
    pub(crate) fn clean_cut(&self, cut: u64) -> u64 {
        self.wal.clean_cut(cut)
    }

    /// One past the highest WAL number with something of a partition that was dropped before it was
    /// rolled: it waits for nothing but to be trimmed.
    pub(crate) fn forgotten_below(&self) -> u64 {
        self.wal.forgotten_below()
    }

    /// Notes that a published checkpoint covers all lower numbers; later WAL objects say so.
    pub fn set_replay_from(&self, number: u64) {
        self.wal.set_replay_from(number);
    }

    /// Bytes of committed batches in memory, with what each takes beside its own; at most
    /// [`crate::LogLimits::tail_bytes_max`] and what has just been committed.
    #[must_use]
    pub fn tail_bytes(&self) -> u64 {
        self.wal.budget().bytes()
    }

    /// Committed bytes in no extent, with what each batch takes beside its own.
    #[must_use]
    pub fn unrolled_bytes(&self) -> u64 {
        self.wal.budget().unrolled()
    }

    /// Forgets producers that have not written for `producer_expiration` (K27).
    pub fn expire_producers(&self) {
        let age = i64::try_from(self.options.limits.producer_expiration.as_millis());
        let oldest = self
            .options
            .runtime
            .clock
            .now_ms()
            .saturating_sub(age.unwrap_or(i64::MAX));
        for partition in self.partitions() {
            partition.lock().producers.expire(oldest);
        }
    }

    /// Takes nothing new, sends what is pending at once, and waits until all of it is committed.
    ///
    /// # Errors
    /// The deadline passed, or the writer was fenced.
    pub async fn drain(&self, deadline: Instant) -> Result<(), DrainError> {
        self.wal.drain(deadline).await
    }

    /// Stops at once: what is pending fails with [`AppendFailed::Closed`], PUTs in flight are let
    /// go. Dropping the log does the same.
    pub fn close(&self) {
        self.wal.stop(AppendFailed::Closed);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
    }
}
