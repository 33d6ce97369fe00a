//! Intended times of an open loop.

use std::time::Duration;

use tidemill_runtime::{Instant, Runtime};
use tokio::sync::mpsc;

/// Due times waiting for a sender that is behind. When it is full the pacer waits, and the times it
/// then gives are the intended ones all the same.
const WAITING_MAX: usize = 1024;

/// Gives `start`, `start + interval`, ... each at its time, until the receiver is dropped.
///
/// A thread sleeps, because Tokio's timers round up to a millisecond, which is more than a local
/// broker takes.
pub fn pace(runtime: &Runtime, start: Instant, interval: Duration) -> mpsc::Receiver<Instant> {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let clock = runtime.clock.clone();
    let tasks = runtime.tasks.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "load is timed by the machine, never simulated"
    )]
    let work = move || {
        let mut due = start;
        loop {
            let early = due.saturating_duration_since(clock.monotonic());
            if !early.is_zero() {
                std::thread::sleep(early);
            }
            if sender.blocking_send(due).is_err() {
                return;
            }
            due += interval;
        }
    };
    let pacing = async move { tasks.blocking("bench-pacer", work).await };
    runtime.tasks.spawn("bench-pacing", pacing);
    receiver
}
