//! The floor of free space on a local file system: producers wait before it is reached, while roll,
//! trim, retention and deletions go on and make room.
//!
//! What is below the floor is for what makes room: metadata, markers, checkpoints, deletions. And
//! before a byte of the WAL can be trimmed it is copied, so what is pending or unrolled counts
//! twice.

use std::{
    sync::atomic::{AtomicU64, Ordering},
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

/// What is known of the space left.
#[derive(Debug)]
pub(super) struct SpaceGate {
    /// Free bytes at the last look.
    free: AtomicU64,
    /// The floor that holds on this file system; 0 for none.
    floor: AtomicU64,
    /// Bytes put since.
    put: AtomicU64,
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

#[derive(Debug, Default)]
struct Look {
    at: Option<Instant>,
    /// What was last said about it.
    was_low: bool,
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
            look: Mutex::default(),
            waiting: Mutex::default(),
        }
    }
}

impl SpaceGate {
    fn left(&self) -> u64 {
        let put = self.put.load(Ordering::Acquire);
        self.free.load(Ordering::Acquire).saturating_sub(put)
    }

    fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }
}

impl Wal {
    /// True if what was taken needs all the space there is above the floor, as far as is known.
    pub(crate) fn is_space_low(&self) -> bool {
        self.space.left() < self.space_needed(self.space.floor())
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
        let largest = self.space.waiting.lock().iter().copied().max();
        self.lacks_space_for(largest.unwrap_or(0))
    }

    fn lacks_space_for(&self, bytes: u64) -> bool {
        let floor = self.space.floor();
        let needed = self.space_needed(floor).saturating_add(twice(bytes));
        floor > 0 && self.space.left() < needed
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
        let is_low = self.is_space_low();
        let was_low = std::mem::replace(&mut self.space.look.lock().was_low, is_low);
        if is_low != was_low {
            let (free, unrolled) = (space.free, self.budget.unrolled());
            tracing::warn!(
                free,
                floor,
                unrolled,
                is_low,
                "free space crossed its floor"
            );
        }
        if !is_low {
            self.settled.notify_waiters();
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
    pub(crate) async fn wait_for_space(&self, bytes: u64) {
        let _waiting = Waiting::new(&self.space, bytes);
        while self.queue.lock().refuses().is_none() && !self.take_space(bytes) {
            self.space_may_have_grown().await;
        }
    }

    /// Takes the space for a request as if it were written: the next one need not wait until it is
    /// appended to see it.
    fn take_space(&self, bytes: u64) -> bool {
        // Of two at once, the second sees what the first took.
        let _alone = self.space.waiting.lock();
        if self.lacks_space_for(bytes) {
            return false;
        }
        self.space.put.fetch_add(twice(bytes), Ordering::AcqRel);
        true
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
