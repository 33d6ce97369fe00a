//! One logical request and the hedges that run against it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tidemill_runtime::Instant;

use super::{Delays, Hedge, Lateness, Pace};
use crate::{
    error::{StoreError, StoreErrorKind},
    store::Shared,
};

/// Requests left to run to their end after another one has answered, at most.
const LATE_REQUESTS_MAX: usize = 64;
/// Bytes that their bodies hold in memory, at most.
const LATE_BYTES_MAX: u64 = 64 << 20;

/// Shortest pause between two requests for a hedge.
const RETRY_MIN: Duration = Duration::from_millis(1);

type Answer<T> = Result<T, StoreError>;

/// The bytes moved by a request that ended so; `None` if it says nothing of the store's speed.
type Weigh<T> = fn(u64, &Answer<T>) -> Option<u64>;

struct Runner<T> {
    request: Pin<Box<dyn Future<Output = Answer<T>> + Send>>,
    is_hedge: bool,
    started: Instant,
}

/// A request of a race has ended.
pub(crate) struct Ended<T> {
    pub answer: Answer<T>,
    pub is_hedge: bool,
}

/// Who races, and when the next hedge starts.
pub(crate) struct Race<T, S> {
    shared: Arc<Shared>,
    pace: Arc<Pace>,
    weigh: Weigh<T>,
    /// Sends the request once more.
    send: S,
    bytes: u64,
    runners: Vec<Runner<T>>,
    delays: Delays,
    next_hedge: Instant,
    hedges_left: usize,
    /// How late it is when `next_hedge` comes.
    lateness: Lateness,
    /// It has been counted as not hedged.
    is_refused: bool,
    /// The newest request has not been late yet.
    is_watching: bool,
}

/// Requests that nobody waits for any more.
#[derive(Debug, Default)]
pub(crate) struct Late {
    requests: AtomicUsize,
    bytes: AtomicU64,
}

struct Charged {
    shared: Arc<Shared>,
    requests: usize,
    bytes: u64,
}

impl Charged {
    fn take(shared: Arc<Shared>, requests: usize, bytes: u64) -> Option<Self> {
        let late = &shared.late;
        let before = late.requests.fetch_add(requests, Ordering::Relaxed);
        let bytes_before = late.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + requests <= LATE_REQUESTS_MAX && bytes_before + bytes <= LATE_BYTES_MAX;
        let charged = Self {
            shared,
            requests,
            bytes,
        };
        fits.then_some(charged)
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        let late = &self.shared.late;
        late.requests.fetch_sub(self.requests, Ordering::Relaxed);
        late.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<T, S, F> Race<T, S>
where
    T: Send + 'static,
    S: Fn() -> F,
    F: Future<Output = Answer<T>> + Send + 'static,
{
    /// Sends the first try. `bytes` is the size of what is moved, as far as it is known.
    pub fn start(
        (shared, pace): (&Arc<Shared>, &Arc<Pace>),
        bytes: u64,
        hedges_max: usize,
        weigh: Weigh<T>,
        send: S,
    ) -> Self {
        let delays = pace.begin(bytes);
        let mut race = Self {
            shared: shared.clone(),
            pace: pace.clone(),
            weigh,
            send,
            bytes,
            runners: Vec::with_capacity(1),
            delays,
            next_hedge: shared.runtime.clock.monotonic() + delays.late,
            hedges_left: hedges_max,
            lateness: Lateness::Late,
            is_refused: false,
            is_watching: true,
        };
        race.add(false);
        race
    }

    fn add(&mut self, is_hedge: bool) {
        let (shared, pace, weigh) = (self.shared.clone(), self.pace.clone(), self.weigh);
        let (bytes, delay) = (self.bytes, self.delays.late);
        let started = shared.runtime.clock.monotonic();
        let request = (self.send)();
        let measured = async move {
            let answer = request.await;
            let took = shared.runtime.clock.monotonic() - started;
            let timed_out = took >= shared.options.request_timeout
                && matches!(&answer, Err(error) if error.kind == StoreErrorKind::Unknown);
            let weight = weigh(bytes, &answer).or(timed_out.then_some(bytes));
            if let Some(bytes) = weight {
                if !is_hedge {
                    shared.measured(&pace, bytes, took);
                }
                // That it is late has been said when it became so.
                if took < delay {
                    pace.decided(false);
                }
            }
            answer
        };
        self.runners.push(Runner {
            request: Box::pin(measured),
            is_hedge,
            started,
        });
    }

    /// True if no request is under way.
    pub fn is_over(&self) -> bool {
        self.runners.is_empty()
    }

    /// The next request that ends, hedges sent meanwhile. Not to be called once all have ended.
    pub async fn next(&mut self) -> Ended<T> {
        let clock = self.shared.runtime.clock.clone();
        loop {
            let watches = self.hedges_left > 0 || self.is_watching;
            let next_hedge = self.next_hedge;
            let runners = &mut self.runners;
            tokio::select! {
                biased;
                ended = poll_fn(|context| poll_any(runners, context)) => return ended,
                () = clock.sleep_until(next_hedge), if watches => self.late(),
            }
        }
    }

    /// The requests under way are late: perhaps one more helps.
    fn late(&mut self) {
        if self.is_watching {
            self.pace.decided(true);
            self.is_watching = false;
        }
        let Delays { late, very_late } = self.delays;
        let mut wait = late;
        if self.hedges_left > 0 {
            let hedge = self.pace.hedge(self.lateness);
            match hedge {
                Hedge::Go => {
                    self.hedges_left -= 1;
                    self.is_watching = true;
                    self.add(true);
                }
                Hedge::Reserved => wait = very_late.saturating_sub(late),
                // A token may come at any time.
                Hedge::OverBudget => wait = late / 8,
                Hedge::StoreSlow => {}
            }
            if !self.is_refused && matches!(hedge, Hedge::OverBudget | Hedge::StoreSlow) {
                self.is_refused = true;
                self.pace.refused(hedge);
            }
            self.lateness = Lateness::VeryLate;
        }
        self.next_hedge = self.shared.runtime.clock.monotonic() + wait.max(RETRY_MIN);
    }

    /// The answer is there; what is still under way runs to its end unheard, to be measured.
    pub fn finish(self, won_by_hedge: bool) {
        if won_by_hedge {
            self.pace.won();
        }
        if self.runners.is_empty() {
            return;
        }
        let (shared, pace, mut runners) = (self.shared, self.pace, self.runners);
        // They share one body.
        let Some(charged) = Charged::take(shared.clone(), runners.len(), self.bytes) else {
            let now = shared.runtime.clock.monotonic();
            // Cut off, they have taken at least so long.
            let first = runners.iter().find(|runner| !runner.is_hedge);
            if let Some(first) = first {
                shared.measured(&pace, self.bytes, now - first.started);
            }
            return;
        };
        shared.runtime.tasks.spawn("store-late", async move {
            while !runners.is_empty() {
                poll_fn(|context| poll_any(&mut runners, context)).await;
            }
            drop(charged);
        });
    }
}

fn poll_any<T>(runners: &mut Vec<Runner<T>>, context: &mut Context<'_>) -> Poll<Ended<T>> {
    for index in 0..runners.len() {
        if let Poll::Ready(answer) = runners[index].request.as_mut().poll(context) {
            let is_hedge = runners.remove(index).is_hedge;
            return Poll::Ready(Ended { answer, is_hedge });
        }
    }
    Poll::Pending
}
