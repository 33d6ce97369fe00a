//! The floor of free space on a local file system: producers wait before it is reached, while roll,
//! trim, retention and deletions go on and make room.
//!
//! What is below the floor is for what makes room: metadata, markers, checkpoints, deletions. And
//! before a byte of the WAL can be trimmed it is copied, so what is pending or unrolled counts
//! twice.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tidemill_runtime::Instant;

use super::Wal;

/// Between two looks at the file system while something is written or somebody waits.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The floor is no more than one part in so many of the file system.
const FLOOR_SHARE_MAX: u64 = 8;
/// With less than so many floors left, every PUT is followed by a look.
const TIGHT_FLOORS: u64 = 4;

/// Space is said to be there again once so large a part of the floor is free above it ...
const RECOVERED_SHARE: u64 = 4;
/// ... and it was not low for so long. Rounds and trims near the floor cross it several times a
/// minute.
const RECOVERED_AFTER: Duration = Duration::from_secs(60);

/// What is known of the space left.
#[derive(Debug)]
pub(super) struct SpaceGate {
    /// Free bytes at the last look.
    free: AtomicU64,
    /// The floor that holds on this file system; 0 for none.
    floor: AtomicU64,
    /// Bytes put since.
    put: AtomicU64,
    /// Bytes of requests that were let in since.
    taken_bytes: AtomicU64,
    taken: Mutex<Taken>,
    look: Mutex<Look>,
    /// What each request that waits for space will write.
    waiting: Mutex<Vec<u64>>,
}

/// A request that waits for space.
struct Waiting<'a>(&'a SpaceGate, u64);

impl<'a> Waiting<'a> {
    fn new(gate: &'a SpaceGate, bytes: u64) -> Self {
        gate.waiting.lock().push(bytes);
        Self(gate, bytes)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        if let Some(at) = waiting.iter().position(|bytes| *bytes == self.1) {
            waiting.swap_remove(at);
        }
    }
}

/// What requests have taken, by the number of looks begun before.
#[derive(Debug, Default)]
struct Taken {
    looks: u64,
    bytes: BTreeMap<u64, u64>,
}

/// The space that a request was given. What it has appended counts by itself, so this is to be
/// dropped when the request ends, however it does.
#[derive(Debug)]
#[must_use = "dropped at once, the next request does not see it"]
pub struct SpaceTaken {
    wal: Arc<Wal>,
    looks: u64,
    bytes: u64,
}

impl Drop for SpaceTaken {
    fn drop(&mut self) {
        if self.wal.space.give_back(self.looks, self.bytes) {
            self.wal.settled.notify_waiters();
        }
    }
}

#[derive(Debug, Default)]
struct Look {
    at: Option<Instant>,
    /// It was said that space is low, and not yet that it is not.
    said_low: bool,
    /// When it was last low.
    low_at: Option<Instant>,
}

impl Look {
    /// What is to be said, if anything: true that space is low, false that it is there again.
    fn news(&mut self, now: Instant, is_low: bool, is_ample: bool) -> Option<bool> {
        if is_low {
            self.low_at = Some(now);
            return (!std::mem::replace(&mut self.said_low, true)).then_some(true);
        }
        let is_over = |at| now.saturating_duration_since(at) >= RECOVERED_AFTER;
        let is_back = self.said_low && is_ample && self.low_at.is_none_or(is_over);
        if is_back {
            self.said_low = false;
        }
        is_back.then_some(false)
    }
}

/// Into the WAL, and by a round.
fn twice(bytes: u64) -> u64 {
    bytes.saturating_mul(2)
}

impl Default for SpaceGate {
    fn default() -> Self {
        Self {
            free: AtomicU64::new(u64::MAX),
            floor: AtomicU64::new(0),
            put: AtomicU64::new(0),
            taken_bytes: AtomicU64::new(0),
            taken: Mutex::default(),
            look: Mutex::default(),
            waiting: Mutex::default(),
        }
    }
}

