//! Futures that run beside each other and whose results are taken in order.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::{StreamExt, stream::FuturesOrdered, task::AtomicWaker};

/// Polls in a row of futures that wake themselves, before other tasks get their turn.
const POLLS_MAX: usize = 3;

/// Nobody polls: whoever wakes wakes the task.
const RESTING: u8 = 0;
/// The task polls.
const POLLING: u8 = 1;
/// The task polls, and has been woken since it began.
const WOKEN: u8 = 2;

/// Stands between the futures and their task. [`FuturesOrdered`] wakes its task whenever it has
/// polled as many futures as it holds, so with one request in flight each time. Passed on, that
/// would be another turn of the whole connection, and Tokio would wake a second thread for it, as
/// for any task that yields: a fifth of the time that a short request takes.
#[derive(Debug, Default)]
struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let order = Ordering::AcqRel;
        let noted = self
            .state
            .compare_exchange(POLLING, WOKEN, order, Ordering::Acquire);
        if noted == Err(RESTING) {
            self.task.wake();
        }
    }
}

impl Bell {
    fn begin(&self) {
        self.state.store(POLLING, Ordering::Release);
    }

    /// The futures wait; true if one of them has been woken meanwhile.
    fn rest(&self) -> bool {
        self.state.swap(RESTING, Ordering::AcqRel) == WOKEN
    }
}

/// The requests of a connection that run, oldest first.
pub(super) struct InFlight<F: Future> {
    futures: FuturesOrdered<F>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<F: Future> InFlight<F> {
    pub fn new() -> Self {
        let bell = Arc::new(Bell::default());
        Self {
            futures: FuturesOrdered::new(),
            waker: Waker::from(Arc::clone(&bell)),
            bell,
        }
    }

    pub fn push(&mut self, future: F) {
        self.futures.push_back(future);
    }

    pub fn len(&self) -> usize {
        self.futures.len()
    }

    pub fn is_empty(&self) -> bool {
        self.futures.is_empty()
    }

    /// The result of the oldest one; `None` if there is none.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        self.bell.task.register(cx.waker());
        for _ in 0..POLLS_MAX {
            self.bell.begin();
            let polled = self
                .futures
                .poll_next_unpin(&mut Context::from_waker(&self.waker));
            let woken = self.bell.rest();
            if polled.is_ready() || !woken {
                return polled;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
