//! The newest batches of a partition, and the memory they may take over all partitions.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tidemill_wire::ids::Offset;

use super::Partition;
use crate::types::TailBatch;

/// What a batch in a tail takes beside its bytes: its entry, its place in the WAL, its head.
/// Counted so that batches of one small record each do not take many times what is allowed (L2).
const BATCH_OVERHEAD_BYTES: u64 = 256;

/// Bytes of memory that a batch of `size_bytes` stands for.
pub(crate) fn weight(size_bytes: u64) -> u64 {
    size_bytes + BATCH_OVERHEAD_BYTES
}

/// What was let go of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Weight of batches that were in no extent, as [`TailBudget::unrolled`] counts.
    pub unrolled: u64,
    /// Weight of batches whose bytes were in memory, as [`TailBudget::bytes`] counts.
    pub loaded: u64,
    /// How many those were.
    pub loaded_batches: usize,
}

/// Committed batches in offset order: first those rolled already, kept while their bytes are in
/// memory; then those that are in no extent.
#[derive(Debug, Default)]
pub struct Tail {
    batches: VecDeque<TailBatch>,
    /// Batches below this are in extents.
    rolled_below: Offset,
    unrolled_bytes: u64,
    unrolled_batches: u64,
}

impl Tail {
    /// A tail whose extents end at `rolled_below`.
    #[must_use]
    pub fn new(rolled_below: Offset) -> Self {
        Self {
            batches: VecDeque::new(),
            rolled_below,
            unrolled_bytes: 0,
            unrolled_batches: 0,
        }
    }

    /// Adds a committed batch; offsets grow.
    pub fn push(&mut self, batch: TailBatch) {
        debug_assert!(
            self.batches
                .back()
                .is_none_or(|last| last.last_offset < batch.base_offset),
            "batches come in offset order"
        );
        self.unrolled_bytes += u64::from(batch.size_bytes);
        self.unrolled_batches += 1;
        self.batches.push_back(batch);
    }

    /// Batches from the one that holds `offset`, or the first after it. The caller looks at
    /// [`Tail::start`] first: below it there may be data in extents.
    pub fn from(&self, offset: Offset) -> impl Iterator<Item = &TailBatch> {
        let first = self
            .batches
            .partition_point(|batch| batch.last_offset < offset);
        self.batches.range(first..)
    }

    /// First offset of the tail in memory, rolled batches included.
    #[must_use]
    pub fn start(&self) -> Option<Offset> {
        self.batches.front().map(|batch| batch.base_offset)
    }

    /// Where the extents end.
    #[must_use]
    pub fn rolled_below(&self) -> Offset {
        self.rolled_below
    }

    /// Batches that are in no extent yet.
    pub fn unrolled(&self) -> impl Iterator<Item = &TailBatch> {
        self.from(self.rolled_below)
    }

    /// Bytes of batches that are in no extent yet.
    #[must_use]
    pub fn unrolled_bytes(&self) -> u64 {
        self.unrolled_bytes
    }

    /// What they stand for, as [`TailBudget::unrolled`] counts.
    #[must_use]
    pub fn unrolled_weight(&self) -> u64 {
        self.unrolled_bytes + self.unrolled_batches * BATCH_OVERHEAD_BYTES
    }

    fn forget(&mut self, bytes: u64, batches: u64) -> u64 {
        self.unrolled_bytes -= bytes;
        self.unrolled_batches -= batches;
        bytes + batches * BATCH_OVERHEAD_BYTES
    }

    /// Notes that everything below `end` is in extents; returns the weight that is unrolled no
    /// more.
    pub fn mark_rolled(&mut self, end: Offset) -> u64 {
        if end <= self.rolled_below {
            return 0;
        }
        let rolled = self.unrolled().take_while(|batch| batch.last_offset < end);
        let (bytes, batches) = rolled.fold((0, 0), |(bytes, batches), batch| {
            (bytes + u64::from(batch.size_bytes), batches + 1)
        });
        self.rolled_below = end;
        self.drop_hollow();
        self.forget(bytes, batches)
    }

    /// Drops batches below the log start.
    pub fn trim(&mut self, log_start: Offset) -> Freed {
        let (mut bytes, mut batches) = (0, 0);
        let mut freed = Freed::default();
        while let Some(first) = self.batches.front()
            && first.last_offset < log_start
        {
            if first.last_offset >= self.rolled_below {
                bytes += u64::from(first.size_bytes);
                batches += 1;
            }
            if first.data.is_some() {
                freed.loaded += weight(first.size_bytes.into());
                freed.loaded_batches += 1;
            }
            self.batches.pop_front();
        }
        freed.unrolled = self.forget(bytes, batches);
        freed
    }

