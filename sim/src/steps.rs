//! Directed schedules: what chance alone hardly ever brings about.

use std::sync::{Arc, atomic::Ordering};

use tidemill_log::types::WAL_SPAN;
use tidemill_runtime::{Entropy, TaskHandle};
use tidemill_store::testing::{Fault, Operation, Rule, Step};

use crate::{
    broker::{Broker, plan, start_broker},
    nemesis::bring_up,
    world::{Pace, World},
};

/// How long a broker is given to come to a step.
const STEP_MS: u64 = 20_000;
/// How long a rush lasts at most, in which a whole span of the WAL is written, rolled and trimmed.
const RUSH_MS: u64 = 60_000;
/// A look at what has come about.
const TICK_MS: u64 = 250;

fn pick<T: Copy>(entropy: &Entropy, all: &[T]) -> T {
    let index = usize::try_from(entropy.below(all.len() as u64)).unwrap_or(0);
    all[index]
}

fn step(operation: Operation, key: &str, landed: bool, skip: u64) -> Step {
    Step {
        operation,
        key: key.to_owned(),
        landed,
        skip,
    }
}

/// Between any two requests of a broker that writes, rolls, trims and cleans up.
fn step_of_a_leader(entropy: &Entropy) -> Step {
    let (operation, key) = pick(
        entropy,
        &[
            // Twice: here lies the look.
            (Operation::Put, "/ckpt/"),
            (Operation::Put, "/ckpt/"),
            (Operation::List, "/ckpt/"),
            (Operation::Put, "/data/"),
            (Operation::Put, "/wal/"),
            (Operation::Delete, "/wal/"),
            (Operation::Delete, "/data/"),
            (Operation::List, "/wal/"),
        ],
    );
    step(operation, key, entropy.chance(0.7), entropy.below(3))
}

/// Between any two requests of a broker that seals.
fn step_of_a_sealer(entropy: &Entropy) -> Step {
    let markers = entropy.below(64);
    let (operation, key, skip) = pick(
        entropy,
        &[
            (Operation::List, "/wal/", 0),
            (Operation::List, "/wal/", 1),
            // Its own object 0 comes first.
            (Operation::Put, "/wal/", 1),
            (Operation::Put, "/wal/", 1 + markers),
            (Operation::List, "/ckpt/", 0),
            (Operation::List, "/ckpt/", 1),
            (Operation::Put, "/ckpt/", 0),
            (Operation::Put, "meta/", 1),
        ],
    );
    step(operation, key, entropy.chance(0.6), skip)
}

/// Waits until `done`, for at most so long; true if it is.
async fn until(world: &World, limit_ms: u64, done: impl Fn() -> bool) -> bool {
    let mut waited = 0;
    while waited < limit_ms && !world.stopping() {
        if done() {
            return true;
        }
        world.sleep_ms(TICK_MS).await;
        waited += TICK_MS;
    }
    done()
}

/// A broker stops in its tracks at a step; it dies there, or another takes over and it wakes up
/// during that or later.
pub async fn stop_at_a_step(
    world: &Arc<World>,
    entropy: &Entropy,
    broker: &Arc<Broker>,
    harshness: u64,
) {
    let step = step_of_a_leader(entropy);
    world.note(&format!("broker {} is to stop at {step:?}", broker.index));
    broker.backend.pause_at(step);
    let rolling = Arc::clone(broker);
    world.runtime.tasks.spawn("round", async move {
        // Whether it succeeds is of no interest.
        let _ = rolling.roll.round().await;
    });
    if !until(world, STEP_MS, || broker.backend.is_paused()).await {
        broker.backend.resume();
        return;
    }
    if entropy.chance(0.3) {
        world.note(&format!("broker {} dies there", broker.index));
        broker.kill(world);
        bring_up(world, harshness).await;
        return;
    }
    world.note(&format!("broker {} hangs there", broker.index));
    world.sleep_ms(entropy.below(3_000)).await;
    let sleep_ms = match entropy.below(3) {
        0 => entropy.below(2_000),
        _ => entropy.below(60_000),
    };
    wake_later(world, broker, sleep_ms);
    bring_up(world, harshness).await;
}

/// Wakes a broker that hangs.
pub fn wake_later(world: &Arc<World>, broker: &Arc<Broker>, after_ms: u64) {
    let (sleeper, watch) = (Arc::clone(broker), Arc::clone(world));
    world.runtime.tasks.spawn("sleeper", async move {
        watch.sleep_ms(after_ms).await;
        // At the end all are woken and well.
        if !watch.stopping() {
            watch.note(&format!("broker {} wakes up", sleeper.index));
            sleeper.backend.resume();
        }
    });
}