impl SpaceGate {
    fn left(&self) -> u64 {
        let put = self.put.load(Ordering::Acquire);
        let taken = self.taken_bytes.load(Ordering::Acquire);
        let free = self.free.load(Ordering::Acquire);
        free.saturating_sub(put).saturating_sub(taken)
    }

    fn note_taken(&self, taken: &Taken) {
        let bytes = taken.bytes.values().sum();
        self.taken_bytes.store(bytes, Ordering::Release);
    }

    /// Gives back what was taken after so many looks; false if a look has done so.
    fn give_back(&self, looks: u64, bytes: u64) -> bool {
        let mut taken = self.taken.lock();
        let Some(sum) = taken.bytes.get_mut(&looks) else {
            return false;
        };
        *sum = sum.saturating_sub(bytes);
        self.note_taken(&taken);
        true
    }

    /// Begins a look; returns how many there were.
    fn begin_look(&self) -> u64 {
        let mut taken = self.taken.lock();
        taken.looks += 1;
        taken.looks - 1
    }

    /// Forgets what was taken before a look that has shown what is free.
    fn end_look(&self, looks: u64) {
        let mut taken = self.taken.lock();
        taken.bytes.retain(|at, _| *at > looks);
        self.note_taken(&taken);
    }

    fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }
}

impl Wal {
    /// True if what was taken needs all the space there is above the floor, as far as is known.
    pub(crate) fn is_space_low(&self) -> bool {
        let floor = self.space.floor();
        floor > 0 && self.space.left() < self.space_needed(floor)
    }

    /// The floor, with what has been taken and is still to be written: into the WAL, and by a
    /// round.
    fn space_needed(&self, floor: u64) -> u64 {
        if floor == 0 {
            return 0;
        }
        let pending = twice(self.pending_bytes());
        floor
            .saturating_add(pending)
            .saturating_add(self.budget.unrolled())
    }

    /// True if less is left than what was taken needs with the largest request that waits: a round
    /// may make room.
    pub(crate) fn is_space_wanted(&self) -> bool {
        if self.space.floor() == 0 {
            return false;
        }
        let largest = self.space.waiting.lock().iter().copied().max();
        self.lacks_space_for(largest.unwrap_or(0))
    }

    fn lacks_space_for(&self, bytes: u64) -> bool {
        let floor = self.space.floor();
        if floor == 0 {
            return false;
        }
        let needed = self.space_needed(floor).saturating_add(twice(bytes));
        self.space.left() < needed
    }

    /// Notes that an object has landed, and looks at the file system if there may be little left,
    /// or if the last look was long ago.
    pub(super) async fn note_put(&self, bytes: u64) {
        if self.limits.free_bytes_min == 0 {
            return;
        }
        self.space.put.fetch_add(bytes, Ordering::AcqRel);
        let floors = self.space.floor().saturating_mul(TIGHT_FLOORS);
        let is_tight = self.space.left() < self.space_needed(floors);
        if is_tight || self.is_look_due() {
            self.look_at_space().await;
        }
    }

    fn is_look_due(&self) -> bool {
        let now = self.runtime.clock.monotonic();
        let last = self.space.look.lock().at;
        last.is_none_or(|at| now.saturating_duration_since(at) >= LOOK_INTERVAL)
    }

