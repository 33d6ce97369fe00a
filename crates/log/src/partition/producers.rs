//! What a partition knows of its idempotent producers (K25-K27).
//!
//! Two views: *pending* batches, appended and not yet durable, validate what comes next;
//! *committed* ones answer duplicates at once. A batch moves from one to the other when it commits,
//! and nowhere else (I8).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use tidemill_wire::{
    batch::BatchHeader,
    ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId},
};

use crate::{
    types::{ProducerBatch, ProducerState},
    wal::ticket::Pending,
};

/// Batches remembered per producer (K25).
pub const BATCHES_PER_PRODUCER: usize = 5;

/// A batch that is not yet durable.
#[derive(Debug)]
struct PendingBatch {
    epoch: ProducerEpoch,
    batch: ProducerBatch,
    outcome: Arc<Pending>,
}

/// What is to be done with a batch.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is new and follows the last one.
    New,
    /// It waits for its twin (R5).
    DuplicatePending(ProducerBatch, Arc<Pending>),
    /// It has long been stored.
    DuplicateCommitted(ProducerBatch),
    /// Its sequence number does not follow.
    OutOfOrder {
        /// The sequence number expected.
        expected: i32,
    },
    /// Its epoch is stale.
    StaleEpoch {
        /// The newest epoch.
        current: ProducerEpoch,
    },
}

/// Both views of all producers of one partition.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    committed: BTreeMap<ProducerId, ProducerState>,
    pending: BTreeMap<ProducerId, VecDeque<PendingBatch>>,
    /// First offsets of open transactions.
    open: BTreeSet<Offset>,
}

fn next_sequence(last: i32) -> i32 {
    last.wrapping_add(1) & i32::MAX
}

fn batch_of(header: &BatchHeader) -> ProducerBatch {
    ProducerBatch {
        first_sequence: header.base_sequence,
        last_sequence: header.last_sequence(),
        base_offset: header.base_offset,
        last_offset: header.last_offset(),
        timestamp: header.max_timestamp,
    }
}

fn same_sequences(batch: &ProducerBatch, header: &BatchHeader) -> bool {
    batch.first_sequence == header.base_sequence && batch.last_sequence == header.last_sequence()
}

impl Producers {
    /// The committed view as a checkpoint held it.
    pub fn restored(producers: Vec<ProducerState>) -> Self {
        let open = producers
            .iter()
            .filter_map(|state| state.open_transaction)
            .collect();
        let committed = producers
            .into_iter()
            .map(|state| (state.producer_id, state))
            .collect();
        Self {
            committed,
            pending: BTreeMap::new(),
            open,
        }
    }

    /// Judges a batch by the pending view. `oldest_ms`: producers that wrote last before this are
    /// forgotten.
    pub fn judge(&self, header: &BatchHeader, oldest_ms: i64) -> Verdict {
        let id = header.producer_id;
        let known = self.committed.get(&id);
        let queue = self.pending.get(&id);
        let last_pending = queue.and_then(VecDeque::back);
        let Some(current) = last_pending.map(|p| p.epoch).or(known.map(|k| k.epoch)) else {
            // K26: without any state a producer may start at any sequence number.
            return Verdict::New;
        };
        if header.producer_epoch < current {
            return Verdict::StaleEpoch { current };
        }
        if last_pending.is_none() && known.is_some_and(|k| k.last_timestamp < oldest_ms) {
            return Verdict::New;
        }
        if header.producer_epoch > current {
            if header.base_sequence == 0 {
                return Verdict::New;
            }
            return Verdict::OutOfOrder { expected: 0 };
        }
        let twin = queue
            .into_iter()
            .flatten()
            .find(|pending| pending.epoch == current && same_sequences(&pending.batch, header));
        if let Some(twin) = twin {
            return Verdict::DuplicatePending(twin.batch, twin.outcome.clone());
        }
        let stored = known.filter(|known| known.epoch == current);
        let twin = stored.and_then(|k| k.batches.iter().find(|b| same_sequences(b, header)));
        if let Some(twin) = twin {
            return Verdict::DuplicateCommitted(*twin);
        }
        let last = last_pending
            .map(|pending| pending.batch.last_sequence)
            .or(stored
                .and_then(|k| k.batches.last())
                .map(|batch| batch.last_sequence));
        let expected = last.map_or(0, next_sequence);
        if header.base_sequence == expected {
            Verdict::New
        } else {
            Verdict::OutOfOrder { expected }
        }
    }

