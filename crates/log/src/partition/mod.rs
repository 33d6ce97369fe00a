//! A partition this writer leads: offsets, producers, epochs, tail, waiters.

pub(crate) mod producers;
mod tail;
mod waiters;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tidemill_invariants::log::Marks;
use tidemill_wire::ids::{LeaderEpoch, Offset, PartitionId, WriterId};

use self::{
    producers::{Epochs, Producers},
    waiters::Waiters,
};
use crate::{
    error::AppendFailed,
    extents::ExtentList,
    limits::PartitionConfig,
    read::Reader,
    recover::RecoveredPartition,
    types::{PartitionHead, TailBatch, WalSpan},
};

pub(crate) use tail::weight;
pub use tail::{Freed, Tail, TailBudget};
pub use waiters::{NotifyWaiter, Waiter, WaiterGuard};

/// What the partition's lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub leader_epoch: LeaderEpoch,
    /// The offset the next record gets: pending ones included.
    pub log_end: Offset,
    /// One past the last committed record.
    pub high_watermark: Offset,
    pub log_start: Offset,
    pub epochs: Epochs,
    pub producers: Producers,
    pub tail: Tail,
    pub extents: Arc<ExtentList>,
    pub config: PartitionConfig,
    pub waiters: Waiters,
    /// Newest entry that went into the lane of small entries, and into that of bulk.
    pub last_small: u64,
    pub last_bulk: u64,
    /// Why nothing can be appended or promised any more.
    pub stopped: Option<AppendFailed>,
}

/// A partition this writer leads. Never locked across an await.
pub struct Partition {
    id: PartitionId,
    high_watermark: AtomicI64,
    last_stable: AtomicI64,
    log_start: AtomicI64,
    state: Mutex<State>,
    budget: Arc<TailBudget>,
    touched: AtomicBool,
    reader: Arc<Reader>,
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Partition {
    pub(crate) fn open(
        recovered: RecoveredPartition,
        budget: Arc<TailBudget>,
        reader: Arc<Reader>,
    ) -> Arc<Self> {
        let RecoveredPartition {
            head,
            extents,
            tail,
            config,
            ..
        } = recovered;
        let mut batches = Tail::new(extents.end_offset().max(head.log_start));
        tail.into_iter().for_each(|batch| batches.push(batch));
        batches.trim(head.log_start);
        budget.add_unrolled(batches.unrolled_weight());
        let state = State {
            leader_epoch: head.leader_epoch,
            log_end: head.next_offset,
            high_watermark: head.next_offset,
            log_start: head.log_start,
            epochs: Epochs(head.epoch_starts),
            producers: Producers::restored(head.producers),
            tail: batches,
            extents: Arc::new(extents),
            config,
            waiters: Waiters::default(),
            last_small: 0,
            last_bulk: 0,
            stopped: None,
        };
        let partition = Self {
            id: head.partition,
            high_watermark: AtomicI64::new(0),
            last_stable: AtomicI64::new(0),
            log_start: AtomicI64::new(0),
            state: Mutex::new(state),
            budget,
            touched: AtomicBool::new(false),
            reader,
        };
        partition.publish(&partition.lock());
        let partition = Arc::new(partition);
        let charges: Vec<_> = {
            let state = partition.lock();
            let loaded = state
                .tail
                .from(Offset(0))
                .filter(|batch| batch.data.is_some());
            loaded
                .map(|batch| (batch.base_offset, u64::from(batch.size_bytes)))
                .collect()
        };
        for (base, bytes) in charges {
            partition.budget.charge(&partition, base, bytes);
        }
        partition
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Makes the committed state visible to readers that take no lock.
    pub(crate) fn publish(&self, state: &State) {
        let high_watermark = state.high_watermark;
        let open = state.producers.first_open().unwrap_or(high_watermark);
        let stable = open.min(high_watermark).max(state.log_start);
        self.high_watermark
            .store(high_watermark.0, Ordering::Release);
        self.last_stable.store(stable.0, Ordering::Release);
        // Last: no reader then sees a start above the marks.
        self.log_start.store(state.log_start.0, Ordering::Release);
    }

    pub(crate) fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Which partition this is.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// One past the last committed offset.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// Where read-committed readers stop.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        Offset(self.last_stable.load(Ordering::Acquire))
    }

    /// The first offset that may be read.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        Offset(self.log_start.load(Ordering::Acquire))
    }

    /// The offset the next record gets, pending ones included. Of no use to clients.
    #[must_use]
    pub fn log_end(&self) -> Offset {
        self.lock().log_end
    }