/// A start that stalls while it seals; meanwhile its victim lives on, at times in a rush, or is
/// dead, and others may seal as well. The start ends later.
pub async fn stalled_sealer(
    world: &Arc<World>,
    entropy: &Entropy,
    broker: &Arc<Broker>,
    harshness: u64,
) -> TaskHandle<()> {
    let in_a_rush = entropy.chance(0.35);
    let step = match in_a_rush {
        true => pick_rushed(entropy),
        false => step_of_a_sealer(entropy),
    };
    if !in_a_rush && entropy.chance(0.5) {
        world.note(&format!("broker {} is killed", broker.index));
        broker.kill(world);
    }
    world.note(&format!("a sealer is to stall at {step:?}"));
    let before = world.backends().len();
    let starting = Arc::clone(world);
    let start = world.runtime.tasks.spawn("stalled start", async move {
        // If it fails, others go on.
        let _ = start_broker(&starting, harshness, Some(step)).await;
    });
    let stalled = until(world, STEP_MS, || {
        let all = world.backends();
        all.get(before..)
            .is_some_and(|new| new.iter().any(|b| b.is_paused()))
    });
    if stalled.await {
        world.note("the sealer stalls");
        if in_a_rush {
            let writer = broker.started.cluster.writer();
            let far = world.next_wal_number(writer) + WAL_SPAN + 1;
            world.set_pace(Pace::Rush);
            until(world, RUSH_MS, || world.first_wal_number(writer) > far).await;
        } else {
            world.sleep_ms(entropy.below(20_000)).await;
            if entropy.chance(0.5) {
                bring_up(world, harshness).await;
            }
        }
        world.note("the sealer goes on");
    }
    if let Some(backend) = world.backends().get(before) {
        backend.resume();
    }
    if world.pace() == Pace::Rush {
        // Its victim does not know yet.
        world.sleep_ms(entropy.below(3_000)).await;
        world.set_pace(Pace::Usual);
    }
    start
}

/// Steps of a sealer that has seen the log, but closed nothing of it yet.
fn pick_rushed(entropy: &Entropy) -> Step {
    match entropy.below(3) {
        0 | 1 => step(Operation::List, "/wal/", true, 0),
        // Its own object 0 comes first.
        _ => step(Operation::Put, "/wal/", false, 1),
    }
}

/// A broker dies with holes in its WAL: some numbers never land, later ones do.
pub async fn holes(world: &Arc<World>, entropy: &Entropy, broker: &Arc<Broker>, harshness: u64) {
    let writer = broker.started.cluster.writer();
    let next = world.next_wal_number(writer);
    world.note(&format!(
        "broker {} gets holes from {next} on",
        broker.index
    ));
    let mut faults = plan(if world.medium.is_disk() { 0 } else { harshness });
    let mut number = next;
    for _ in 0..4 {
        number += 1 + entropy.below(4);
        let key = format!("/wal/{:020}/{number:020}", writer.0);
        faults = faults.rule(Rule::new(Operation::Put, key, Fault::ErrorBefore));
    }
    broker.backend.set_plan(faults);
    world.set_pace(Pace::Rush);
    until(world, 3_000, || world.next_wal_number(writer) > number + 2).await;
    world.set_pace(Pace::Usual);
    // What is under way may still land.
    world.sleep_ms(entropy.below(100)).await;
    broker.kill(world);
    bring_up(world, harshness).await;
}

/// One kind of request fails for a while.
pub async fn partial_outage(
    world: &Arc<World>,
    entropy: &Entropy,
    broker: &Arc<Broker>,
    harshness: u64,
) {
    let (operation, key) = pick(
        entropy,
        &[
            (Operation::Get, "/wal/"),
            (Operation::Get, "/data/"),
            (Operation::Put, "/data/"),
            (Operation::Put, "/ckpt/"),
            (Operation::List, "/ckpt/"),
            (Operation::List, "/wal/"),
            (Operation::Delete, "/"),
            (Operation::Put, "meta/"),
        ],
    );
    world.note(&format!("{operation:?} of {key} fails"));
    let harshness = if world.medium.is_disk() { 0 } else { harshness };
    let fails = Rule::new(operation, key, Fault::ErrorBefore);
    broker.backend.set_plan(plan(harshness).rule(fails));
    until(world, entropy.below(30_000), || false).await;
    broker.backend.set_plan(plan(harshness));
    world.note(&format!("{operation:?} of {key} works"));
}

/// A broker takes over and reads nothing but garbage of its predecessor's WAL for a while: its
/// rounds fail, and it must keep what it cannot publish yet.
pub async fn spoilt_takeover(
    world: &Arc<World>,
    entropy: &Entropy,
    broker: &Arc<Broker>,
    harshness: u64,
) {
    world.note(&format!("broker {} is killed", broker.index));
    broker.kill(world);
    // New bytes would bring about one round after the other, and nothing else.
    world.set_pace(Pace::Lull);
    let Some(heir) = bring_up(world, harshness).await else {
        world.set_pace(Pace::Usual);
        return;
    };
    world.note(&format!("broker {} reads garbage", heir.index));
    heir.reads_garbage.store(true, Ordering::Relaxed);
    let harshness = if world.medium.is_disk() { 0 } else { harshness };
    let spoilt = Rule::new(Operation::Get, "/wal/", Fault::BitFlip);
    heir.backend.set_plan(plan(harshness).rule(spoilt));
    until(world, 18_000 + entropy.below(10_000), || false).await;
    heir.backend.set_plan(plan(harshness));
    world.set_pace(Pace::Usual);
    // Reads under way end first.
    world.sleep_ms(1_000).await;
    heir.reads_garbage.store(false, Ordering::Relaxed);
    world.note(&format!("broker {} reads well", heir.index));
}
