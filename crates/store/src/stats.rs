//! Counters, and the one log line per spell of trouble.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tidemill_runtime::Instant;

use crate::error::{StoreError, StoreErrorKind};

/// What the store has done so far; a copy taken at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Logical writes that ended well.
    pub puts: u64,
    /// PUT requests, retries and hedges included.
    pub put_tries: u64,
    /// GET and HEAD requests, retries and hedges included.
    pub gets: u64,
    /// LIST requests.
    pub lists: u64,
    /// DELETE requests.
    pub deletes: u64,
    /// Server-side copies.
    pub copies: u64,
    /// Bytes of bodies sent, retries and hedges included.
    pub bytes_up: u64,
    /// Bytes of bodies received.
    pub bytes_down: u64,
    /// Requests sent again after a failure, of any kind.
    pub retries: u64,
    /// Failures by kind: object not found.
    pub errors_not_found: u64,
    /// Failures by kind: refused for good.
    pub errors_refused: u64,
    /// Failures by kind: certainly not carried out.
    pub errors_unavailable: u64,
    /// Failures by kind: outcome unknown.
    pub errors_unknown: u64,
    /// Failures by kind: torn or wrong answer.
    pub errors_corrupt: u64,
    /// Failures by kind: no space.
    pub errors_full: u64,
    /// Failures by kind: wrong request.
    pub errors_invalid: u64,
}

/// A spell of trouble ends after this long without a failure: a store that fails every tenth
/// request is one spell, not one per failure.
const QUIET: Duration = Duration::from_secs(30);

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> StoreCounters {
                StoreCounters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters!(
    puts,
    put_tries,
    gets,
    lists,
    deletes,
    copies,
    bytes_up,
    bytes_down,
    retries,
    errors_not_found,
    errors_refused,
    errors_unavailable,
    errors_unknown,
    errors_corrupt,
    errors_full,
    errors_invalid,
);

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn count_error(&self, kind: StoreErrorKind) {
        let counter = match kind {
            StoreErrorKind::NotFound => &self.errors_not_found,
            StoreErrorKind::Refused => &self.errors_refused,
            StoreErrorKind::Unavailable => &self.errors_unavailable,
            StoreErrorKind::Unknown => &self.errors_unknown,
            StoreErrorKind::Corrupt => &self.errors_corrupt,
            StoreErrorKind::Full => &self.errors_full,
            StoreErrorKind::Invalid => &self.errors_invalid,
        };
        add(counter, 1);
    }
}

#[derive(Debug)]
struct Running {
    since: Instant,
    last_failure: Instant,
    failures: u64,
}

/// Says once that a store is in trouble and once that it is over (K94).
#[derive(Debug, Default)]
pub(crate) struct Spell(Mutex<Option<Running>>);

impl Spell {
    pub(crate) fn failed(&self, now: Instant, store: &str, error: &StoreError) {
        let mut spell = self.0.lock();
        match &mut *spell {
            Some(running) => {
                running.last_failure = now;
                running.failures += 1;
            }
            None => {
                *spell = Some(Running {
                    since: now,
                    last_failure: now,
                    failures: 1,
                });
                tracing::warn!(store, %error, "store is in trouble; requests are retried");
            }
        }
    }

    pub(crate) fn succeeded(&self, now: Instant, store: &str) {
        let mut spell = self.0.lock();
        if let Some(running) = &*spell
            && now.saturating_duration_since(running.last_failure) >= QUIET
        {
            let lasted_ms = (running.last_failure - running.since).as_millis();
            tracing::info!(
                store,
                failures = running.failures,
                lasted_ms = u64::try_from(lasted_ms).unwrap_or(u64::MAX),
                "store works again"
            );
            *spell = None;
        }
    }
}
