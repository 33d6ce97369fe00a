//! Timers exact to some tens of microseconds: Tokio's round up to a millisecond, a fifth of a PUT
//! on S3 Express.

use std::{cmp::Reverse, collections::BinaryHeap, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tidemill_runtime::{Clock, Instant, Runtime, TaskHandle};
use tokio::{io::unix::AsyncFd, sync::oneshot};

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

/// Who sleeps, and the timer that is set to the first of them.
#[derive(Debug)]
struct Sleepers {
    due: BinaryHeap<Reverse<Due>>,
    number: u64,
    timer: Arc<AsyncFd<OwnedFd>>,
    waking: TaskHandle<()>,
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.waking.abort();
    }
}

/// Wakes sleepers by a timer that is a file: what is due comes as the answer of a server would, to
/// the thread that waits for sockets, without another one in between.
#[derive(Debug)]
pub(super) struct Timer {
    /// From the first sleeper on.
    sleepers: Arc<Mutex<Option<Sleepers>>>,
    runtime: Runtime,
}

impl Drop for Timer {
    fn drop(&mut self) {
        *self.sleepers.lock() = None;
    }
}

impl Timer {
    pub fn new(runtime: &Runtime) -> Self {
        Self {
            sleepers: Arc::default(),
            runtime: runtime.clone(),
        }
    }

    /// Waits until `at`; not at all if that is past.
    pub async fn sleep_until(&self, at: Instant) -> io::Result<()> {
        if at <= self.runtime.clock.monotonic() {
            return Ok(());
        }
        let (wake, woken) = oneshot::channel();
        {
            let mut sleepers = self.sleepers.lock();
            let sleepers = match &mut *sleepers {
                Some(sleepers) => sleepers,
                none => none.insert(self.start()?),
            };
            sleepers.number += 1;
            let number = sleepers.number;
            sleepers.due.push(Reverse(Due { at, number, wake }));
            if sleepers
                .due
                .peek()
                .is_some_and(|first| first.0.number == number)
            {
                set(&sleepers.timer, at, &self.runtime.clock)?;
            }
        }
        let failed = |_| io::Error::other("the model's timer failed");
        woken.await.map_err(failed)
    }

    fn start(&self) -> io::Result<Sleepers> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "what took its place is unsafe code; this file is owned, and closed with it"
        )]
        let timer = Arc::new(AsyncFd::new(timer)?);
        let waking = wake_all(
            self.sleepers.clone(),
            timer.clone(),
            self.runtime.clock.clone(),
        );
        Ok(Sleepers {
            due: BinaryHeap::new(),
            number: 0,
            timer,
            waking: self.runtime.tasks.spawn("model-timer", waking),
        })
    }
}

/// Sets the timer to `at`.
fn set(timer: &AsyncFd<OwnedFd>, at: Instant, clock: &Clock) -> io::Result<()> {
    // Not zero, which would stop it.
    let left = at
        .saturating_duration_since(clock.monotonic())
        .max(Duration::from_nanos(1));
    let failed = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(left).map_err(failed)?,
    };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(())
}

async fn wake_all(
    sleepers: Arc<Mutex<Option<Sleepers>>>,
    timer: Arc<AsyncFd<OwnedFd>>,
    clock: Clock,
) {
    // Whoever sleeps learns of a failure as its sender goes.
    while wake_due(&sleepers, &timer, &clock).await.is_ok() {}
    *sleepers.lock() = None;
}

/// Waits for the timer, and wakes whose time has come.
async fn wake_due(
    sleepers: &Mutex<Option<Sleepers>>,
    timer: &AsyncFd<OwnedFd>,
    clock: &Clock,
) -> io::Result<()> {
    let mut ready = timer.readable().await?;
    let read = |timer: &AsyncFd<OwnedFd>| Ok(rustix::io::read(timer, &mut [0; 8])?);
    if let Ok(read) = ready.try_io(read) {
        read?;
    }
    let mut sleepers = sleepers.lock();
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    let sleepers = sleepers.as_mut().ok_or_else(gone)?;
    let now = clock.monotonic();
    while let Some(Reverse(first)) = sleepers.due.peek() {
        if first.at > now {
            return set(timer, first.at, clock);
        }
        if let Some(Reverse(due)) = sleepers.due.pop() {
            // Whoever slept may have given up.
            let _ = due.wake.send(());
        }
    }
    Ok(())
}
