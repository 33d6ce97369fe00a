//! How much a round may move on a disk that is nearly full.
//!
//! What a round moves is there twice until the WAL is trimmed. Where that does not fit, it moves
//! what does, from the front of the WAL, or nothing: then it says what is gone all the same, as
//! that is what makes room.

use tidemill_store::StoreErrorKind;

use super::{RollError, Roller};

/// What a round is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Everything below this WAL number is moved, or needed by nobody.
    pub(super) cut: u64,
    /// False if nothing fits.
    pub(super) moves: bool,
}

impl Roller {
    /// Decides how much is moved.
    pub(super) async fn plan(&mut self) -> Plan {
        // Before anything else: whatever lies below it belongs to partitions that exist by now, and
        // heads taken from here on include it.
        let cut = self.log.roll_cut();
        let all = Plan { cut, moves: true };
        let (mut room, wanted) = (self.log.room().await, self.bytes_to_roll());
        if self.is_full() {
            room = Some(0);
        }
        let plan = match room {
            Some(room) if room < wanted => self.plan_within(room, cut),
            _ => all,
        };
        let is_cramped = !plan.moves && wanted > 0;
        if is_cramped && !self.is_cramped {
            tracing::warn!(
                room,
                wanted,
                "no space to roll: delete topics or records, or make room on the disk"
            );
        }
        self.is_cramped = is_cramped;
        plan
    }

    fn plan_within(&self, room: u64, cut: u64) -> Plan {
        let mut inherited = 0;
        let mut own = Vec::new();
        for partition in self.log.partitions() {
            if self.is_left_out(&partition) {
                continue;
            }
            for (number, weight) in partition.unrolled_numbers(self.log.writer()) {
                match number {
                    Some(number) => own.push((number, weight)),
                    None => inherited += weight,
                }
            }
        }
        // What was taken over goes as a whole, or its replay begins before this writer.
        if inherited > room {
            let cut = self.replay_from;
            return Plan { cut, moves: false };
        }
        own.sort_unstable();
        let mut moved = inherited;
        let too_much = own.iter().find(|(_, weight)| {
            moved += weight;
            moved > room
        });
        let cut = too_much.map_or(cut, |(number, _)| self.log.clean_cut(cut.min(*number)));
        let moves = inherited > 0 || own.first().is_some_and(|(number, _)| *number < cut);
        Plan { cut, moves }
    }

    /// True if the store has said that it is full, and what was given up then is not gone yet.
    fn is_full(&mut self) -> bool {
        let is_over = |until| self.now() >= until && self.garbage.is_empty();
        if self.full_until.is_some_and(is_over) {
            self.full_until = None;
        }
        self.full_until.is_some()
    }

    /// Bytes from which on a run gets a segment of its own. The smaller the disk, the fewer: what
    /// shares an object with other topics is not free when its own is deleted.
    pub(super) fn segment_bytes_min(&self) -> u64 {
        const FLOOR_SHARE: u64 = 8;
        let wanted = self.options.segment_bytes_min;
        match self.log.wal().space_floor() {
            0 => wanted,
            floor => wanted.min(floor / FLOOR_SHARE),
        }
    }

    /// True if there is space for `bytes` of a merge beside what rounds need.
    pub(super) async fn has_room_to_merge(&mut self, bytes: u64) -> bool {
        if self.is_full() {
            return false;
        }
        let room = self.log.room().await;
        room.is_none_or(|room| room >= bytes.saturating_add(self.bytes_to_roll()))
    }

    /// Remembers that the store has no space, whatever it says: what was written goes first.
    pub(super) fn noting_full<T>(&mut self, done: Result<T, RollError>) -> Result<T, RollError> {
        if let Err(RollError::Store(error)) = &done
            && error.kind == StoreErrorKind::Full
        {
            self.full_until = Some(self.now() + 2 * self.options.grace);
            self.is_cramped = true;
        }
        done
    }

    /// True if there is enough for a round, and space as far as is known.
    pub(super) fn is_round_full(&self) -> bool {
        !self.is_cramped && self.bytes_to_roll() >= self.options.bytes
    }

    /// True if a round would make room that is missing.
    pub(super) fn is_round_wanted_for_space(&self) -> bool {
        !self.is_cramped && self.is_worth_its_space()
    }

    /// True if a round may make room, though the last one has found no space.
    pub(super) fn may_make_room(&self) -> bool {
        let is_full = self.bytes_to_roll() >= self.options.bytes;
        is_full || self.is_worth_its_space() || (self.is_cramped && self.has_unsaid_garbage())
    }

    fn is_worth_its_space(&self) -> bool {
        let wal = self.log.wal();
        wal.is_space_wanted() && self.bytes_to_roll() >= wal.worth_a_round().max(1)
    }

    /// True if objects were given up and no checkpoint says so yet.
    pub(super) fn has_unsaid_garbage(&self) -> bool {
        self.garbage.values().any(Option::is_none)
    }
}
