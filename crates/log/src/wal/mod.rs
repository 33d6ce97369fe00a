//! One writer's WAL: queue, engine, commit, freshness.

pub(crate) mod append;
mod commit;
mod engine;
mod fresh;
mod lane;
mod object;
mod queue;
mod space;
mod stage;
pub(crate) mod ticket;
mod tuning;
mod window;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use tidemill_runtime::{Instant, Runtime};
use tidemill_store::NumberedLog;
use tidemill_wire::ids::{PartitionId, WriterId};
use tokio::sync::{Notify, watch};

use self::{engine::Engine, fresh::Freshness, object::Landed, queue::Queue};
pub use self::{
    object::{StartError, start},
    space::SpaceTaken,
};
use crate::{
    error::{AppendFailed, DrainError, Superseded},
    keys,
    limits::LogLimits,
    log::LogOptions,
    partition::{Partition, TailBudget},
    read::Reader,
    recover::RecoveredPartition,
    stages::Stages,
};

/// How far the WAL is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// One past the highest number a PUT was sent for.
    pub next: u64,
    /// All lower numbers landed, and their entries are committed.
    pub decided_below: u64,
    /// The largest number at or below `decided_below` that no entry straddles.
    pub roll_cut: u64,
}

/// What appenders, engine and readers of the WAL share.
pub struct Wal {
    objects: NumberedLog,
    writer: WriterId,
    cluster_id: [u8; 16],
    runtime: Runtime,
    limits: LogLimits,
    queue: Mutex<Queue>,
    /// While its task runs and nobody takes a turn.
    engine: Mutex<Option<Box<Engine>>>,
    /// PUTs whose outcome the engine does not know yet.
    landed: Mutex<VecDeque<Landed>>,
    /// The queue changed, or a PUT landed.
    pushed: Notify,
    /// Requests of which some entries are appended and some are not.
    gathering: AtomicUsize,
    pending_bytes: AtomicU64,
    /// Entries that are neither committed nor failed.
    unsettled: AtomicU64,
    /// Pending bytes fell, or the log stopped.
    settled: Notify,
    progress: Mutex<Progress>,
    /// A PUT was decided, or the log stopped.
    decided: Notify,
    replay_from: AtomicU64,
    /// First and last number of entries in several objects, as far as a replay may read them.
    fragmented: Mutex<Vec<(u64, u64)>>,
    /// See [`crate::log::Log::forgotten_below`].
    forgotten_below: AtomicU64,
    stop: watch::Sender<Option<AppendFailed>>,
    freshness: Freshness,
    budget: Arc<TailBudget>,
    space: space::SpaceGate,
    stages: Stages,
    /// What the writer leads.
    pub(crate) partitions: RwLock<BTreeMap<PartitionId, Arc<Partition>>>,
}

/// Entries appended while it lives leave together, as far as one PUT holds them.
#[derive(Debug)]
#[must_use = "dropped at once, it gathers nothing"]
pub struct Gather(Arc<Wal>);

impl Drop for Gather {
    fn drop(&mut self) {
        self.0.gathering.fetch_sub(1, Ordering::AcqRel);
        if std::thread::panicking() {
            self.0.pushed.notify_one();
        } else {
            self.0.turn_of_appender();
        }
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wal")
            .field("writer", &self.writer)
            .finish_non_exhaustive()
    }
}

impl Wal {
    pub(crate) fn open(options: &LogOptions, budget: Arc<TailBudget>) -> Arc<Self> {
        // Object 0 was written by the start sequence.
        let progress = Progress {
            next: 1,
            decided_below: 1,
            roll_cut: 1,
        };
        let wal = Arc::new(Self {
            objects: NumberedLog::new(options.store.clone(), keys::wal_prefix(options.writer)),
            writer: options.writer,
            cluster_id: options.cluster_id,
            runtime: options.runtime.clone(),
            limits: options.limits.clone(),
            queue: Mutex::new(Queue::new(&options.limits)),
            engine: Mutex::default(),
            landed: Mutex::default(),
            pushed: Notify::new(),
            gathering: AtomicUsize::new(0),
            pending_bytes: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
            settled: Notify::new(),
            progress: Mutex::new(progress),
            decided: Notify::new(),
            replay_from: AtomicU64::new(0),
            fragmented: Mutex::new(Vec::new()),
            forgotten_below: AtomicU64::new(0),
            stop: watch::Sender::new(None),
            freshness: Freshness::new(options.exclusive),
            budget,
            space: space::SpaceGate::default(),
            stages: Stages::default(),
            partitions: RwLock::default(),
        });
        options
            .runtime
            .tasks
            .spawn("wal-engine", Engine::new(wal.clone()).run());
        wal
    }

