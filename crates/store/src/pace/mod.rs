//! How fast the store is, and whether a slow request may be sent a second time.
//!
//! A request slower than the 95th percentile of (base delay + size / rate) is hedged: the same
//! request once more, on another connection, and the first answer wins. The budget is 5 % of all
//! requests, and a store that is slow as a whole gets no hedges at all: they would only add to its
//! load.

mod estimate;
pub(crate) mod race;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use self::estimate::MEASURED_BYTES_MAX;
pub use self::estimate::{Estimate, Estimator};

/// When the store sends a slow request a second time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HedgeMode {
    /// Unless the store is local, where a second write to the same disk helps nobody.
    #[default]
    Remote,
    /// On every store: for tests.
    Always,
    /// Never.
    Off,
}

/// Limits of hedging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeOptions {
    /// When at all.
    pub mode: HedgeMode,
    /// First tries that the estimate rests on, at least.
    pub measured_min: u64,
    /// Until so many are measured, a request is hedged after this and its transfer.
    pub unmeasured_delay: Duration,
}

impl Default for HedgeOptions {
    /// 200 measured; 500 ms until then.
    fn default() -> Self {
        Self {
            mode: HedgeMode::Remote,
            measured_min: 200,
            unmeasured_delay: Duration::from_millis(500),
        }
    }
}

/// Shares of a token that each request adds: 0.05.
const TOKEN: u32 = 20;
/// Tokens saved up at most.
const BURST: u32 = 12;
/// Tokens kept for requests beyond the 97th percentile. Every twentieth request reaches the 95th,
/// which is all that the budget gives; without a reserve a request that hangs, and holds up all
/// that depends on it, would find nothing left.
const RESERVE: u32 = 5;
/// Requests looked back at to tell whether the store is slow as a whole.
const LOOK_BACK: u32 = 16;
/// So many of them beyond the 95th percentile make it so: one in ten thousand by chance.
const LATE_MAX: u32 = 6;
/// No hedge sooner: below this the answer is on its way in any case.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// How late a request is when it is to be hedged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lateness {
    /// Beyond the 95th percentile.
    Late,
    /// Beyond the 97th, or a hedge is late as well.
    VeryLate,
}

/// What became of the wish to hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hedge {
    Go,
    /// What is left of the budget is kept for requests that are very late.
    Reserved,
    /// 5 % are used up.
    OverBudget,
    /// The store is slow as a whole.
    StoreSlow,
}

/// From the start of a request on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    /// It is late.
    pub late: Duration,
    /// It is very late.
    pub very_late: Duration,
}

/// Hedges of one kind of request; a copy taken at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HedgeCounters {
    /// Requests sent a second time.
    pub sent: u64,
    /// Of these, answered before the first one.
    pub won: u64,
    /// Requests not sent again, or later, because the budget was used up.
    pub over_budget: u64,
    /// Requests not sent again, or later, because the store was slow as a whole.
    pub store_slow: u64,
}

#[derive(Debug)]
struct State {
    estimator: Estimator,
    /// In shares of a token.
    tokens: u32,
    /// Bit i: the i-th last request that was decided came late.
    late: u32,
}

/// Estimate and hedges of one kind of request.
#[derive(Debug)]
pub(crate) struct Pace {
    options: HedgeOptions,
    hedges: bool,
    state: Mutex<State>,
    sent: AtomicU64,
    won: AtomicU64,
    over_budget: AtomicU64,
    store_slow: AtomicU64,
}

impl Pace {
    pub fn new(options: HedgeOptions, is_local: bool) -> Self {
        let hedges = match options.mode {
            HedgeMode::Remote => !is_local,
            HedgeMode::Always => true,
            HedgeMode::Off => false,
        };
        let state = State {
            estimator: Estimator::default(),
            tokens: BURST * TOKEN,
            late: 0,
        };
        Self {
            options,
            hedges,
            state: Mutex::new(state),
            sent: AtomicU64::new(0),
            won: AtomicU64::new(0),
            over_budget: AtomicU64::new(0),
            store_slow: AtomicU64::new(0),
        }
    }

    /// True if a request of `bytes` may be hedged at all.
    pub fn hedges(&self, bytes: u64) -> bool {
        self.hedges && bytes <= MEASURED_BYTES_MAX
    }

    pub fn estimate(&self) -> Estimate {
        self.state.lock().estimator.estimate()
    }

    pub fn counters(&self) -> HedgeCounters {
        HedgeCounters {
            sent: self.sent.load(Ordering::Relaxed),
            won: self.won.load(Ordering::Relaxed),
            over_budget: self.over_budget.load(Ordering::Relaxed),
            store_slow: self.store_slow.load(Ordering::Relaxed),
        }
    }

    /// A request of `bytes` is sent for the first time; says after how long it is late.
    pub fn begin(&self, bytes: u64) -> Delays {
        let mut state = self.state.lock();
        state.tokens = (state.tokens + 1).min(BURST * TOKEN);
        let estimate = state.estimator.estimate();
        let (late, very_late) = if estimate.measured < self.options.measured_min {
            (self.options.unmeasured_delay, self.options.unmeasured_delay)
        } else {
            (estimate.p95, estimate.p97)
        };
        let transfer = estimate.transfer(bytes);
        Delays {
            late: (late + transfer).max(DELAY_MIN),
            very_late: (very_late + transfer).max(DELAY_MIN),
        }
    }

    /// A first try has ended; true if it is time to [calculate](Self::calculate) anew.
    pub fn measured(&self, bytes: u64, took: Duration) -> bool {
        self.state.lock().estimator.note(bytes, took)
    }

    /// Calculates the estimate anew, while others go on with the last.
    pub fn calculate(&self) {
        let mut copy = self.state.lock().estimator.copy();
        copy.refresh();
        self.state.lock().estimator.adopt(copy.estimate());
    }

    /// A request has come in time, or is late, answered or not.
    pub fn decided(&self, is_late: bool) {
        let mut state = self.state.lock();
        state.late = state.late << 1 | u32::from(is_late);
    }

    /// Asks for a hedge; `Go` pays for it.
    pub fn hedge(&self, lateness: Lateness) -> Hedge {
        let mut state = self.state.lock();
        let late = (state.late & ((1 << LOOK_BACK) - 1)).count_ones();
        let reserve = match lateness {
            Lateness::Late => RESERVE * TOKEN,
            Lateness::VeryLate => 0,
        };
        if late >= LATE_MAX {
            return Hedge::StoreSlow;
        }
        if state.tokens < TOKEN {
            return Hedge::OverBudget;
        }
        if state.tokens < TOKEN + reserve {
            return Hedge::Reserved;
        }
        state.tokens -= TOKEN;
        self.sent.fetch_add(1, Ordering::Relaxed);
        Hedge::Go
    }

    /// A request that was not hedged when it should have been.
    pub fn refused(&self, why: Hedge) {
        let counter = match why {
            Hedge::OverBudget => &self.over_budget,
            Hedge::StoreSlow => &self.store_slow,
            Hedge::Go | Hedge::Reserved => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A hedge has answered first.
    pub fn won(&self) {
        self.won.fetch_add(1, Ordering::Relaxed);
    }
}
