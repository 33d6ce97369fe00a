//! Timers exact to some tens of microseconds: Tokio's round up to a millisecond, a fifth of a PUT
//! on S3 Express.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use parking_lot::{Condvar, Mutex};
use tidemill_runtime::{Clock, Instant, Runtime};
use tokio::sync::oneshot;

#[derive(Debug)]
struct Due {
    at: Instant,
    number: u64,
    wake: oneshot::Sender<()>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[derive(Debug, Default)]
struct State {
    due: BinaryHeap<Reverse<Due>>,
    number: u64,
    running: bool,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// One thread that wakes sleepers. It starts with the first of them and ends with the timer.
#[derive(Debug)]
pub(super) struct Timer {
    shared: Arc<Shared>,
    runtime: Runtime,
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

impl Timer {
    pub fn new(runtime: &Runtime) -> Self {
        Self {
            shared: Arc::default(),
            runtime: runtime.clone(),
        }
    }

    /// Waits until `at`; not at all if that is past.
    pub async fn sleep_until(&self, at: Instant) {
        if at <= self.runtime.clock.monotonic() {
            return;
        }
        let (wake, woken) = oneshot::channel();
        let starts = {
            let mut state = self.shared.state.lock();
            state.number += 1;
            let number = state.number;
            state.due.push(Reverse(Due { at, number, wake }));
            !std::mem::replace(&mut state.running, true)
        };
        self.shared.changed.notify_one();
        if starts {
            let (shared, clock) = (self.shared.clone(), self.runtime.clock.clone());
            let tasks = self.runtime.tasks.clone();
            let running = async move {
                // A panic is logged where tasks are.
                let _ = tasks
                    .blocking("model-timer", move || shared.run(&clock))
                    .await;
            };
            self.runtime.tasks.spawn("model-timer", running);
        }
        // The sender goes unused only with the timer, whose owner waits here.
        let _ = woken.await;
    }
}

impl Shared {
    fn run(&self, clock: &Clock) {
        let mut state = self.state.lock();
        while !state.closed {
            let now = clock.monotonic();
            while state.due.peek().is_some_and(|Reverse(due)| due.at <= now) {
                if let Some(Reverse(due)) = state.due.pop() {
                    // Whoever slept may have given up.
                    let _ = due.wake.send(());
                }
            }
            match state.due.peek().map(|Reverse(due)| due.at.into_std()) {
                Some(at) => drop(self.changed.wait_until(&mut state, at)),
                None => self.changed.wait(&mut state),
            }
        }
    }
}
