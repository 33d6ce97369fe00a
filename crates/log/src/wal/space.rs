//! The floor of free space on a local file system: below it producers wait, while roll, trim and
//! retention go on and make room.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tidemill_runtime::Instant;

use super::Wal;

/// Between two looks at the file system while something is written or somebody waits.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What is known of the space left.
#[derive(Debug, Default)]
pub(super) struct SpaceGate {
    is_low: AtomicBool,
    looked: Mutex<Option<Instant>>,
}

impl Wal {
    /// True while there is less space than the floor, as far as is known.
    pub(crate) fn is_space_low(&self) -> bool {
        self.space.is_low.load(Ordering::Acquire)
    }

    /// Looks at the file system, unless that was done a moment ago.
    pub(super) async fn look_at_space(&self) {
        let floor = self.limits.free_bytes_min;
        if floor == 0 || !self.objects.store().is_local() {
            return;
        }
        let now = self.runtime.clock.monotonic();
        {
            let mut looked = self.space.looked.lock();
            let is_recent = |at: Instant| now.saturating_duration_since(at) < LOOK_INTERVAL;
            if looked.is_some_and(is_recent) {
                return;
            }
            *looked = Some(now);
        }
        let free = match self.objects.store().space().await {
            Ok(Some(space)) => space.free,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "free space is not known");
                return;
            }
        };
        let is_low = free < floor;
        let was_low = self.space.is_low.swap(is_low, Ordering::AcqRel);
        if is_low != was_low {
            tracing::warn!(free, floor, is_low, "free space crossed its floor");
            self.settled.notify_waiters();
        }
    }

    /// Waits for space to be above the floor, looking again and again.
    pub(super) async fn space_above_floor(&self) {
        while self.is_space_low() && self.stopped().is_none() {
            self.runtime.clock.sleep(LOOK_INTERVAL).await;
            self.look_at_space().await;
        }
    }
}