    /// Takes a batch, with its offsets assigned, into the pending view.
    pub fn push_pending(&mut self, header: &BatchHeader, outcome: Arc<Pending>) {
        self.pending
            .entry(header.producer_id)
            .or_default()
            .push_back(PendingBatch {
                epoch: header.producer_epoch,
                batch: batch_of(header),
                outcome,
            });
    }

    /// Moves the oldest pending batch of the producer, which must be this one, to the committed
    /// view.
    pub fn commit(&mut self, header: &BatchHeader, written_ms: i64) {
        // Markers have no sequence number and are never pending.
        let queue = self.pending.get_mut(&header.producer_id);
        if let Some(queue) = queue.filter(|_| !header.attributes.is_control()) {
            let first = queue.pop_front();
            debug_assert!(
                first.is_some_and(|first| first.batch.base_offset == header.base_offset),
                "a producer's batches commit in order"
            );
            if queue.is_empty() {
                self.pending.remove(&header.producer_id);
            }
        }
        self.apply(header, written_ms);
    }

    /// Applies a durable batch to the committed view.
    pub fn apply(&mut self, header: &BatchHeader, written_ms: i64) {
        let fresh = || ProducerState {
            producer_id: header.producer_id,
            epoch: header.producer_epoch,
            last_timestamp: written_ms,
            batches: Vec::with_capacity(BATCHES_PER_PRODUCER),
            open_transaction: None,
            coordinator_epoch: -1,
        };
        let state = self
            .committed
            .entry(header.producer_id)
            .or_insert_with(fresh);
        if state.epoch != header.producer_epoch {
            state.epoch = header.producer_epoch;
            state.batches.clear();
        }
        state.last_timestamp = state.last_timestamp.max(written_ms);
        if header.attributes.is_control() {
            if let Some(first) = state.open_transaction.take() {
                self.open.remove(&first);
            }
            return;
        }
        if header.attributes.is_transactional() && state.open_transaction.is_none() {
            state.open_transaction = Some(header.base_offset);
            self.open.insert(header.base_offset);
        }
        if state.batches.len() == BATCHES_PER_PRODUCER {
            state.batches.remove(0);
        }
        state.batches.push(batch_of(header));
    }

    /// Forgets producers that wrote last before `oldest_ms`, open transactions apart.
    pub fn expire(&mut self, oldest_ms: i64) {
        let pending = &self.pending;
        self.committed.retain(|id, state| {
            state.last_timestamp >= oldest_ms
                || state.open_transaction.is_some()
                || pending.contains_key(id)
        });
    }

    /// First offset of the oldest open transaction.
    pub fn first_open(&self) -> Option<Offset> {
        self.open.first().copied()
    }

    /// The committed view, ordered by id.
    pub fn snapshot(&self) -> Vec<ProducerState> {
        self.committed.values().cloned().collect()
    }
}

/// The start offset of each epoch that has data.
#[derive(Debug, Default)]
pub(crate) struct Epochs(pub Vec<(LeaderEpoch, Offset)>);

impl Epochs {
    /// Notes a batch of `epoch` at `base`.
    pub fn note(&mut self, epoch: LeaderEpoch, base: Offset) {
        if self.0.last().is_none_or(|(last, _)| *last < epoch) {
            self.0.push((epoch, base));
        }
    }

    /// Forgets what lies wholly below the log start.
    pub fn trim(&mut self, log_start: Offset) {
        let passed = self
            .0
            .iter()
            .skip(1)
            .take_while(|(_, start)| *start <= log_start)
            .count();
        self.0.drain(..passed);
        if let Some(first) = self.0.first_mut() {
            first.1 = first.1.max(log_start);
        }
    }

    /// Kafka's OffsetForLeaderEpoch (K20): the largest known epoch at or below `asked` and where it
    /// ends; `current` is the leader's epoch, `next` the high watermark.
    pub fn end_of(
        &self,
        asked: LeaderEpoch,
        current: LeaderEpoch,
        next: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if asked > current || asked.0 < 0 {
            return None;
        }
        if asked == current {
            return Some((current, next));
        }
        // The current epoch begins at the high watermark as long as it has no data.
        let higher = self
            .0
            .iter()
            .find(|(epoch, _)| *epoch > asked)
            .map_or(next, |(_, o)| *o);
        let floor = self.0.iter().rev().find(|(epoch, _)| *epoch <= asked);
        Some((floor.map_or(asked, |(epoch, _)| *epoch), higher))
    }
}
