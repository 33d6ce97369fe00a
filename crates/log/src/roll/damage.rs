//! Partitions that a round leaves out because their part of the WAL is damaged or missing.
//!
//! All others roll on. What is damaged is never rewritten or trimmed: it stays for repair, and with
//! it all of the WAL from there on, until the partition's log start has passed it, its topic is
//! deleted, or it can be read after all.

use std::{sync::Arc, time::Duration};

use tidemill_runtime::Instant;
use tidemill_wire::ids::{Offset, PartitionId};

use super::{Roller, round::Share};
use crate::{partition::Partition, read::ReadError};

/// Pause before a partition that was left out is read once more: it may have been repaired.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// A partition that the last round left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftOut {
    /// From here on nothing is rolled.
    first: Offset,
    /// Not read again before, unless its first batch has gone.
    retry: Instant,
}

/// True if the fault is the object's, not the store's: no other partition need wait for it.
pub(super) fn is_damage(error: &ReadError) -> bool {
    matches!(error, ReadError::Corrupt { .. }) || error.is_missing()
}

impl Roller {
    /// Leaves a partition out from the batch at `first` on.
    pub(super) fn leave_out(&mut self, share: &Share, first: Offset, error: &ReadError) {
        let (partition, pause) = (&share.partition, RETRY_AFTER);
        let id = partition.id();
        tracing::error!(
            partition = %id, offset = %first, %error, ?pause,
            "partition is not rolled: its WAL is damaged, and kept from there on"
        );
        // What a sealed writer left is taken over as a whole or not at all.
        let first = match self.is_inherited(partition) {
            true => share
                .batches
                .first()
                .map_or(first, |batch| batch.base_offset),
            false => first,
        };
        let retry = self.now() + RETRY_AFTER;
        self.left_out.insert(id, LeftOut { first, retry });
        self.note_left_out();
    }

    /// A partition's share could be read.
    pub(super) fn take_in(&mut self, id: PartitionId) {
        if self.left_out.remove(&id).is_some() {
            tracing::info!(partition = %id, "partition is rolled again");
            self.note_left_out();
        }
    }

    /// Forgets those that were deleted, or whose damaged batches have passed out of the log.
    pub(super) fn review_left_out(&mut self) {
        let log = self.log.clone();
        self.left_out.retain(|id, left_out| {
            let partition = log.partition(*id);
            partition.is_some_and(|partition| partition.first_unrolled() == Some(left_out.first))
        });
        self.note_left_out();
    }

    fn note_left_out(&self) {
        self.log.note_left_out(self.left_out.len() as u64);
    }

    /// True if a round has left the partition out and does not look at it yet.
    pub(super) fn is_left_out(&self, partition: &Partition) -> bool {
        self.left_out.get(&partition.id()).is_some_and(|left_out| {
            self.now() < left_out.retry && partition.first_unrolled() == Some(left_out.first)
        })
    }

    /// True if the partition was left out, with what a sealed writer left of it.
    pub(super) fn is_held_back(&self, partition: &Partition) -> bool {
        self.left_out.contains_key(&partition.id()) && self.is_inherited(partition)
    }

    /// True if batches of the partition lie in a sealed writer's WAL alone. Outside of a round that
    /// is only so while it is left out: no checkpoint of this writer may speak for it then, and
    /// nothing of the sealed writers may go.
    pub(super) fn is_inherited(&self, partition: &Partition) -> bool {
        let spans = partition.first_unrolled_spans();
        let own = self.log.writer();
        spans.iter().any(|span| span.position.writer != own)
    }

    /// The largest clean cut up to `cut` below which nothing is needed by a partition that is left
    /// out.
    pub(super) fn capped(&self, cut: u64) -> u64 {
        let needs = self.left_out.iter().filter_map(|(id, left_out)| {
            let partition = self.log.partition(*id)?;
            match self.is_inherited(&partition) {
                // Its replay begins before this writer.
                true => Some(self.replay_from),
                false => partition.first_number(self.log.writer(), left_out.first),
            }
        });
        match needs.min() {
            // Entries of others may straddle it.
            Some(need) if need < cut => self.log.clean_cut(need).max(self.replay_from),
            _ => cut,
        }
    }

    /// Unrolled bytes that a round would move.
    pub(super) fn bytes_to_roll(&self) -> u64 {
        let left_out = self
            .left_out
            .keys()
            .filter_map(|id| self.log.partition(*id));
        let waiting = left_out.filter(|partition| self.is_left_out(partition));
        let waiting: u64 = waiting.map(|partition| partition.unrolled_weight()).sum();
        self.log.unrolled_bytes().saturating_sub(waiting)
    }

    /// When the oldest batch that a round would move was committed, Unix milliseconds.
    pub(super) fn oldest_to_roll_ms(&self) -> Option<i64> {
        let partitions: Vec<Arc<Partition>> = self.log.partitions();
        let rolled = partitions.iter().filter(|p| !self.is_left_out(p));
        rolled.filter_map(|p| p.oldest_unrolled_ms()).min()
    }
}