    /// Looks at the file system.
    pub(crate) async fn look_at_space(&self) {
        if self.limits.free_bytes_min == 0 || !self.objects.store().is_local() {
            return;
        }
        self.space.look.lock().at = Some(self.runtime.clock.monotonic());
        let looks = self.space.begin_look();
        let before = self.space.put.load(Ordering::Acquire);
        let space = match self.objects.store().space().await {
            Ok(Some(space)) => space,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "free space is not known");
                return;
            }
        };
        let floor = self
            .limits
            .free_bytes_min
            .min(space.total / FLOOR_SHARE_MAX);
        self.space.floor.store(floor, Ordering::Release);
        self.space.free.store(space.free, Ordering::Release);
        // What landed meanwhile may be counted twice until the next look. Of two looks at once each
        // takes back what it saw.
        let seen = |put: u64| Some(put.saturating_sub(before));
        let _ = self
            .space
            .put
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, seen);
        self.space.end_look(looks);
        let is_low = self.is_space_low();
        self.say(is_low, space.free, floor);
        if !is_low {
            self.settled.notify_waiters();
        }
    }

    /// Logs that space is low, or there again.
    fn say(&self, is_low: bool, free: u64, floor: u64) {
        let ample = floor.saturating_add(floor / RECOVERED_SHARE);
        let is_ample = self.space.left() >= self.space_needed(ample);
        let now = self.runtime.clock.monotonic();
        let news = self.space.look.lock().news(now, is_low, is_ample);
        let unrolled = self.budget.unrolled();
        match news {
            Some(true) => tracing::warn!(
                free,
                floor,
                unrolled,
                "free space crossed its floor: producers wait"
            ),
            Some(false) => tracing::info!(free, floor, unrolled, "free space is above its floor"),
            None => {}
        }
    }

    /// Looks again if it was said that space is low: nothing may be written any more.
    pub(crate) async fn look_if_space_was_low(&self) {
        let said_low = self.space.look.lock().said_low;
        if said_low && self.is_look_due() {
            self.look_at_space().await;
        }
    }

    /// Free bytes that a round may fill, by a look now; `None` where there is no floor. Half of the
    /// floor is left for what makes room.
    pub(crate) async fn room(&self) -> Option<u64> {
        self.look_at_space().await;
        let floor = self.space.floor();
        (floor > 0).then(|| self.space.left().saturating_sub(floor / 2))
    }

    /// The floor that holds; 0 for none.
    pub(crate) fn space_floor(&self) -> u64 {
        self.space.floor()
    }

    /// The least that is worth a round for the sake of its space.
    pub(crate) fn worth_a_round(&self) -> u64 {
        const SHARE: u64 = 16;
        self.space.floor() / SHARE
    }

    /// True if a request of `bytes` has to wait for space before it is taken.
    pub(crate) fn must_wait_for_space(&self, bytes: u64) -> bool {
        self.lacks_space_for(bytes)
    }

    /// Waits until there is space for a request of `bytes`, or the log takes nothing more. What
    /// fits passes: one that would need more than there will ever be stands in nobody's way.
    pub(crate) async fn wait_for_space(self: &Arc<Self>, bytes: u64) -> Option<SpaceTaken> {
        let _waiting = Waiting::new(&self.space, bytes);
        while self.queue.lock().refuses().is_none() {
            let taken = self.take_space(bytes);
            if taken.is_some() {
                return taken;
            }
            self.space_may_have_grown().await;
        }
        None
    }

    /// Takes the space for a request as if it were written: the next one need not wait until it is
    /// appended to see it.
    fn take_space(self: &Arc<Self>, bytes: u64) -> Option<SpaceTaken> {
        // Of two at once, the second sees what the first took.
        let mut taken = self.space.taken.lock();
        if self.lacks_space_for(bytes) {
            return None;
        }
        let (looks, bytes) = (taken.looks, twice(bytes));
        *taken.bytes.entry(looks).or_default() += bytes;
        self.space.note_taken(&taken);
        Some(SpaceTaken {
            wal: self.clone(),
            looks,
            bytes,
        })
    }

    /// Waits for a while, or until something has changed, and looks again.
    pub(super) async fn space_may_have_grown(&self) {
        let settled = self.settled.notified();
        let _ = self.runtime.clock.timeout(LOOK_INTERVAL, settled).await;
        if self.is_look_due() {
            self.look_at_space().await;
        }
    }
}
