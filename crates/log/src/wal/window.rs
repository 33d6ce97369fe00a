//! The numbers in flight, what they hold, and what may be committed.

use std::collections::VecDeque;

use tidemill_invariants::{
    Violation,
    wal::{self as rule, SPAN},
};
use tidemill_runtime::Instant;

use super::stage::Staged;

/// An object whose PUT was sent.
#[derive(Debug)]
pub(super) struct Object {
    pub sent: Instant,
    pub written_ms: i64,
    pub is_bulk: bool,
    /// When its PUT was answered.
    pub landed: Option<Instant>,
    /// Entries that end here and are not committed, in order.
    pub entries: Vec<Staged>,
}

/// An entry that may be committed.
#[derive(Debug)]
pub(super) struct Ready {
    pub written_ms: i64,
    /// When its last object landed.
    pub landed: Instant,
    pub entry: Staged,
}

/// The objects from the lowest undecided number on.
#[derive(Debug)]
pub(super) struct Window {
    decided_below: u64,
    objects: VecDeque<Object>,
    /// Bit i: number `decided_below + i` has not landed.
    undecided: u128,
    /// First and last number of entries in several objects that may straddle a cut.
    straddling: Vec<(u64, u64)>,
    roll_cut: u64,
}

impl Window {
    /// All numbers below `next` have landed.
    pub fn new(next: u64) -> Self {
        Self {
            decided_below: next,
            objects: VecDeque::new(),
            undecided: 0,
            straddling: Vec::new(),
            roll_cut: next,
        }
    }

    /// The number the next object gets.
    pub fn next(&self) -> u64 {
        self.decided_below + self.objects.len() as u64
    }

    pub fn decided_below(&self) -> u64 {
        self.decided_below
    }

    /// True if the span allows another object.
    pub fn has_room(&self) -> bool {
        (self.objects.len() as u64) < SPAN
    }

    /// Undecided numbers before `number`, of this window or its end, as a bitmap before it.
    pub fn missing_before(&self, number: u64) -> u128 {
        let behind = number.saturating_sub(self.decided_below);
        let behind = u32::try_from(behind).unwrap_or(0);
        if behind == 0 {
            return 0;
        }
        // The bitmap counts backwards from the number, the window forwards from its start.
        self.undecided.reverse_bits() >> (128 - behind)
    }

    /// True if the PUT of `number` was answered.
    pub fn has_landed(&self, number: u64) -> bool {
        let Some(index) = number.checked_sub(self.decided_below) else {
            return true;
        };
        let object = usize::try_from(index)
            .ok()
            .and_then(|i| self.objects.get(i));
        object.is_some_and(|object| object.landed.is_some())
    }

    pub fn push(&mut self, object: Object) {
        debug_assert!(self.has_room(), "callers ask for room first");
        self.undecided |= 1 << self.objects.len();
        self.objects.push_back(object);
    }

    pub fn note_straddling(&mut self, first: u64, last: u64) {
        self.straddling.push((first, last));
    }

    /// Notes that `number` landed `at`; gives the object, and appends to `ready` the entries that
    /// may be committed now, in order.
    pub fn land(&mut self, number: u64, at: Instant, ready: &mut Vec<Ready>) -> Option<&Object> {
        let index = usize::try_from(number.checked_sub(self.decided_below)?).ok()?;
        let object = self.objects.get_mut(index)?;
        object.landed = Some(at);
        self.undecided &= !(1 << index);
        for later in index..self.objects.len() {
            let missing = self.missing_before(self.decided_below + later as u64);
            let Some(object) = self.objects.get_mut(later) else {
                break;
            };
            if let Some(landed) = object.landed
                && !object.entries.is_empty()
            {
                let waiting = std::mem::take(&mut object.entries);
                for entry in waiting {
                    if rule::applies(true, entry.deps, missing) {
                        ready.push(Ready {
                            written_ms: object.written_ms,
                            landed,
                            entry,
                        });
                    } else {
                        object.entries.push(entry);
                    }
                }
            }
        }
        self.objects.get(index)
    }

    /// Lets go of what is decided; `cutting` is the first number of an entry still being sent.
    /// To be called when what [`Window::land`] gave is committed.
    ///
    /// # Errors
    /// An entry was left behind, or the cut would not be clean.
    pub fn advance(&mut self, cutting: Option<u64>) -> Result<(), Violation> {
        while self.is_front_landed() {
            let left = self
                .objects
                .pop_front()
                .is_some_and(|first| !first.entries.is_empty());
            if left {
                // All an entry depends on has a lower number.
                let what = "a decided object holds an uncommitted entry";
                return Err(Violation {
                    invariant: "R1",
                    what,
                });
            }
            self.decided_below += 1;
            self.undecided >>= 1;
        }
        let open = cutting.map(|first| (first, u64::MAX));
        self.straddling.extend(open);
        let mut cut = self.decided_below;
        while let Some((first, _)) = self
            .straddling
            .iter()
            .find(|(first, last)| *first < cut && cut <= *last)
        {
            cut = *first;
        }
        let clean = rule::cut_is_clean(cut, self.decided_below, &self.straddling);
        self.straddling
            .retain(|(_, last)| *last >= cut && *last != u64::MAX);
        self.roll_cut = self.roll_cut.max(cut);
        clean
    }

    fn is_front_landed(&self) -> bool {
        let front = self.objects.front();
        front.is_some_and(|object| object.landed.is_some())
    }

    pub fn roll_cut(&self) -> u64 {
        self.roll_cut
    }

    /// Takes out everything uncommitted, in order.
    pub fn clear(&mut self) -> Vec<Staged> {
        self.objects
            .drain(..)
            .flat_map(|object| object.entries)
            .collect()
    }
}
