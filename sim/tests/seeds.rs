//! Many seeds; `TIDEMILL_SEED` runs one and prints its event log, `TIDEMILL_SEEDS` so many.
#![expect(clippy::print_stdout, reason = "the log of a failing seed")]

use tidemill_sim::{Outcome, run_seed};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn complain(outcome: &Outcome) {
    println!("seed {} failed:", outcome.seed);
    for finding in &outcome.findings {
        println!("  {finding}");
    }
    let seed = outcome.seed;
    println!("run it alone: TIDEMILL_SEED={seed} cargo test -p tidemill-sim seeds -- --nocapture");
}

#[test]
fn seeds() {
    if let Some(seed) = number("TIDEMILL_SEED") {
        let outcome = run_seed(seed);
        outcome.log.iter().for_each(|line| println!("{line}"));
        if !outcome.findings.is_empty() {
            complain(&outcome);
        }
        assert!(outcome.findings.is_empty(), "seed {seed} failed");
        return;
    }
    let first = number("TIDEMILL_FIRST_SEED").unwrap_or(0);
    let count = number("TIDEMILL_SEEDS").unwrap_or(1_000);
    let (mut failed, mut acknowledged, mut brokers, mut hedges) = (Vec::new(), 0, 0, 0);
    for seed in first..first + count {
        let outcome = run_seed(seed);
        acknowledged += outcome.acknowledged;
        brokers += outcome.brokers;
        hedges += outcome.hedges;
        if !outcome.findings.is_empty() {
            complain(&outcome);
            failed.push(seed);
        }
    }
    println!(
        "{count} seeds: {acknowledged} sends acknowledged by {brokers} brokers, {hedges} hedges"
    );
    assert!(failed.is_empty(), "failing seeds: {failed:?}");
    assert!(acknowledged as u64 > count * 10, "too little happened");
    assert!(hedges > count, "too few twins");
}

#[test]
fn one_seed_twice_gives_one_log() {
    for seed in [1, 2, 3] {
        let (one, other) = (run_seed(seed), run_seed(seed));
        assert_eq!(one.log, other.log, "seed {seed} is not deterministic");
    }
}
