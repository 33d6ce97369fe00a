//! Broker incarnations: start, kill, freeze, clean stop.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tidemill_cluster::{StartError, StartOptions, Started, format::BrokerRegistration, start};
use tidemill_log::{
    LogLimits,
    format::checkpoint::Checkpoint,
    roll::{Roll, RollOptions, SoleLeader},
};
use tidemill_runtime::{Runtime, Tasks};
use tidemill_store::{
    Backend as _, HedgeMode, HedgeOptions, Store, StoreOptions,
    testing::{Fault, FaultPlan, FaultyBackend, Operation, Phase, Step},
};
use tidemill_wire::ids::NodeId;

use crate::{medium::Medium, world::World};

/// A broker incarnation that has started.
pub struct Broker {
    /// Its number, from 0.
    pub index: usize,
    /// Its tasks end with it.
    pub runtime: Runtime,
    /// Its own way to the store: it alone may be cut off.
    pub backend: FaultyBackend,
    /// The core.
    pub started: Started,
    /// The roll.
    pub roll: Arc<Roll>,
    /// What it reads is spoilt on the way: errors say nothing.
    pub reads_garbage: AtomicBool,
    up: AtomicBool,
}

impl Broker {
    /// True until it is killed or stopped.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed) && !self.started.log.is_fenced()
    }

    /// True if no broker that has started was registered after it: a start that stalled may end
    /// after that of its successor.
    pub fn is_newest(&self, world: &World) -> bool {
        world.newest_writer() == Some(self.started.cluster.writer())
    }

    /// Kills it: no task runs on. What it has sent may still arrive.
    pub fn kill(&self, world: &World) {
        self.end();
        let how = world.medium.broker_died(&self.runtime.entropy);
        if !how.is_empty() {
            world.note(&format!("broker {} died {how}", self.index));
        }
    }

    fn end(&self) {
        self.up.store(false, Ordering::Relaxed);
        self.runtime.tasks.abort_all();
        self.started.cluster.close();
        self.started.log.close();
    }

    /// Stops it cleanly; false if that failed (a later start seals it).
    pub async fn stop(&self, world: &World) -> bool {
        self.up.store(false, Ordering::Relaxed);
        let deadline = world.runtime.clock.monotonic() + Duration::from_secs(30);
        let stopped = self.roll.shutdown(deadline).await.is_ok();
        self.end();
        world.medium.broker_stopped();
        stopped
    }
}

/// Kinds of bad days are below this: a good one, worse and worse ones, and one without surprises
/// but with many errors.
pub const HARSHNESS_END: u64 = HARSHEST + 1;
const HARSHEST: u64 = 4;

/// Faults that a correct store may show. Late writes stay within minutes, so that a run ends.
pub fn plan(harshness: u64) -> FaultPlan {
    let seconds = Duration::from_secs;
    let plan = FaultPlan::none().delayed(Duration::from_millis(1), Duration::from_millis(60));
    if harshness == 0 {
        return plan;
    }
    if harshness == HARSHEST {
        // Errors, lost answers and stalls, 5 % each.
        return plan
            .rate(Fault::Throttled, 0.025)
            .rate(Fault::ErrorBefore, 0.025)
            .rate(Fault::ErrorAfter, 0.03)
            .rate(Fault::TimeoutAfter(seconds(15)), 0.01)
            .rate(Fault::Late(seconds(2)), 0.01)
            .rate(Fault::Stall(seconds(1)), 0.05);
    }
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let scale = harshness as f64 / 2.0;
    let rates = [
        (Fault::Throttled, 0.02),
        (Fault::ErrorBefore, 0.01),
        (Fault::ErrorAfter, 0.02),
        (Fault::TimeoutBefore(seconds(15)), 0.003),
        (Fault::TimeoutAfter(seconds(15)), 0.003),
        (Fault::Stall(seconds(3)), 0.01),
        (Fault::Late(seconds(7)), 0.01),
        (Fault::Late(LATE_MAX), 0.005),
        (Fault::Twin(seconds(2)), 0.01),
        (Fault::Twin(LATE_MAX), 0.01),
        (Fault::ExistsAfter, 0.01),
        (Fault::Conflict, 0.01),
        (Fault::NotFound, 0.005),
        (Fault::Torn, 0.005),
        (Fault::Truncated, 0.01),
    ];
    rates
        .into_iter()
        .fold(plan, |plan, (fault, p)| plan.rate(fault, p * scale))
}

/// No write arrives later than this.
pub const LATE_MAX: Duration = Duration::from_secs(300);

fn limits() -> LogLimits {
    let mut limits = LogLimits::bucket();
    // Small, so that a short run rolls, cuts, merges and trims.
    limits.fragment_bytes = 600;
    limits.follows_store = false;
    limits.bulk_entry_bytes = 400;
    limits.object_target_bytes = 1_500;
    limits.pending_bytes_max = 64 << 10;
    limits.tail_bytes_max = 4 << 10;
    limits.roll = RollOptions {
        bytes: 3_000,
        interval: Duration::from_secs(20),
        segment_bytes_min: 1_200,
        segment_bytes_max: 4_000,
        set_bytes_max: 4_000,
        grace: Duration::from_secs(10),
        retention_interval: Duration::from_secs(15),
        recent_max: 4,
        merge_fan_in: 3,
        uploads: 2,
    };
    limits
}

