//! What goes wrong with brokers and store.

use std::{sync::Arc, time::Duration};

use tidemill_runtime::{Entropy, TaskHandle};

use crate::{
    broker::{Broker, Failure, start_broker},
    steps,
    world::World,
};

/// Starts tried before it counts as damage.
const STARTS_MAX: usize = 60;
/// No start takes longer, however bad the day.
const START_MAX: Duration = Duration::from_secs(1_800);
/// Brokers of one run, so that it ends.
const BROKERS_MAX: usize = 14;

/// Starts a broker, however often it takes; a start may die on its way, too.
pub async fn bring_up(world: &Arc<World>, harshness: u64) -> Option<Arc<Broker>> {
    for _ in 0..STARTS_MAX {
        let start = start_broker(world, harshness, None);
        let Ok(started) = world.runtime.clock.timeout(START_MAX, start).await else {
            world.violate("L1: a start does not end".to_owned());
            return None;
        };
        match started {
            Ok(broker) => return Some(broker),
            Err(Failure::Superseded) => {
                world.note("a start was superseded");
                return None;
            }
            Err(Failure::Other(error)) => {
                // The store may have had a long bad spell.
                world.note(&format!("a start failed: {error}"));
                world.sleep_ms(1_000).await;
            }
        }
    }
    world.violate("no start succeeds".to_owned());
    None
}

/// Works until the world stops; returns starts that have not ended.
pub async fn torment(world: Arc<World>, harshness: u64) -> Vec<TaskHandle<()>> {
    let entropy = world.fork();
    let mut starts = Vec::new();
    while !world.stopping() {
        world.sleep_ms(1_000 + entropy.below(14_000)).await;
        if world.stopping() {
            break;
        }
        starts.extend(strike(&world, &entropy, harshness).await);
    }
    starts
}

async fn strike(world: &Arc<World>, entropy: &Entropy, harshness: u64) -> Option<TaskHandle<()>> {
    let many = world.broker_count() >= BROKERS_MAX;
    let Some(broker) = world.broker() else {
        bring_up(world, harshness).await;
        return None;
    };
    let dice = match entropy.below(18) {
        // Nobody else can use the disk of a broker that runs.
        3..=7 | 12..=14 if world.medium.is_disk() => 0,
        dice => dice,
    };
    match dice {
        0 | 1 if !many => {
            world.note(&format!("broker {} is killed", broker.index));
            broker.kill(world);
            bring_up(world, harshness).await;
        }
        2 if !many => {
            world.note(&format!("broker {} stops", broker.index));
            let clean = broker.stop(world).await;
            world.note(&format!("broker {} stopped, clean: {clean}", broker.index));
            bring_up(world, harshness).await;
        }
        3 if !many => {
            world.note(&format!("broker {} is superseded alive", broker.index));
            bring_up(world, harshness).await;
        }
        4 | 5 if !many => freeze(world, entropy, &broker, harshness).await,
        6 if !many => {
            world.note(&format!("broker {} is killed, two follow", broker.index));
            broker.kill(world);
            tokio::join!(bring_up(world, harshness), bring_up(world, harshness));
        }
        7 if !many => half_start(world, entropy, harshness).await,
        8 => {
            world.note("the store is down");
            broker.backend.go_down();
            world.sleep_ms(entropy.below(20_000)).await;
            broker.backend.resume();
            world.note("the store is back");
        }
        11 => {
            let step = i64::try_from(entropy.below(120_000)).unwrap_or(0) - 60_000;
            world.note(&format!("the clock steps by {step} ms"));
            world.runtime.clock.step_ms(step);
        }
        9 | 10 => {
            let rolled = broker.roll.round().await.is_ok();
            world.note(&format!("broker {} rolled: {rolled}", broker.index));
        }
        12 | 13 if !many => steps::stop_at_a_step(world, entropy, &broker, harshness).await,
        14 if !many => {
            return Some(steps::stalled_sealer(world, entropy, &broker, harshness).await);
        }
        15 if !many => steps::holes(world, entropy, &broker, harshness).await,
        16 if !many => steps::spoilt_takeover(world, entropy, &broker, harshness).await,
        17 => steps::partial_outage(world, entropy, &broker, harshness).await,
        _ => {}
    }
    None
}

/// Its requests hang; another broker takes over; later it wakes up.
async fn freeze(world: &Arc<World>, entropy: &Entropy, broker: &Arc<Broker>, harshness: u64) {
    world.note(&format!("broker {} freezes", broker.index));
    broker.backend.pause();
    world.sleep_ms(entropy.below(10_000)).await;
    bring_up(world, harshness).await;
    steps::wake_later(world, broker, entropy.below(60_000));
}

/// A broker that dies while it starts.
async fn half_start(world: &Arc<World>, entropy: &Entropy, harshness: u64) {
    let limit = Duration::from_millis(entropy.below(3_000));
    let start = start_broker(world, harshness, None);
    match world.runtime.clock.timeout(limit, start).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) => {
            world.note("a start failed");
        }
        Err(_) => {
            world.note("a start died");
        }
    }
    bring_up(world, harshness).await;
}
