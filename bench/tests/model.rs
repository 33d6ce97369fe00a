//! The store model's delays follow what they are given by, and the seed.

use std::time::Duration;

use tidemill_bench::{
    load::Latency,
    model::{Delay, LatencyModel, Profile, Stalls},
};
use tidemill_store::testing::Operation;

const DRAWS: usize = 20_000;

/// Base delays of an operation in milliseconds, sorted.
fn sorted(profile: Profile, operation: Operation, seed: u64) -> Vec<f64> {
    let model = LatencyModel::new(profile, Stalls::NONE, seed);
    let draw = |_| model.draw(operation, "a/1", 0).first_byte.as_secs_f64() * 1e3;
    let mut all: Vec<f64> = (0..DRAWS).map(draw).collect();
    all.sort_by(f64::total_cmp);
    all
}

#[test]
fn median_and_p95_are_as_given() {
    for profile in [Profile::S3, Profile::EXPRESS] {
        for (operation, delay) in [
            (Operation::Put, profile.put),
            (Operation::Get, profile.get),
            (Operation::List, profile.get),
        ] {
            for seed in [1, 2, 77] {
                let all = sorted(profile, operation, seed);
                let (median, p95) = (all[DRAWS / 2], all[DRAWS * 95 / 100]);
                let ratio = |found: f64, given: Duration| found / (given.as_secs_f64() * 1e3);
                let (median, p95) = (ratio(median, delay.median), ratio(p95, delay.p95));
                let what = format!("{} {operation:?} seed {seed}", profile.name);
                assert!((0.97..1.03).contains(&median), "{what}: median {median}");
                assert!((0.96..1.04).contains(&p95), "{what}: p95 {p95}");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_delays_whatever_else_is_asked() {
    let draws = |between: u64| {
        let model = LatencyModel::new(Profile::S3, Stalls::NONE, 5);
        let draw = |_| {
            for _ in 0..between {
                let _ = model.draw(Operation::Get, "a/1", 1_000);
                let _ = model.draw(Operation::List, "a/1", 0);
            }
            model.draw(Operation::Put, "a/1", 0).first_byte
        };
        (0..200).map(draw).collect::<Vec<_>>()
    };
    assert_eq!(draws(0), draws(3));
    let other = LatencyModel::new(Profile::S3, Stalls::NONE, 6);
    assert_ne!(draws(0)[0], other.draw(Operation::Put, "a/1", 0).first_byte);
}

#[test]
fn what_is_skipped_is_drawn_by_nobody() {
    let [ahead, behind] = [(), ()].map(|()| LatencyModel::new(Profile::S3, Stalls::NONE, 9));
    let draw = |model: &LatencyModel| model.draw(Operation::Put, "a/1", 0).first_byte;
    for _ in 0..301 {
        draw(&ahead);
    }
    behind.skip(Operation::Put, "a/1", 301);
    let [ahead, behind] = [ahead, behind].map(|model| [draw(&model), draw(&model)]);
    assert_eq!(ahead, behind);
}

#[test]
fn folders_do_not_disturb_each_other_and_draw_the_same() {
    let model = LatencyModel::new(Profile::EXPRESS, Stalls::NONE, 3);
    let draw = |key: &str| model.draw(Operation::Put, key, 0).first_byte;
    let broker: Vec<_> = (0..50).map(|n| draw(&format!("demo/wal/{n}"))).collect();
    let raw: Vec<_> = (0..50).map(|n| draw(&format!("raw/{n}"))).collect();
    assert_eq!(broker, raw);
    assert_ne!(broker[0], broker[1]);
    // However many folders there are, every request gets a delay.
    assert!((0..1_000).all(|n| !draw(&format!("{n}/x")).is_zero()));
}

#[test]
fn a_body_takes_its_size_by_the_stream_rate() {
    let model = LatencyModel::new(Profile::S3, Stalls::NONE, 1);
    let put = model.draw(Operation::Put, "a/1", 61_000_000).transfer;
    let get = model.draw(Operation::Get, "a/1", 42_500_000).transfer;
    assert_eq!(
        (put, get),
        (Duration::from_secs(1), Duration::from_millis(500))
    );
    assert_eq!(
        model.draw(Operation::Head, "a/1", 1 << 30).transfer,
        Duration::ZERO
    );
}

#[test]
fn a_share_of_requests_stalls_and_the_others_are_as_before() {
    let duration = Duration::from_secs(100);
    let stalls = Stalls {
        chance: 0.02,
        duration,
    };
    let stalling = LatencyModel::new(Profile::S3, stalls, 9);
    let plain = LatencyModel::new(Profile::S3, Stalls::NONE, 9);
    let mut stalled = 0;
    for _ in 0..DRAWS {
        let (with, without) = (
            stalling.draw(Operation::Put, "a/1", 0).first_byte,
            plain.draw(Operation::Put, "a/1", 0).first_byte,
        );
        if with != without {
            assert_eq!(with, without + duration);
            stalled += 1;
        }
    }
    let share = f64::from(stalled) / DRAWS as f64;
    assert!((0.017..0.023).contains(&share), "{share}");
}

#[test]
fn no_profile_no_delay() {
    let model = LatencyModel::new(Profile::NONE, Stalls::NONE, 1);
    for operation in [Operation::Put, Operation::Get, Operation::List] {
        let latency = model.draw(operation, "a/1", 1 << 20);
        assert_eq!(latency.first_byte + latency.transfer, Duration::ZERO);
    }
    for known in Profile::ALL {
        assert_eq!(Profile::named(known.name), Some(known));
    }
    assert_eq!(Profile::named("other"), None);
}

#[test]
fn the_histogram_keeps_three_digits() {
    let delay = Delay {
        median: Duration::from_millis(17),
        p95: Duration::from_millis(32),
        bytes_per_second: 0,
    };
    let (mut latency, mut half) = (Latency::default(), Latency::default());
    for us in 1..=100_000 {
        let into = if us % 2 == 0 { &mut latency } else { &mut half };
        into.record(Duration::from_micros(us));
    }
    latency.merge(&half);
    assert_eq!(latency.count(), 100_000);
    for (quantile, ms) in [(0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (0.999, 99.9)] {
        let found = latency.quantile_ms(quantile);
        assert!((found / ms - 1.0).abs() < 2e-3, "{quantile}: {found}");
    }
    assert!((latency.max_ms() / 100.0 - 1.0).abs() < 2e-3);
    // Beyond its bounds it saturates.
    latency.record(Duration::from_secs(10_000));
    assert!(latency.max_ms() >= 600_000.0);
    assert_eq!(delay.transfer(1 << 20), Duration::ZERO);
}
