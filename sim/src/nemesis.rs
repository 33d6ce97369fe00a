//! What goes wrong with brokers and store.

use std::sync::Arc;

use tidemill_runtime::Entropy;

use crate::{
    broker::{Broker, Failure, start_broker},
    world::World,
};

/// Starts tried before it counts as damage.
const STARTS_MAX: usize = 60;
/// Brokers of one run, so that it ends.
const BROKERS_MAX: usize = 14;

/// Starts a broker, however often it takes; a start may die on its way, too.
pub async fn bring_up(world: &Arc<World>, harshness: u64) -> Option<Arc<Broker>> {
    for _ in 0..STARTS_MAX {
        match start_broker(world, harshness).await {
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

/// Works until the world stops. A quarter of the time nothing happens.
pub async fn torment(world: Arc<World>, harshness: u64) {
    let entropy = world.fork();
    while !world.stopping() {
        world.sleep_ms(1_000 + entropy.below(14_000)).await;
        if world.stopping() {
            return;
        }
        strike(&world, &entropy, harshness).await;
    }
}

async fn strike(world: &Arc<World>, entropy: &Entropy, harshness: u64) {
    let many = world.broker_count() >= BROKERS_MAX;
    let Some(broker) = world.broker() else {
        bring_up(world, harshness).await;
        return;
    };
    let dice = match entropy.below(12) {
        // Nobody else can use the disk of a broker that runs.
        3..=7 if world.medium.is_disk() => 0,
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
        _ => {}
    }
}

/// Its requests hang; another broker takes over; later it wakes up.
async fn freeze(world: &Arc<World>, entropy: &Entropy, broker: &Arc<Broker>, harshness: u64) {
    world.note(&format!("broker {} freezes", broker.index));
    broker.backend.pause();
    world.sleep_ms(entropy.below(10_000)).await;
    bring_up(world, harshness).await;
    let sleeper = Arc::clone(broker);
    let sleep_ms = entropy.below(60_000);
    let watch = Arc::clone(world);
    world.runtime.tasks.spawn("sleeper", async move {
        watch.sleep_ms(sleep_ms).await;
        watch.note(&format!("broker {} wakes up", sleeper.index));
        sleeper.backend.resume();
    });
}

/// A broker that dies while it starts.
async fn half_start(world: &Arc<World>, entropy: &Entropy, harshness: u64) {
    let limit = std::time::Duration::from_millis(entropy.below(3_000));
    let start = start_broker(world, harshness);
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
