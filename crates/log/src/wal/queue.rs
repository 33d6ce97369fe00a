//! Entries that wait for their WAL object.
//!
//! Small entries share objects: a lane for each latency class, of which the more urgent decide when
//! a PUT starts and the cheaper ride along as far as they hardly lengthen it. Bulk has objects of
//! its own, so that a small record never waits for somebody else's megabytes. Entries of one
//! partition leave in the order they came: a small one behind waiting bulk of its partition follows
//! in the bulk lane, bulk waits for the small ones before it, and a small one behind a waiting one
//! of another class follows it there.

use std::{collections::VecDeque, sync::Arc};

use tidemill_runtime::Instant;
use tidemill_wire::{
    batch::ValidBatch,
    ids::{LeaderEpoch, Offset},
};

use super::{lane::Lane, ticket::Pending, tuning::Tuning};
use crate::{
    error::AppendFailed,
    limits::{Latency, LogLimits},
    partition::{Partition, State},
};

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
    /// Not to be sent before these small entries.
    after_small: Vec<u64>,
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
            after_small: Vec::new(),
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

#[derive(Debug)]
pub(crate) struct Queue {
    /// Small entries, by class.
    lanes: [Lane; 3],
    bulk: VecDeque<Queued>,
    /// The entry whose fragments are being sent; it has left its lane.
    cutting: Option<u64>,
    last_id: u64,
    phase: Phase,
    pub tuning: Tuning,
}

impl Queue {
    pub fn new(limits: &LogLimits) -> Self {
        Self {
            lanes: Default::default(),
            bulk: VecDeque::new(),
            cutting: None,
            last_id: 0,
            phase: Phase::default(),
            tuning: Tuning::unmeasured(limits),
        }
    }

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
        let small = self.lanes.iter_mut().flat_map(Lane::clear);
        small.chain(self.bulk.drain(..)).collect()
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
        // Where the small entries before it wait.
        let mut before = [false; Latency::ALL.len()];
        for state in &states {
            if let Some(lane) = self.lane_of(state.last_small) {
                before[lane] = true;
                entry.after_small.push(state.last_small);
            }
        }
        if behind_bulk || entry.bytes > limits.bulk_entry_bytes {
            for (lane, _) in self.lanes.iter_mut().zip(before).filter(|(_, is)| *is) {
                lane.hurry(now);
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
        let class = latency as usize;
        let due = self.tuning.due(latency, now, self.lanes[class].last_put);
        let lane = self.join(class, before);
        let full = self.tuning.object_bytes(Latency::ALL[lane]);
        self.lanes[lane].push(entry, due, full.min(limits.gather_bytes))
    }

    /// The lane in which a small entry waits.
    fn lane_of(&self, id: u64) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.holds(id))
    }

    /// The lane of an entry of this class behind entries in the lanes `before`. A class changed
    /// while entries wait, or an entry of several partitions, may find more than one: they join.
    fn join(&mut self, class: usize, before: [bool; Latency::ALL.len()]) -> usize {
        let mut waiting = (0..before.len()).filter(|lane| before[*lane]);
        let Some(lane) = waiting.next() else {
            return class;
        };
        for other in waiting {
            let moved = std::mem::take(&mut self.lanes[other]);
            self.lanes[other].last_put = moved.last_put;
            self.lanes[lane].merge(moved);
        }
        lane
    }

    fn bulk_waits(&self, newest: u64) -> bool {
        let first = self.bulk.front().map(|first| first.id);
        first.into_iter().chain(self.cutting).any(|id| id <= newest)
    }

    /// Notes which entry is being cut; what follows it in its partitions waits.
    pub fn set_cutting(&mut self, entry: Option<u64>) {
        self.cutting = entry;
    }

    /// When small entries are to be sent; `None` if there are none.
    pub fn small_due(&self, now: Instant) -> Option<Instant> {
        let all = 0..self.lanes.len();
        all.filter_map(|class| self.due(class, now)).min()
    }

    fn due(&self, class: usize, now: Instant) -> Option<Instant> {
        let lane = &self.lanes[class];
        let full = self.tuning.object_bytes(Latency::ALL[class]);
        let at_once = lane.is_full(full) || self.phase == Phase::Draining;
        let due = lane.due()?;
        Some(if at_once { now } else { due })
    }

    /// Bytes of small entries that have to leave now.
    pub fn due_bytes(&self, now: Instant) -> usize {
        let due = (0..self.lanes.len()).filter(|class| self.is_due(*class, now));
        due.map(|class| self.lanes[class].bytes()).sum()
    }

    fn is_due(&self, class: usize, now: Instant) -> bool {
        self.due(class, now).is_some_and(|due| due <= now)
    }

    /// Takes small entries for one object: those of the most urgent class that is due, and as many
    /// cheaper ones as hardly lengthen the PUT.
    pub fn take_small(&mut self, now: Instant) -> Vec<Queued> {
        let mut classes = 0..self.lanes.len();
        let Some(class) = classes.find(|class| self.is_due(*class, now)) else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        let full = self.tuning.object_bytes(Latency::ALL[class]);
        let bytes = self.lanes[class].take(full, true, &mut taken);
        let mut room = self.tuning.ride_bytes(bytes);
        for lane in &mut self.lanes[class + 1..] {
            room -= lane.take(room, false, &mut taken);
        }
        // In the order of appends, as if there were no classes.
        taken.sort_unstable_by_key(|entry| entry.id);
        // The cheaper classes count it as theirs: they had their chance.
        for lane in &mut self.lanes[class..] {
            lane.last_put = Some(now);
        }
        taken
    }

    /// True if the first bulk entry may be sent.
    pub fn bulk_ready(&self) -> bool {
        self.bulk.front().is_some_and(|first| self.is_ready(first))
    }

    fn is_ready(&self, entry: &Queued) -> bool {
        let mut before = entry.after_small.iter();
        before.all(|id| self.lane_of(*id).is_none())
    }

    /// Takes bulk entries for one object, or a single one that has to be cut.
    pub fn take_bulk(&mut self) -> Vec<Queued> {
        let ready = self.bulk.iter().take_while(|entry| self.is_ready(entry));
        let mut bytes = 0;
        let fit = ready.take_while(|entry| {
            bytes += entry.bytes;
            bytes <= self.tuning.fragment_bytes()
        });
        let count = fit.count().max(1).min(self.bulk.len());
        self.bulk.drain(..count).collect()
    }
}
