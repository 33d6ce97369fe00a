//! One run from seed to verdict.

use std::sync::Arc;

use tidemill_invariants::log::Batch;
use tidemill_store::{Store, StoreOptions, testing::FaultyBackend};

use crate::{
    admin::administrate,
    broker::{HARSHNESS_END, LATE_MAX},
    check::{Finding, judge},
    history::{Fate, FinalPartition, Send},
    nemesis::{bring_up, torment},
    producer::{probe, produce},
    reader::{read, read_all},
    world::{Pace, World},
};

/// How long the workload goes on, at most, in virtual milliseconds.
const WORKLOAD_MS: u64 = 85_000;
/// How long clients may take to end once the store is well.
const DRAIN_MS: u64 = 120_000;

/// No run takes longer, in virtual time.
const RUN_MAX: std::time::Duration = std::time::Duration::from_secs(4 * 3_600);

/// What a run found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The event log; equal for equal seeds.
    pub log: Vec<String>,
    /// What must never be; empty for a good run.
    pub findings: Vec<Finding>,
    /// Sends that were acknowledged.
    pub acknowledged: usize,
    /// Broker incarnations.
    pub brokers: usize,
    /// PUTs that were sent a second time while the first was under way.
    pub hedges: u64,
}

/// Runs one seed on a runtime of its own.
///
/// # Panics
/// If the runtime cannot be built.
#[must_use]
pub fn run_seed(seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs no more than memory");
    runtime.block_on(simulate(seed))
}

/// One run; one that does not end is a finding, too.
async fn simulate(seed: u64) -> Outcome {
    let world = World::new(seed);
    let live = live(&world);
    let findings = match world.runtime.clock.timeout(RUN_MAX, live).await {
        Ok(findings) => findings,
        Err(_) => {
            let mut findings = world.with_history(|history| history.violations.clone());
            findings.push("L1: the run does not end".to_owned());
            findings
        }
    };
    let (log, acknowledged) = world.with_history(|history| {
        let acked = |send: &&Send| matches!(send.fate, Fate::Acked(_));
        (
            history.log.clone(),
            history.sends.iter().filter(acked).count(),
        )
    });
    Outcome {
        seed,
        log,
        findings,
        acknowledged,
        brokers: world.broker_count(),
        hedges: world.hedges(),
    }
}

async fn live(world: &Arc<World>) -> Vec<Finding> {
    let entropy = world.fork();
    let harshness = entropy.below(HARSHNESS_END);
    bring_up(world, harshness).await;
    let tasks = &world.runtime.tasks;
    let mut clients = vec![tasks.spawn("admin", administrate(Arc::clone(world)))];
    for number in 0..3 {
        let client = produce(Arc::clone(world), number, number != 2);
        clients.push(tasks.spawn("producer", client));
    }
    for _ in 0..2 {
        clients.push(tasks.spawn("reader", read(Arc::clone(world))));
    }
    let nemesis = tasks.spawn("nemesis", torment(Arc::clone(world), harshness));
    world
        .sleep_ms(WORKLOAD_MS / 2 + entropy.below(WORKLOAD_MS / 2))
        .await;
    // What has begun is to come to its end.
    while world.pace() == Pace::Rush {
        world.sleep_ms(250).await;
    }
    world.stop();
    heal(world, nemesis, clients).await;
    let mut findings = finish(world, &entropy).await;
    if world.runtime.tasks.panics() > 0 {
        findings.push("a task panicked".to_owned());
    }
    findings
}

/// The store is well; all clients end (L1).
async fn heal(
    world: &Arc<World>,
    nemesis: tidemill_runtime::TaskHandle<Vec<tidemill_runtime::TaskHandle<()>>>,
    clients: Vec<tidemill_runtime::TaskHandle<()>>,
) {
    let heal_all = || world.backends().iter().for_each(FaultyBackend::heal);
    heal_all();
    world.note("healed");
    // It may be in the midst of a start.
    let starts = nemesis.join().await.unwrap_or_default();
    heal_all();
    for start in starts {
        // However it ends.
        let _ = start.join().await;
    }
    heal_all();
    if world.broker().is_none() {
        bring_up(world, 0).await;
    }
    let deadline = world.now_ms() + i64::try_from(DRAIN_MS).unwrap_or(0);
    for client in clients {
        let left = u64::try_from(deadline - world.now_ms()).unwrap_or(0);
        let limit = std::time::Duration::from_millis(left);
        match world.runtime.clock.timeout(limit, client.join()).await {
            Ok(Ok(())) => {}
            Ok(Err(panic)) => world.violate(panic.to_string()),
            Err(_) => {
                world.violate("L1: a client did not end on a healthy store".to_owned());
                return;
            }
        }
    }
}

