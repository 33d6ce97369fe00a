//! Small entries of one latency class that wait for their object.

use std::collections::VecDeque;

use tidemill_runtime::Instant;

use super::queue::Queued;

/// About what a part takes in an object's directory, in bytes.
const PART_BYTES: usize = 144;

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// With the time at which each has to leave; ascending by id.
    entries: VecDeque<(Queued, Instant)>,
    bytes: usize,
    /// An entry waits that has to leave sooner than those before it.
    hurried: Option<Instant>,
    /// When the last PUT of this class, or a more urgent one, started.
    pub last_put: Option<Instant>,
}

impl Lane {
    /// Adds an entry that has to leave at `due`. True if the lane leaves sooner than before.
    pub fn push(&mut self, entry: Queued, due: Instant, target: usize) -> bool {
        let before = self.due();
        self.bytes += entry.bytes;
        self.entries.push_back((entry, due));
        if before.is_some_and(|before| due < before) {
            self.hurry(due);
        }
        self.due() != before || self.is_full(target)
    }

    /// Leaves at `due`, if not sooner.
    pub fn hurry(&mut self, due: Instant) {
        self.hurried = Some(self.hurried.map_or(due, |before| before.min(due)));
    }

    /// When it has to leave; `None` if it is empty.
    pub fn due(&self) -> Option<Instant> {
        let (_, first) = self.entries.front()?;
        Some(self.hurried.map_or(*first, |hurried| hurried.min(*first)))
    }

    /// Bytes of its entries, without what they take in a directory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_full(&self, target: usize) -> bool {
        self.bytes >= target
    }

    /// True if the entry waits here.
    pub fn holds(&self, id: u64) -> bool {
        let (first, last) = (self.entries.front(), self.entries.back());
        let may_hold = first.is_some_and(|(first, _)| first.id <= id)
            && last.is_some_and(|(last, _)| id <= last.id);
        may_hold
            && self
                .entries
                .binary_search_by_key(&id, |(entry, _)| entry.id)
                .is_ok()
    }

    /// Takes entries from the front, up to `target` bytes; `at_least_one` whatever its size. Gives
    /// their bytes, directory included.
    pub fn take(&mut self, target: usize, at_least_one: bool, taken: &mut Vec<Queued>) -> usize {
        let mut total = 0;
        while let Some((first, _)) = self.entries.front() {
            let size = first.bytes + first.parts.len() * PART_BYTES;
            let is_first = at_least_one && total == 0;
            if !is_first && total + size > target {
                break;
            }
            total += size;
            self.bytes -= first.bytes;
            taken.extend(self.entries.pop_front().map(|(entry, _)| entry));
        }
        if self.entries.is_empty() {
            self.hurried = None;
        }
        total
    }

    /// Takes the entries of another lane in, in the order of ids.
    pub fn merge(&mut self, other: Self) {
        let hurried = other.due().into_iter().chain(self.due()).min();
        self.entries.extend(other.entries);
        self.entries
            .make_contiguous()
            .sort_by_key(|(entry, _)| entry.id);
        self.bytes += other.bytes;
        self.hurried = hurried;
    }

    pub fn clear(&mut self) -> Vec<Queued> {
        self.bytes = 0;
        self.hurried = None;
        self.entries.drain(..).map(|(entry, _)| entry).collect()
    }
}