    pub(crate) fn adopt(
        &self,
        recovered: RecoveredPartition,
        reader: Arc<Reader>,
    ) -> Arc<Partition> {
        Partition::open(recovered, self.budget.clone(), reader)
    }

    pub(crate) fn budget(&self) -> &TailBudget {
        &self.budget
    }

    pub(crate) fn objects(&self) -> &NumberedLog {
        &self.objects
    }

    pub(crate) fn stages(&self) -> &Stages {
        &self.stages
    }

    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending_bytes.load(Ordering::Acquire)
    }

    pub(crate) fn progress(&self) -> Progress {
        *self.progress.lock()
    }

    pub(crate) fn set_replay_from(&self, number: u64) {
        self.replay_from.fetch_max(number, Ordering::AcqRel);
        self.fragmented.lock().retain(|(_, last)| *last >= number);
    }

    pub(crate) fn note_fragmented(&self, first: u64, last: u64) {
        self.fragmented.lock().push((first, last));
    }

    /// The largest number up to `cut`, which lies at or below the roll cut, that no entry
    /// straddles.
    pub(crate) fn clean_cut(&self, mut cut: u64) -> u64 {
        let fragmented = self.fragmented.lock();
        let straddles = |cut: u64| {
            let mut entries = fragmented.iter();
            entries.find(|(first, last)| *first < cut && cut <= *last)
        };
        while let Some((first, _)) = straddles(cut) {
            cut = *first;
        }
        cut
    }

    pub(crate) fn forgotten_below(&self) -> u64 {
        self.forgotten_below.load(Ordering::Acquire)
    }

    /// Notes that something in this number is of a dropped partition.
    pub(crate) fn note_forgotten(&self, number: u64) {
        self.forgotten_below.fetch_max(number + 1, Ordering::AcqRel);
    }

    /// Why the log takes nothing more, if so.
    pub(crate) fn stopped(&self) -> Option<AppendFailed> {
        *self.stop.borrow()
    }

    /// Stops for good; only the first reason counts. The engine fails what is pending.
    pub(crate) fn stop(&self, why: AppendFailed) {
        let first = self.stop.send_if_modified(|stopped| {
            let first = stopped.is_none();
            stopped.get_or_insert(why);
            first
        });
        if first {
            self.queue.lock().close(why);
            self.settled.notify_waiters();
            self.decided.notify_waiters();
        }
    }

    pub(crate) fn gather(self: &Arc<Self>) -> Gather {
        self.gathering.fetch_add(1, Ordering::AcqRel);
        Gather(self.clone())
    }

    pub(crate) async fn fenced(&self) {
        let mut stop = self.stop.subscribe();
        // The sender lives as long as `self`.
        let _ = stop
            .wait_for(|why| *why == Some(AppendFailed::Fenced))
            .await;
    }

    /// True if producers may go on.
    pub(crate) fn is_below_limit(&self) -> bool {
        self.pending_bytes() < self.limits.pending_bytes_max && !self.is_space_low()
    }

    /// True while an eighth more is pending than producers may fill.
    pub(crate) fn is_far_above_limit(&self) -> bool {
        let limit = self.limits.pending_bytes_max;
        self.pending_bytes() >= limit.saturating_add(limit / 8)
    }

    pub(crate) async fn below_limit(&self) {
        loop {
            let settled = self.settled.notified();
            if self.is_below_limit() || self.stopped().is_some() {
                return;
            }
            if self.is_space_low() {
                self.space_may_have_grown().await;
            } else {
                settled.await;
            }
        }
    }

    pub(crate) async fn drain(&self, deadline: Instant) -> Result<(), DrainError> {
        self.queue.lock().drain();
        self.pushed.notify_one();
        // Who waits for space waits in vain.
        self.settled.notify_waiters();
        loop {
            let settled = self.settled.notified();
            match self.stopped() {
                Some(AppendFailed::Fenced) => return Err(DrainError::Fenced),
                Some(AppendFailed::Closed) => return Err(DrainError::Closed),
                None => {}
            }
            if self.unsettled.load(Ordering::Acquire) == 0 {
                return Ok(());
            }
            if self
                .runtime
                .clock
                .timeout_at(deadline, settled)
                .await
                .is_err()
            {
                let pending_bytes = self.pending_bytes();
                return Err(DrainError::Deadline { pending_bytes });
            }
        }
    }

    pub(crate) async fn fresh_within(&self, age: Duration) -> Result<(), Superseded> {
        let now = self.runtime.clock.monotonic();
        match now.checked_sub(age) {
            Some(since) => self.fresh(since).await,
            None => self.fresh(now).await,
        }
    }
}