/// All late writes arrive; then two more brokers read everything, the second after a clean stop.
async fn finish(world: &Arc<World>, entropy: &tidemill_runtime::Entropy) -> Vec<Finding> {
    for broker in world.brokers_up() {
        if entropy.chance(0.3) {
            broker.stop(world).await;
        } else {
            broker.kill(world);
        }
    }
    world.runtime.clock.sleep(LATE_MAX * 2).await;
    let Some(broker) = bring_up(world, 0).await else {
        return without_a_start(world);
    };
    for topic in world.topics() {
        for index in 0..topic.partitions {
            let topic = topic.id;
            probe(world, tidemill_wire::ids::PartitionId { topic, index }).await;
        }
    }
    let first = all_partitions(world, &broker).await;
    let mut findings = world.with_history(|history| judge(history, &first));
    if !broker.stop(world).await {
        findings.push("a clean stop failed on a healthy store".to_owned());
    }
    let Some(again) = bring_up(world, 0).await else {
        return without_a_start(world);
    };
    let second = all_partitions(world, &again).await;
    for (before, after) in first.iter().zip(&second) {
        // Retention may have moved the log start meanwhile.
        let start = after.marks.log_start;
        let (one, other) = (
            kept_of(&before.records, start),
            kept_of(&after.records, start),
        );
        if let Err(broken) = tidemill_invariants::log::same_bytes(&one, &other) {
            findings.push(format!("{broken}: {}, after a stop", before.partition));
        }
    }
    again.kill(world);
    findings.extend(check_objects(world).await);
    findings
}

/// Records at or above `start`, each as a batch of its own.
fn kept_of(records: &[(i64, u64)], start: i64) -> Vec<Batch> {
    let kept = records.iter().filter(|(offset, _)| *offset >= start);
    kept.map(|(offset, content)| Batch {
        base: *offset,
        last: *offset,
        content: *content,
        producer: None,
    })
    .collect()
}

fn without_a_start(world: &World) -> Vec<Finding> {
    let mut findings = world.with_history(|history| history.violations.clone());
    findings.push("the last start failed".to_owned());
    findings
}

/// I18-I20, I22: everything listed is there and whole, everything else is somebody's to delete.
async fn check_objects(world: &Arc<World>) -> Vec<Finding> {
    let backend = match world.medium.open(&world.runtime, true).await {
        Ok(backend) => backend,
        Err(error) => return vec![format!("fsck cannot open the store: {error}")],
    };
    let patience = std::time::Duration::from_secs(10);
    let store = Store::new(backend, world.runtime.clone(), StoreOptions::default());
    match tidemill_cluster::fsck::fsck(&store, true, patience, &|_| {}).await {
        Ok(report) => {
            let damage = report.damage.iter().map(|f| format!("I18 damage: {f}"));
            let garbage = report.garbage.iter().filter(|f| !world.is_late(&f.key));
            let garbage = garbage.map(|f| format!("I20 garbage: {f}"));
            world.note(&format!("fsck: {} objects", report.objects));
            let counted = report.objects + report.pending + report.garbage.len() as u64;
            let stored = store
                .list_all("")
                .await
                .map_or(counted, |all| all.len() as u64);
            let uncounted = (report.damage.is_empty() && counted != stored)
                .then(|| format!("I22: fsck counts {counted} of {stored} objects: {report:?}"));
            damage.chain(garbage).chain(uncounted).collect()
        }
        Err(error) => vec![format!("fsck failed: {error}")],
    }
}

async fn all_partitions(
    world: &Arc<World>,
    broker: &Arc<crate::broker::Broker>,
) -> Vec<FinalPartition> {
    let mut all = Vec::new();
    for topic in world.topics() {
        for index in 0..topic.partitions {
            let topic = topic.id;
            let id = tidemill_wire::ids::PartitionId { topic, index };
            match broker.started.log.partition(id) {
                Some(partition) => all.push(read_all(world, broker.index, &partition).await),
                None => world.violate(format!("I1: partition {id} is gone")),
            }
        }
    }
    all
}
