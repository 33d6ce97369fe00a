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

/// A run that panics has found something, too, and its seed must not be lost.
fn caught(seed: u64) -> Outcome {
    std::panic::catch_unwind(|| run_seed(seed)).unwrap_or_else(|_| Outcome {
        seed,
        log: Vec::new(),
        findings: vec!["the run panicked; what it said is above".to_owned()],
        acknowledged: 0,
        brokers: 0,
        hedges: 0,
    })
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
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let share = |worker: usize| {
        let seeds = (first..first + count).skip(worker).step_by(workers);
        let judged = seeds.map(caught).inspect(|outcome| {
            if !outcome.findings.is_empty() {
                complain(outcome);
            }
        });
        // The log of a run that went well is of no use.
        let short = judged.map(|outcome| Outcome {
            log: Vec::new(),
            ..outcome
        });
        short.collect::<Vec<_>>()
    };
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let share = &share;
        let shares: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || share(worker)))
            .collect();
        let joined = shares.into_iter().map(|share| share.join());
        joined
            .flat_map(|share| share.expect("a run reports, it does not panic"))
            .collect()
    });
    let acknowledged: usize = outcomes.iter().map(|outcome| outcome.acknowledged).sum();
    let brokers: usize = outcomes.iter().map(|outcome| outcome.brokers).sum();
    let hedges: u64 = outcomes.iter().map(|outcome| outcome.hedges).sum();
    println!(
        "{count} seeds: {acknowledged} sends acknowledged by {brokers} brokers, {hedges} hedges"
    );
    let failed = outcomes
        .iter()
        .filter(|outcome| !outcome.findings.is_empty());
    let failed: Vec<u64> = failed.map(|outcome| outcome.seed).collect();
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
