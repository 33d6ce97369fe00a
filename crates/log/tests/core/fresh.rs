//! Freshness (R7): no promise without a proof that nobody has sealed this writer.

use std::time::Duration;

use tidemill_log::LogLimits;
use tidemill_log::{Log, recover::Recovered};

use crate::{
    harness::{World, append, batch, lead, simulate},
    sealer::seal,
};

fn gets(world: &World) -> u64 {
    world.store.counters().gets
}

async fn is_fresh(world: &World, log: &Log) -> bool {
    log.fresh(world.runtime.clock.monotonic()).await.is_ok()
}

#[test]
fn all_that_wait_share_one_get() {
    simulate(1, |world| async move {
        let log = world.open(1).await;
        let before = gets(&world);
        let now = world.runtime.clock.monotonic();
        world.sleep_ms(1).await;
        let waiting = (0..50).map(|_| log.fresh(now));
        for fresh in futures_util::future::join_all(waiting).await {
            fresh.unwrap();
        }
        assert_eq!(gets(&world) - before, 1);
        world.sleep_ms(5_000).await;
        log.fresh_within(Duration::from_secs(10)).await.unwrap();
        assert_eq!(gets(&world) - before, 1, "a proof is good for ten seconds");
        world.sleep_ms(6_000).await;
        log.fresh_within(Duration::from_secs(10)).await.unwrap();
        assert_eq!(gets(&world) - before, 2);
    });
}

#[test]
fn a_put_that_lands_is_a_proof_for_what_came_before_it() {
    simulate(2, |world| async move {
        let log = world.open(1).await;
        lead(&log, 0);
        let before = gets(&world);
        let asked = world.runtime.clock.monotonic();
        world.sleep_ms(1).await;
        append(&log, 0, batch(b"x", 1)).wait().await.unwrap();
        log.fresh(asked).await.unwrap();
        assert_eq!(gets(&world), before);
        world.sleep_ms(1).await;
        assert!(is_fresh(&world, &log).await);
        assert_eq!(
            gets(&world),
            before + 1,
            "a PUT from before the request proves nothing"
        );
    });
}

#[test]
fn a_held_lock_needs_no_proof() {
    simulate(3, |world| async move {
        let first = world.open(1).await;
        drop(first);
        let mut options = world.options(1, LogLimits::local());
        options.exclusive = true;
        let log = Log::open(options, Recovered::default());
        world.faulty.pause();
        assert!(is_fresh(&world, &log).await);
    });
}

#[test]
fn a_sealed_writer_falls_silent() {
    simulate(4, |world| async move {
        let log = world.open(1).await;
        assert!(is_fresh(&world, &log).await);
        seal(&world, 1, 0).await;
        assert!(!is_fresh(&world, &log).await);
        log.fenced().await;
    });
}