    /// Whether the bytes of the batch at `base` are in memory.
    fn holds(&self, base: Offset) -> bool {
        let mut from = self.from(base);
        from.next()
            .is_some_and(|batch| batch.base_offset == base && batch.data.is_some())
    }

    /// Drops the bytes of the batch at `base`; returns the weight of what was still there.
    pub fn evict(&mut self, base: Offset) -> u64 {
        let mut freed = 0;
        let at = self
            .batches
            .partition_point(|batch| batch.base_offset < base);
        if let Some(batch) = self.batches.get_mut(at)
            && batch.base_offset == base
            && batch.data.take().is_some()
        {
            freed = weight(batch.size_bytes.into());
        }
        self.drop_hollow();
        freed
    }

    /// A rolled batch without bytes is of no use: its extent has them.
    fn drop_hollow(&mut self) {
        while let Some(first) = self.batches.front()
            && first.data.is_none()
            && first.last_offset < self.rolled_below
        {
            self.batches.pop_front();
        }
    }
}

#[derive(Debug)]
struct Charge {
    partition: Weak<Partition>,
    base: Offset,
}

#[derive(Debug, Default)]
struct Charges {
    queue: VecDeque<Charge>,
    /// Below 0 for a moment if a batch is let go of before it is charged.
    bytes: i64,
    /// Entries of the queue whose batch was let go of already, at least.
    dead: usize,
}

/// Dead entries in the queue that are not worth looking for: some 100 KiB.
const DEAD_MIN: usize = 4_096;

/// The memory of all tails: oldest committed batches go first. What is evicted before it is rolled
/// is read from the WAL again.
#[derive(Debug)]
pub struct TailBudget {
    limit: u64,
    charges: Mutex<Charges>,
    /// Weight of what is in no extent, over all partitions.
    unrolled: AtomicU64,
}

impl TailBudget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            charges: Mutex::new(Charges::default()),
            unrolled: AtomicU64::new(0),
        }
    }

    pub(crate) fn add_unrolled(&self, bytes: u64) {
        self.unrolled.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(crate) fn sub_unrolled(&self, bytes: u64) {
        self.unrolled.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Committed bytes in no extent, over all partitions, with what each batch takes beside its
    /// bytes.
    #[must_use]
    pub fn unrolled(&self) -> u64 {
        self.unrolled.load(Ordering::Acquire)
    }

    /// Charges a batch that was just put into its tail.
    pub(crate) fn charge(&self, partition: &Arc<Partition>, base: Offset, bytes: u64) {
        let mut charges = self.charges.lock();
        charges.bytes += weight(bytes).cast_signed();
        charges.queue.push_back(Charge {
            partition: Arc::downgrade(partition),
            base,
        });
    }

    /// Takes back what stands for batches that were let go of.
    pub(crate) fn credit(&self, freed: Freed) {
        self.sub_unrolled(freed.unrolled);
        let mut charges = self.charges.lock();
        charges.bytes -= freed.loaded.cast_signed();
        charges.dead += freed.loaded_batches;
    }

    /// Evicts until the limit is kept. No partition's lock may be held.
    pub(crate) fn settle(&self) {
        while let Some(charge) = self.pop_above_limit() {
            let partition = charge.partition.upgrade();
            let freed = partition.map_or(0, |partition| partition.lock().tail.evict(charge.base));
            let mut charges = self.charges.lock();
            charges.bytes -= freed.cast_signed();
            if freed == 0 {
                charges.dead = charges.dead.saturating_sub(1);
            }
        }
        self.sweep();
    }

    /// Drops dead entries once they are the most: topics that come and go must not pile them up.
    fn sweep(&self) {
        let queue = {
            let mut charges = self.charges.lock();
            if charges.dead < DEAD_MIN || charges.dead < charges.queue.len() / 2 {
                return;
            }
            charges.dead = 0;
            std::mem::take(&mut charges.queue)
        };
        // A partition's lock is never taken under this one.
        let is_live = |charge: &Charge| {
            let partition = charge.partition.upgrade();
            partition.is_some_and(|partition| partition.lock().tail.holds(charge.base))
        };
        let mut live: VecDeque<_> = queue.into_iter().filter(is_live).collect();
        let mut charges = self.charges.lock();
        live.append(&mut charges.queue);
        charges.queue = live;
    }

    fn pop_above_limit(&self) -> Option<Charge> {
        let mut charges = self.charges.lock();
        if charges.bytes <= i64::try_from(self.limit).unwrap_or(i64::MAX) {
            return None;
        }
        charges.queue.pop_front()
    }

    /// Bytes charged now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.charges.lock().bytes).unwrap_or(0)
    }
}
