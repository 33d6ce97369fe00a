//! Wall time, monotonic time and timers.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place that may read the clock"
)]

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A point on the monotonic clock.
pub type Instant = tokio::time::Instant;

/// A time-out ran out before the future was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

#[derive(Debug)]
enum Wall {
    System,
    /// Unix milliseconds at `origin`; may be stepped by a test.
    Simulated {
        origin: Instant,
        base_ms: AtomicI64,
    },
}

/// The clock handed in. Timers run on Tokio's time driver, which a paused runtime owns.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Wall>);

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(Wall::System))
    }

    /// A clock whose wall time starts at `start_ms` (Unix milliseconds) and moves with Tokio's
    /// time.
    #[must_use]
    pub fn simulated(start_ms: i64) -> Self {
        Self(Arc::new(Wall::Simulated {
            origin: Instant::now(),
            base_ms: AtomicI64::new(start_ms),
        }))
    }

    /// Wall time in Unix milliseconds. May go back.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        match &*self.0 {
            Wall::System => match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
                Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
            },
            Wall::Simulated { origin, base_ms } => {
                let passed = Instant::now()
                    .saturating_duration_since(*origin)
                    .as_millis();
                base_ms.load(Ordering::Relaxed) + i64::try_from(passed).unwrap_or(i64::MAX)
            }
        }
    }

    /// Steps the simulated wall clock by `delta_ms`; no effect on a system clock.
    pub fn step_ms(&self, delta_ms: i64) {
        if let Wall::Simulated { base_ms, .. } = &*self.0 {
            base_ms.fetch_add(delta_ms, Ordering::Relaxed);
        }
    }

    /// Monotonic time. Never goes back.
    #[must_use]
    pub fn monotonic(&self) -> Instant {
        Instant::now()
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Waits until `deadline`.
    pub async fn sleep_until(&self, deadline: Instant) {
        tokio::time::sleep_until(deadline).await;
    }

    /// Runs `future` for at most `duration`.
    ///
    /// # Errors
    /// [`Elapsed`] if it was not ready in time; the future is dropped then.
    pub async fn timeout<F: Future>(
        &self,
        duration: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        tokio::time::timeout(duration, future)
            .await
            .map_err(|_| Elapsed)
    }

    /// Runs `future` until `deadline`.
    ///
    /// # Errors
    /// [`Elapsed`] if it was not ready in time; the future is dropped then.
    pub async fn timeout_at<F: Future>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        tokio::time::timeout_at(deadline, future)
            .await
            .map_err(|_| Elapsed)
    }
}
