//! Entries that wait for their WAL object, in two lanes.
//!
//! Small entries share objects; bulk has objects of its own, so that a small record never waits for
//! somebody else's megabytes. Entries of one partition leave in the order they came: a small one
//! behind waiting bulk of its partition follows in the bulk lane, and bulk waits for the small ones
//! before it.

use std::{collections::VecDeque, sync::Arc};

use tidemill_runtime::Instant;
use tidemill_wire::{
    batch::ValidBatch,
    ids::{LeaderEpoch, Offset},
};

use super::ticket::Pending;
use crate::{
    error::AppendFailed,
    limits::{Latency, LogLimits},
    partition::{Partition, State},
};

/// About what a part takes in an object's directory, in bytes.
const PART_BYTES: usize = 144;

/// What a waiting part does.
#[derive(Debug)]
pub(crate) enum QueuedBody {
    Records { batch: ValidBatch, base: Offset },
    LogStart(Offset),
}

#[derive(Debug)]
pub(crate) struct QueuedPart {
    pub partition: Arc<Partition>,
    pub epoch: LeaderEpoch,
    pub body: QueuedBody,
}

#[derive(Debug)]
pub(crate) struct Queued {
    /// Counter of the writer, in the order of appends, from 1.
    pub id: u64,
    pub parts: Vec<QueuedPart>,
    pub bytes: usize,
    pub outcome: Arc<Pending>,
    pub appended: Instant,
    /// Not to be sent before the small entries up to this id.
    after_small: u64,
}

impl Queued {
    pub fn new(
        id: u64,
        parts: Vec<QueuedPart>,
        bytes: usize,
        outcome: Arc<Pending>,
        appended: Instant,
    ) -> Self {
        Self {
            id,
            parts,
            bytes,
            outcome,
            appended,
            after_small: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    Draining,
    Stopped(AppendFailed),
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    small: VecDeque<Queued>,
    small_bytes: usize,
    /// When the small entries leave, at the latest.
    small_due: Option<Instant>,
    bulk: VecDeque<Queued>,
    /// The entry whose fragments are being sent; it has left its lane.
    cutting: Option<u64>,
    last_id: u64,
    last_small_put: Option<Instant>,
    phase: Phase,
}

fn is_waiting(lane: &VecDeque<Queued>, newest: u64) -> bool {
    lane.front().is_some_and(|front| front.id <= newest)
}

impl Queue {
    /// Why nothing more is taken, if so.
    pub fn refuses(&self) -> Option<AppendFailed> {
        match self.phase {
            Phase::Open => None,
            Phase::Draining => Some(AppendFailed::Closed),
            Phase::Stopped(why) => Some(why),
        }
    }

    /// Takes nothing more; what waits is due.
    pub fn drain(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
    }

    /// Takes nothing more, sends nothing more.
    pub fn close(&mut self, why: AppendFailed) {
        self.phase = Phase::Stopped(why);
    }

    /// Takes everything out, to be failed.
    pub fn clear(&mut self) -> Vec<Queued> {
        self.small_bytes = 0;
        self.small.drain(..).chain(self.bulk.drain(..)).collect()
    }

    /// The id the next entry gets.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Adds an entry, whose partitions are locked, to its lane. True if the engine may have to send
    /// or to set another alarm.
    pub fn push<'a>(
        &mut self,
        mut entry: Queued,
        states: impl Iterator<Item = &'a mut State>,
        (latency, now): (Latency, Instant),
        limits: &LogLimits,
    ) -> bool {
        let states: Vec<&mut State> = states.collect();
        let behind_bulk = states.iter().any(|state| self.bulk_waits(state.last_bulk));
        if behind_bulk || entry.bytes > limits.bulk_entry_bytes {
            let newest = states
                .iter()
                .map(|state| state.last_small)
                .max()
                .unwrap_or(0);
            if is_waiting(&self.small, newest) {
                entry.after_small = newest;
                self.small_due = Some(now);
            }
            states
                .into_iter()
                .for_each(|state| state.last_bulk = entry.id);
            self.bulk.push_back(entry);
            return true;
        }
        states
            .into_iter()
            .for_each(|state| state.last_small = entry.id);
        self.small_bytes += entry.bytes;
        self.small.push_back(entry);
        let spacing = limits.spacing(latency);
        let due = self
            .last_small_put
            .map_or(now, |last| now.max(last + spacing));
        let earlier = self.small_due.is_none_or(|before| due < before);
        if earlier {
            self.small_due = Some(due);
        }
        earlier || self.small_bytes >= limits.object_target_bytes
    }

    fn bulk_waits(&self, newest: u64) -> bool {
        self.cutting.is_some_and(|cutting| cutting <= newest) || is_waiting(&self.bulk, newest)
    }

    /// Notes which entry is being cut; what follows it in its partitions waits.
    pub fn set_cutting(&mut self, entry: Option<u64>) {
        self.cutting = entry;
    }

    /// When the small entries are to be sent; `None` if there are none.
    pub fn small_due(&self, now: Instant, limits: &LogLimits) -> Option<Instant> {
        let at_once =
            self.small_bytes >= limits.object_target_bytes || self.phase == Phase::Draining;
        let due = self.small_due.filter(|_| !self.small.is_empty())?;
        Some(if at_once { now } else { due })
    }

    /// Takes small entries for one object.
    pub fn take_small(&mut self, now: Instant, limits: &LogLimits) -> Vec<Queued> {
        let taken = take(&mut self.small, limits.object_target_bytes);
        self.small_bytes -= taken.iter().map(|entry| entry.bytes).sum::<usize>();
        self.last_small_put = Some(now);
        if self.small.is_empty() {
            self.small_due = None;
        }
        taken
    }

    /// True if the first bulk entry may be sent.
    pub fn bulk_ready(&self) -> bool {
        let Some(first) = self.bulk.front() else {
            return false;
        };
        !is_waiting(&self.small, first.after_small)
    }

    /// Takes bulk entries for one object, or a single one that has to be cut.
    pub fn take_bulk(&mut self, limits: &LogLimits) -> Vec<Queued> {
        let after_small = self.small.front().map_or(u64::MAX, |front| front.id);
        let ready = self
            .bulk
            .iter()
            .take_while(|entry| entry.after_small < after_small);
        let mut bytes = 0;
        let fit = ready.take_while(|entry| {
            bytes += entry.bytes;
            bytes <= limits.fragment_bytes
        });
        let count = fit.count().max(1).min(self.bulk.len());
        self.bulk.drain(..count).collect()
    }
}

/// Entries from the front up to `target` bytes, at least one.
fn take(lane: &mut VecDeque<Queued>, target: usize) -> Vec<Queued> {
    let mut bytes = 0;
    let fit = lane.iter().take_while(|entry| {
        let first = bytes == 0;
        bytes += entry.bytes + entry.parts.len() * PART_BYTES;
        first || bytes <= target
    });
    let count = fit.count();
    lane.drain(..count).collect()
}