/// Twins from the first PUT on, and by the estimate soon after. A disk is never hedged.
fn hedging(is_disk: bool) -> HedgeOptions {
    HedgeOptions {
        mode: if is_disk {
            HedgeMode::Off
        } else {
            HedgeMode::Always
        },
        measured_min: 20,
        unmeasured_delay: Duration::from_millis(50),
    }
}

/// A start failed.
pub enum Failure {
    /// Another broker was quicker.
    Superseded,
    /// For this reason.
    Other(String),
}

/// A process that is frozen as a whole (`patient`) times nothing out: the answer is there when it
/// wakes up.
fn store_of(world: &World, backend: &FaultyBackend, runtime: &Runtime, patient: bool) -> Store {
    let options = StoreOptions {
        request_timeout: Duration::from_secs(if patient { 600 } else { 5 }),
        hedge: hedging(world.medium.is_disk()),
        ..StoreOptions::default()
    };
    Store::new(Arc::new(backend.clone()), runtime.clone(), options)
}

/// Starts the next broker, which hangs once it comes to `step`.
pub async fn start_broker(
    world: &Arc<World>,
    harshness: u64,
    step: Option<Step>,
) -> Result<Arc<Broker>, Failure> {
    let entropy = world.fork();
    let runtime = Runtime {
        clock: world.runtime.clock.clone(),
        entropy: entropy.fork(),
        tasks: Tasks::inline(),
    };
    let below = world
        .medium
        .open(&runtime, false)
        .await
        .map_err(Failure::Other)?;
    // A disk neither loses answers nor delivers writes late.
    let harshness = if world.medium.is_disk() { 0 } else { harshness };
    let seed = entropy.next_u64();
    let backend = FaultyBackend::new(below, world.runtime.clone(), seed, plan(harshness));
    watch(world, &backend);
    let step_given = step.is_some();
    if let Some(step) = step {
        backend.pause_at(step);
    }
    let store = store_of(world, &backend, &runtime, step_given || entropy.chance(0.3));
    let registration = BrokerRegistration::new(NodeId(1), runtime.clock.now_ms());
    let mut options = StartOptions::new(store, registration, limits());
    options.snapshot_every = 8;
    options.exclusive = world.medium.is_disk();
    let started = match start(options).await {
        Ok(started) => started,
        Err(error) => {
            runtime.tasks.abort_all();
            return Err(match error {
                StartError::Superseded => Failure::Superseded,
                other => Failure::Other(other.to_string()),
            });
        }
    };
    let roll = Roll::start(Arc::clone(&started.log), Arc::new(SoleLeader));
    let broker = Arc::new(Broker {
        index: world.broker_count(),
        runtime,
        backend,
        started,
        roll,
        reads_garbage: AtomicBool::new(false),
        up: AtomicBool::new(true),
    });
    world.note(&format!(
        "broker {} is up as writer {}",
        broker.index,
        broker.started.cluster.writer()
    ));
    if std::env::var_os("TIDEMILL_TRACE").is_some() {
        for partition in broker.started.log.partitions() {
            world.note(&format!("  {:?} {:?}", partition.id(), partition.extents()));
        }
    }
    world.add_broker(Arc::clone(&broker));
    Ok(broker)
}

/// A write that takes longer has been held up on its way.
const PROMPT_MS: i64 = 1_000;

/// Notes writes of zombies and those that arrive late or twice, which nobody can collect; with
/// `TIDEMILL_TRACE` set, every object that comes or goes is in the event log.
fn watch(world: &Arc<World>, backend: &FaultyBackend) {
    let traced = std::env::var_os("TIDEMILL_TRACE").is_some();
    let number = world.add_backend(backend.clone());
    let (world, index) = (Arc::downgrade(world), world.broker_count());
    let sent: Mutex<BTreeMap<u64, i64>> = Mutex::default();
    backend.on_event(move |event| {
        let Some(world) = world.upgrade() else {
            return;
        };
        world.witness(number, event);
        let what = match (event.operation, &event.phase) {
            (Operation::Put | Operation::Copy, Phase::Sent) => {
                sent.lock().insert(event.request, world.now_ms());
                return;
            }
            (Operation::Put | Operation::Copy, Phase::Written(true)) => {
                let sent = sent.lock().get(&event.request).copied().unwrap_or(0);
                let late = world.now_ms() - sent > PROMPT_MS;
                let zombie = world.broker_count() > index + 1;
                world.created(&event.key, late || zombie);
                "created"
            }
            (Operation::Delete, Phase::Landed(Ok(()))) => "deleted",
            _ => return,
        };
        if traced && !event.key.starts_with("meta") {
            world.note(&format!("b{index} {what} {}", event.key));
            describe(&world, &event.key);
        }
    });
}

fn describe(world: &World, key: &str) {
    if key.contains("/ckpt/")
        && let Medium::Bucket(memory) = &world.medium
        && let Some(Ok(bytes)) = memory.get(key).now_or_never()
        && let Ok((checkpoint, _)) = Checkpoint::decode(&bytes)
    {
        world.note(&format!(
            "  full {} replay from {} garbage {:?} cleanup {:?} dropped {:?}",
            checkpoint.full,
            checkpoint.replay_from,
            checkpoint.garbage,
            checkpoint.cleanup,
            checkpoint.dropped
        ));
    }
}