    /// The leader's epoch.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.lock().leader_epoch
    }

    /// The retention settings.
    #[must_use]
    pub fn config(&self) -> PartitionConfig {
        self.lock().config
    }

    /// Replaces the retention settings.
    pub fn set_config(&self, config: PartitionConfig) {
        self.lock().config = config;
    }

    /// The end of an epoch: the largest known epoch at or below `epoch` and its end offset; `None`
    /// if `epoch` is above the present one (K20).
    #[must_use]
    pub fn epoch_end(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let state = self.lock();
        state
            .epochs
            .end_of(epoch, state.leader_epoch, state.high_watermark)
    }

    /// True once the partition was dropped or the writer fenced: nothing may be answered from it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped.is_some()
    }

    /// Bytes stored: extents and what is not yet in them.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let state = self.lock();
        state.extents.size_bytes() + state.tail.unrolled_bytes()
    }

    /// Calls `waiter` after every change of high watermark, log start or leadership until the guard
    /// is dropped. Register first, then look at the partition, then wait.
    #[must_use]
    pub fn register(self: &Arc<Self>, waiter: Arc<dyn Waiter>) -> WaiterGuard {
        let id = self.lock().waiters.add(waiter);
        WaiterGuard::new(self.clone(), id)
    }

    /// The committed state, as a checkpoint keeps it.
    #[must_use]
    pub fn head(&self) -> PartitionHead {
        let state = self.lock();
        PartitionHead {
            partition: self.id,
            leader_epoch: state.leader_epoch,
            next_offset: state.high_watermark,
            log_start: state.log_start,
            epoch_starts: state.epochs.0.clone(),
            producers: state.producers.snapshot(),
        }
    }

    /// Committed batches in no extent that lie wholly below number `cut` of `writer`'s WAL, or in
    /// WALs of sealed writers, in order.
    #[must_use]
    pub fn roll_candidates(&self, writer: WriterId, cut: u64) -> Vec<TailBatch> {
        let below = |batch: &&TailBatch| {
            let mut spans = batch.spans.iter();
            spans.all(|span| span.position.writer != writer || span.position.number < cut)
        };
        self.lock()
            .tail
            .unrolled()
            .take_while(below)
            .cloned()
            .collect()
    }

    /// Replaces the extents by `extents`, which a published checkpoint names and which hold
    /// everything below `end` that is still wanted. Returns the bytes that are unrolled no more.
    pub fn install_extents(&self, extents: Arc<ExtentList>, end: Offset) -> u64 {
        let mut state = self.lock();
        state.extents = extents;
        let rolled = state.tail.mark_rolled(end);
        self.budget.sub_unrolled(rolled);
        rolled
    }

    /// The present extents.
    #[must_use]
    pub fn extents(&self) -> Arc<ExtentList> {
        self.lock().extents.clone()
    }

    /// When the oldest batch in no extent was committed, Unix milliseconds.
    #[must_use]
    pub fn oldest_unrolled_ms(&self) -> Option<i64> {
        self.lock()
            .tail
            .unrolled()
            .next()
            .map(|batch| batch.committed_ms)
    }

    /// The first batch in no extent.
    pub(crate) fn first_unrolled(&self) -> Option<Offset> {
        let state = self.lock();
        state.tail.unrolled().next().map(|batch| batch.base_offset)
    }

    /// Where it lies.
    pub(crate) fn first_unrolled_spans(&self) -> Vec<WalSpan> {
        let state = self.lock();
        let first = state.tail.unrolled().next();
        first.map_or_else(Vec::new, |batch| batch.spans.clone())
    }

    /// The lowest number of `writer`'s WAL that holds something in no extent, from `from` on.
    pub(crate) fn first_number(&self, writer: WriterId, from: Offset) -> Option<u64> {
        let state = self.lock();
        let batches = state.tail.unrolled();
        let spans = batches
            .filter(|batch| batch.base_offset >= from)
            .flat_map(|batch| &batch.spans);
        let own = spans.filter(|span| span.position.writer == writer);
        own.map(|span| span.position.number).min()
    }

    /// Batches in no extent: the last number of `writer`'s WAL that each needs, none if it needs
    /// another's, and what it stands for.
    pub(crate) fn unrolled_numbers(&self, writer: WriterId) -> Vec<(Option<u64>, u64)> {
        let state = self.lock();
        let number = |batch: &TailBatch| {
            let mut spans = batch.spans.iter().map(|span| span.position);
            spans.try_fold(0, |last, at| {
                (at.writer == writer).then(|| at.number.max(last))
            })
        };
        let batches = state.tail.unrolled();
        batches
            .map(|batch| (number(batch), weight(batch.size_bytes.into())))
            .collect()
    }

    /// What the batches in no extent stand for, as [`TailBudget::unrolled`] counts.
    pub(crate) fn unrolled_weight(&self) -> u64 {
        self.lock().tail.unrolled_weight()
    }

    /// The highest number of `writer`'s WAL that holds something in no extent.
    pub(crate) fn last_unrolled(&self, writer: WriterId) -> Option<u64> {
        let state = self.lock();
        let spans = state.tail.unrolled().flat_map(|batch| &batch.spans);
        let own = spans.filter(|span| span.position.writer == writer);
        own.map(|span| span.position.number).max()
    }

    pub(crate) fn budget(&self) -> &TailBudget {
        &self.budget
    }

    /// The marks, for the checks of the invariants. Coherent only under the lock.
    pub(crate) fn marks(&self) -> Marks {
        Marks {
            log_start: self.log_start().0,
            last_stable: self.last_stable_offset().0,
            high_watermark: self.high_watermark().0,
        }
    }

    /// Notes that waiters are to be woken; true if that was noted before.
    pub(crate) fn mark_touched(&self) -> bool {
        self.touched.swap(true, Ordering::AcqRel)
    }

    /// Wakes the waiters. Runs none of their work.
    pub(crate) fn wake(&self) {
        self.touched.store(false, Ordering::Release);
        let waiters = self.lock().waiters.all();
        waiters.iter().for_each(|waiter| waiter.progressed(self.id));
    }

    /// Lets go of all batches of a partition that was given up.
    pub(crate) fn release_tail(&self) {
        let freed = self.lock().tail.trim(Offset(i64::MAX));
        self.budget.credit(freed);
    }

    /// Gives the partition up: pending batches keep their tickets, readers are woken and told.
    pub(crate) fn stop(&self, why: AppendFailed) {
        let waiters = {
            let mut state = self.lock();
            state.stopped = Some(why);
            state.waiters.all()
        };
        waiters.iter().for_each(|waiter| waiter.progressed(self.id));
    }
}
