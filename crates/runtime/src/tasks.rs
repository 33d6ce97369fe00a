//! The task registry: each task has a name, its panic is seen, shutdown can wait for all of them.
#![expect(clippy::disallowed_methods, reason = "the one place that may spawn")]

use std::{
    collections::BTreeMap,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::pool::Pool;

/// A task ended by a panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPanic {
    /// The task's name.
    pub name: &'static str,
    /// What it said.
    pub message: String,
}

impl std::fmt::Display for TaskPanic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "task `{}` panicked: {}", self.name, self.message)
    }
}

impl std::error::Error for TaskPanic {}

/// A spawned task. Dropping the handle leaves the task running.
#[derive(Debug)]
pub struct TaskHandle<T> {
    name: &'static str,
    inner: tokio::task::JoinHandle<Result<T, TaskPanic>>,
}

impl<T> TaskHandle<T> {
    /// Waits for the task's result.
    ///
    /// # Errors
    /// [`TaskPanic`] if it panicked or was aborted.
    pub async fn join(self) -> Result<T, TaskPanic> {
        let name = self.name;
        self.inner.await.unwrap_or_else(|error| {
            Err(TaskPanic {
                name,
                message: error.to_string(),
            })
        })
    }

    /// Stops the task at its next await.
    pub fn abort(&self) {
        self.inner.abort();
    }
}

#[derive(Debug)]
struct Running {
    name: &'static str,
    /// None for blocking work, which cannot be stopped.
    abort: Option<tokio::task::AbortHandle>,
}

#[derive(Debug)]
struct Shared {
    running: Mutex<BTreeMap<u64, Running>>,
    next_id: AtomicU64,
    count: watch::Sender<usize>,
    panics: AtomicU64,
    /// For blocking work; none runs it in place, so that a simulation stays on one thread.
    pool: Option<Pool>,
}

/// Spawns and counts tasks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tasks(Arc<Shared>);

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

struct Registered(Arc<Shared>, u64);

impl Drop for Registered {
    fn drop(&mut self) {
        let left = {
            let mut running = self.0.running.lock();
            running.remove(&self.1);
            running.len()
        };
        self.0.count.send_replace(left);
    }
}

impl Tasks {
    /// A registry whose blocking work runs on threads of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::build(Some(Pool::default()))
    }

    /// A registry whose blocking work runs in place (simulation).
    #[must_use]
    pub fn inline() -> Self {
        Self::build(None)
    }

    fn build(pool: Option<Pool>) -> Self {
        Self(Arc::new(Shared {
            running: Mutex::new(BTreeMap::new()),
            next_id: AtomicU64::new(0),
            count: watch::channel(0).0,
            panics: AtomicU64::new(0),
            pool,
        }))
    }

    fn register(&self, name: &'static str) -> Registered {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let count = {
            let mut running = self.0.running.lock();
            running.insert(id, Running { name, abort: None });
            running.len()
        };
        self.0.count.send_replace(count);
        Registered(self.0.clone(), id)
    }

    /// Spawns `future` under `name`. A panic is logged, counted and handed to whoever joins.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> TaskHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let registered = self.register(name);
        let id = registered.1;
        let inner = tokio::spawn(async move {
            let result = AssertUnwindSafe(future).catch_unwind().await;
            let result = result.map_err(|panic| registered.0.panicked(name, &*panic));
            drop(registered);
            result
        });
        // Unless it has ended already.
        if let Some(running) = self.0.running.lock().get_mut(&id) {
            running.abort = Some(inner.abort_handle());
        }
        TaskHandle { name, inner }
    }

    /// Runs `work`, which may block, away from the async threads.
    ///
    /// # Errors
    /// [`TaskPanic`] if it panicked.
    pub async fn blocking<T, F>(&self, name: &'static str, work: F) -> Result<T, TaskPanic>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let registered = self.register(name);
        let run = move || {
            std::panic::catch_unwind(AssertUnwindSafe(work))
                .map_err(|panic| registered.0.panicked(name, &*panic))
        };
        let Some(pool) = &self.0.pool else {
            return run();
        };
        let (done, result) = oneshot::channel();
        let runtime = tokio::runtime::Handle::current();
        pool.submit(Box::new(move || {
            // It may spawn tasks and set timers as if it ran where it was asked for.
            let _entered = runtime.enter();
            // Whoever asked may be gone.
            drop(done.send(run()));
        }));
        result.await.unwrap_or_else(|_| {
            Err(TaskPanic {
                name,
                message: "was not run".to_owned(),
            })
        })
    }

    /// Threads that do blocking work or wait for it.
    #[must_use]
    pub fn blocking_threads(&self) -> usize {
        self.0.pool.as_ref().map_or(0, Pool::threads)
    }

    /// Names of the running tasks, sorted.
    #[must_use]
    pub fn running(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.0.running.lock().values().map(|r| r.name).collect();
        names.sort_unstable();
        names
    }

    /// Stops all tasks at their next await, as if the process had died: for the simulation.
    /// Blocking work goes on.
    pub fn abort_all(&self) {
        for running in self.0.running.lock().values() {
            if let Some(abort) = &running.abort {
                abort.abort();
            }
        }
    }

    /// Number of panics seen so far.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.0.panics.load(Ordering::Relaxed)
    }

    /// Waits until no task runs.
    pub async fn idle(&self) {
        let mut count = self.0.count.subscribe();
        // The sender lives as long as `self`, so this never errs.
        let _ = count.wait_for(|left| *left == 0).await;
    }
}

impl Shared {
    fn panicked(&self, name: &'static str, panic: &(dyn std::any::Any + Send)) -> TaskPanic {
        self.panics.fetch_add(1, Ordering::Relaxed);
        let message = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "unknown panic".to_owned());
        tracing::error!(task = name, message, "task panicked");
        TaskPanic { name, message }
    }
}
