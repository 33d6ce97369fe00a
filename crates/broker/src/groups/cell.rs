//! A group with its offsets and with whoever waits for its answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tidemill_wire::{ErrorCode, Str};
use tokio::sync::oneshot;

use super::{
    error::GroupError,
    machine::{
        Effect, Group, GroupLimits, GroupState, JoinRefused, Joined, Reply, StoreReason, Synced,
    },
    record::{self, OffsetValue},
    shard::{Change, Shard, Then},
};

/// Offsets by topic and partition.
pub(crate) type Offsets = BTreeMap<Str, BTreeMap<i32, OffsetValue>>;

type JoinAnswer = oneshot::Sender<Result<Joined, JoinRefused>>;
type SyncAnswer = oneshot::Sender<Result<Synced, GroupError>>;

/// A group, always behind its mutex.
pub(crate) struct Cell {
    /// The state machine.
    pub machine: Group,
    /// Durable offsets.
    pub offsets: Offsets,
    /// Since when it has no members, Unix milliseconds.
    pub empty_since_ms: i64,
    /// Offsets on their way to being durable, and how many commits of each.
    pub pending: BTreeMap<(Str, i32), usize>,
    /// When its timer fires, monotonic milliseconds.
    pub scheduled_ms: Option<i64>,
    next_reply: u64,
    joins: BTreeMap<Reply, JoinAnswer>,
    syncs: BTreeMap<Reply, SyncAnswer>,
    me: Weak<Mutex<Self>>,
}

impl Cell {
    /// A group in its cell.
    pub fn new(machine: Group, offsets: Offsets, empty_since_ms: i64) -> Arc<Mutex<Self>> {
        Arc::new_cyclic(|me| {
            Mutex::new(Self {
                machine,
                offsets,
                empty_since_ms,
                pending: BTreeMap::new(),
                scheduled_ms: None,
                next_reply: 0,
                joins: BTreeMap::new(),
                syncs: BTreeMap::new(),
                me: me.clone(),
            })
        })
    }

    fn reply(&mut self) -> Reply {
        self.next_reply += 1;
        Reply(self.next_reply)
    }

    /// Parks a JoinGroup.
    pub fn park_join(&mut self) -> (Reply, oneshot::Receiver<Result<Joined, JoinRefused>>) {
        let reply = self.reply();
        let (answer, answered) = oneshot::channel();
        self.joins.insert(reply, answer);
        (reply, answered)
    }

    /// Parks a SyncGroup.
    pub fn park_sync(&mut self) -> (Reply, oneshot::Receiver<Result<Synced, GroupError>>) {
        let reply = self.reply();
        let (answer, answered) = oneshot::channel();
        self.syncs.insert(reply, answer);
        (reply, answered)
    }

    /// True if it never was anything but a name that somebody asked for.
    pub fn is_void(&self) -> bool {
        self.is_spent() && self.machine.generation() == 0
    }

    /// True if it holds nothing any more.
    pub fn is_spent(&self) -> bool {
        self.machine.state() == GroupState::Empty
            && self.machine.size() == 0
            && self.offsets.is_empty()
            && self.pending.is_empty()
    }

    /// Takes the group off the map if it came to nothing: a refused request leaves no trace.
    /// Whoever got hold of it meanwhile finds it dead and asks again.
    pub fn sweep(&mut self, shard: &Shard) {
        if self.is_void() && self.machine.delete().is_ok() {
            shard.remove(&self.machine.id);
        }
    }

    /// Offsets of which the log has, or soon will have, a record.
    pub fn recorded(&self) -> BTreeSet<(Str, i32)> {
        let durable = self
            .offsets
            .iter()
            .flat_map(|(topic, partitions)| partitions.keys().map(|index| (topic.clone(), *index)));
        durable.chain(self.pending.keys().cloned()).collect()
    }

    /// A commit is on its way.
    pub fn committing(&mut self, items: &[(Str, i32, OffsetValue)]) {
        for (topic, index, _) in items {
            *self.pending.entry((topic.clone(), *index)).or_default() += 1;
        }
    }

    /// Carries out what the state machine asks for, and sets the group's timer.
    pub fn settle(&mut self, shard: &Shard, limits: &GroupLimits) {
        loop {
            let effects = self.machine.take_effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.carry_out(effect, shard, limits);
            }
        }
        shard.timers.set(
            &self.machine.id,
            &mut self.scheduled_ms,
            self.machine.next_deadline_ms(),
        );
    }

    fn carry_out(&mut self, effect: Effect, shard: &Shard, limits: &GroupLimits) {
        match effect {
            // Whoever waited may be gone; the state machine goes on without.
            Effect::Join(reply, result) => {
                if let Some(answer) = self.joins.remove(&reply) {
                    drop(answer.send(result));
                }
            }
            Effect::Sync(reply, result) => {
                if let Some(answer) = self.syncs.remove(&reply) {
                    drop(answer.send(result));
                }
            }
            Effect::Store(reason) => {
                if self.machine.state() == GroupState::Empty {
                    self.empty_since_ms = shard.runtime.clock.now_ms();
                }
                if self.store(&reason, shard).is_err() {
                    self.stored(reason, false, shard, limits);
                }
            }
        }
    }

    fn store(&self, reason: &StoreReason, shard: &Shard) -> Result<(), ErrorCode> {
        let assignments = match reason {
            StoreReason::Assignment { assignments, .. } => Some(assignments),
            StoreReason::StaticMember { .. } | StoreReason::Empty => None,
        };
        let unusable = |_| ErrorCode::UNKNOWN_SERVER_ERROR;
        let now_ms = shard.runtime.clock.now_ms();
        let key = record::group_key(&self.machine.id).map_err(unusable)?;
        let value = record::group_value(&self.machine, assignments, now_ms).map_err(unusable)?;
        let Some(cell) = self.me.upgrade() else {
            return Err(ErrorCode::UNKNOWN_SERVER_ERROR);
        };
        let reason = reason.clone();
        shard.append(
            vec![Change {
                key,
                value: Some(value),
            }],
            Then::Stored { cell, reason },
        )
    }

    /// The record that [`Effect::Store`] asked for is durable, or never will be.
    pub fn stored(
        &mut self,
        reason: StoreReason,
        is_stored: bool,
        shard: &Shard,
        limits: &GroupLimits,
    ) {
        let now_ms = shard.now_ms();
        match reason {
            StoreReason::Assignment {
                generation,
                assignments,
            } => {
                self.machine
                    .assignment_stored(generation, &assignments, is_stored, limits, now_ms);
            }
            StoreReason::StaticMember { reply, joined } => {
                self.machine.static_stored(reply, joined, is_stored);
            }
            StoreReason::Empty => {}
        }
    }

    /// A commit has arrived: its offsets are durable now, or never will be.
    pub fn committed(&mut self, items: Vec<(Str, i32, OffsetValue)>, is_durable: bool) {
        for (topic, index, value) in items {
            let key = (topic, index);
            match self.pending.get_mut(&key) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.pending.remove(&key)),
            }
            if is_durable {
                self.offsets.entry(key.0).or_default().insert(index, value);
            }
        }
    }

    /// Offsets that are gone.
    pub fn forget(&mut self, gone: &[(Str, i32)]) {
        for (topic, index) in gone {
            if let Some(partitions) = self.offsets.get_mut(topic) {
                partitions.remove(index);
            }
        }
        self.offsets.retain(|_, partitions| !partitions.is_empty());
    }
}
