//! One's own write is recognised under every fault (R2), and trouble never becomes a wrong answer.

mod common;

use std::{sync::Arc, time::Duration};

use common::{id, joined, object};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Backend, CreateOutcome, Memory, Store, StoreErrorKind, StoreOptions,
    testing::{Fault, FaultPlan, FaultyBackend, Operation, Rule},
};

struct Setup {
    memory: Memory,
    faulty: FaultyBackend,
    store: Store,
    runtime: Runtime,
}

fn setup(seed: u64, plan: FaultPlan) -> Setup {
    let runtime = Runtime::simulated(seed, 0);
    let memory = Memory::new(runtime.clock.clone());
    let below: Arc<dyn Backend> = Arc::new(memory.clone());
    let faulty = FaultyBackend::new(below, runtime.clone(), seed, plan);
    let store = Store::new(
        Arc::new(faulty.clone()),
        runtime.clone(),
        StoreOptions::default(),
    );
    Setup {
        memory,
        faulty,
        store,
        runtime,
    }
}

const LONG: Duration = Duration::from_secs(3_600);

fn put_faults() -> Vec<Fault> {
    vec![
        Fault::Throttled,
        Fault::ErrorBefore,
        Fault::ErrorAfter,
        Fault::TimeoutBefore(LONG),
        Fault::TimeoutAfter(LONG),
        Fault::Stall(Duration::from_secs(5)),
        Fault::Stall(LONG),
        Fault::Late(Duration::from_millis(10)),
        Fault::Late(LONG),
        Fault::Twin(Duration::from_millis(10)),
        Fault::ExistsAfter,
        Fault::Conflict,
        Fault::NotFound,
        Fault::Refused,
        Fault::Full,
    ]
}

fn get_faults() -> Vec<Fault> {
    vec![
        Fault::Throttled,
        Fault::ErrorAfter,
        Fault::TimeoutAfter(LONG),
        Fault::Torn,
        Fault::Truncated,
        Fault::BitFlip,
        Fault::Refused,
    ]
}

#[tokio::test(start_paused = true)]
async fn ours_after_every_pair_of_faults() {
    for put in put_faults() {
        for look in get_faults() {
            let plan = FaultPlan::none()
                .rule(Rule::new(Operation::Put, "k", put).times(3))
                .rule(Rule::new(Operation::Get, "k", look).times(2));
            let setup = setup(1, plan);
            let body = object(id(1), b"body");
            let outcome = setup.store.create("k", body.clone(), id(1), None).await;
            assert!(
                matches!(outcome, Ok(CreateOutcome::Ours)),
                "{put:?} {look:?}: {outcome:?}"
            );
            let stored = setup.memory.get("k").await.expect("it is there");
            assert_eq!(stored, joined(&body), "{put:?} {look:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_after_every_pair_of_faults() {
    for put in put_faults() {
        for look in get_faults() {
            let plan = FaultPlan::none()
                .rule(Rule::new(Operation::Put, "k", put).times(2))
                .rule(Rule::new(Operation::Get, "k", look).times(3));
            let setup = setup(2, plan);
            let winner = object(id(9), b"the winner's");
            setup
                .memory
                .put_if_absent("k", winner.clone())
                .await
                .expect("puts");
            let outcome = setup
                .store
                .create("k", object(id(1), b"body"), id(1), None)
                .await;
            let Ok(CreateOutcome::Foreign(bytes)) = outcome else {
                panic!("{put:?} {look:?}: {outcome:?}");
            };
            assert_eq!(bytes, joined(&winner), "{put:?} {look:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bit_flips_never_make_our_own_write_foreign() {
    for seed in 0..200 {
        let plan = FaultPlan::none()
            .rate(Fault::ExistsAfter, 1.0)
            .rate(Fault::BitFlip, 0.7)
            .rate(Fault::Torn, 0.2);
        let setup = setup(seed, plan);
        let outcome = setup
            .store
            .create("k", object(id(1), b"body"), id(1), None)
            .await;
        assert!(
            matches!(outcome, Ok(CreateOutcome::Ours)),
            "seed {seed}: {outcome:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_with_a_deadline_is_returned_at_once() {
    let refused = Rule::new(Operation::Put, "", Fault::Refused);
    let setup = setup(3, FaultPlan::none().rule(refused));
    let started = setup.runtime.clock.monotonic();
    let outcome = setup
        .store
        .create("k", object(id(1), b""), id(1), Some(LONG))
        .await;
    let error = outcome.expect_err("it is refused");
    assert_eq!(
        (error.kind, error.code.as_deref()),
        (StoreErrorKind::Refused, Some("AccessDenied"))
    );
    assert!(setup.runtime.clock.monotonic() - started < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_full_store_is_waited_for_unless_one_would_rather_make_room() {
    let full = Rule::new(Operation::Put, "", Fault::Full).times(3);
    let setup = setup(6, FaultPlan::none().rule(full));
    let yielding = setup.store.yielding_when_full();
    let error = yielding.create("k", object(id(1), b""), id(1), None).await;
    assert_eq!(error.expect_err("full").kind, StoreErrorKind::Full);
    let created = setup.store.create("k", object(id(1), b""), id(1), None);
    assert!(
        matches!(created.await, Ok(CreateOutcome::Ours)),
        "waited out"
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_try_that_may_have_landed_no_error_says_that_nothing_was_written() {
    for later in [
        Fault::Refused,
        Fault::Throttled,
        Fault::Full,
        Fault::ErrorBefore,
    ] {
        let plan = FaultPlan::none()
            .rule(Rule::new(Operation::Put, "", Fault::Late(LONG)).times(1))
            .rule(Rule::new(Operation::Put, "", later));
        let setup = setup(4, plan);
        let minute = Some(Duration::from_secs(60));
        let outcome = setup
            .store
            .create("k", object(id(1), b""), id(1), minute)
            .await;
        assert_eq!(
            outcome.expect_err("time is up").kind,
            StoreErrorKind::Unknown,
            "{later:?}"
        );
        setup.runtime.clock.sleep(LONG).await;
        assert_eq!(setup.memory.len(), 1, "the late write landed");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out_and_reads_give_up_at_their_deadline() {
    let setup = setup(5, FaultPlan::none());
    setup.faulty.go_down();
    let get = setup.store.get("k").await.expect_err("the store is down");
    assert_eq!(
        (get.kind, get.status),
        (StoreErrorKind::Unavailable, Some(503))
    );
    let store = setup.store.clone();
    let create = setup.runtime.tasks.spawn("create", async move {
        store.create("k", object(id(1), b""), id(1), None).await
    });
    setup.runtime.clock.sleep(LONG).await;
    setup.faulty.heal();
    assert!(matches!(create.join().await, Ok(Ok(CreateOutcome::Ours))));
    assert!(setup.store.counters().retries > 100);
}

#[tokio::test(start_paused = true)]
async fn a_spell_of_unordered_listings_is_seen_and_asked_again() {
    let unordered = Rule::new(Operation::List, "", Fault::Unordered).times(3);
    let setup = setup(6, FaultPlan::none().rule(unordered));
    for key in ["a/1", "a/2", "a/3"] {
        setup
            .memory
            .put_if_absent(key, object(id(1), b""))
            .await
            .expect("puts");
    }
    let keys: Vec<_> = setup
        .store
        .list_all("a/")
        .await
        .expect("lists")
        .into_iter()
        .map(|m| m.key)
        .collect();
    assert_eq!(keys, ["a/1", "a/2", "a/3"]);
    assert_eq!(setup.store.counters().lists, 4);
}

#[tokio::test(start_paused = true)]
async fn copies_are_recognised_too() {
    let plan = FaultPlan::none().rule(Rule::new(Operation::Copy, "to", Fault::ErrorAfter).times(1));
    let setup = setup(7, plan);
    let body = object(id(1), b"body");
    setup
        .memory
        .put_if_absent("from", body.clone())
        .await
        .expect("puts");
    let outcome = setup.store.copy_if_absent("from", "to", id(1), None).await;
    assert!(matches!(outcome, Ok(CreateOutcome::Ours)), "{outcome:?}");
    assert_eq!(
        setup.memory.get("to").await.expect("it is there"),
        joined(&body)
    );
    // The source trimmed after a try that landed.
    setup.memory.delete("from").await.expect("deletes");
    let again = setup.store.copy_if_absent("from", "to", id(1), None).await;
    assert!(matches!(again, Ok(CreateOutcome::Ours)), "{again:?}");
    let gone = setup
        .store
        .copy_if_absent("from", "elsewhere", id(1), None)
        .await;
    assert_eq!(gone.expect_err("no source").kind, StoreErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn one_creator_wins_each_number_on_a_bad_day() {
    for seed in 0..20 {
        let setup = setup(seed, FaultPlan::bad_day());
        let mut creators = Vec::new();
        for creator in 1..=8 {
            let store = setup.store.clone();
            creators.push(setup.runtime.tasks.spawn("creator", async move {
                let mut won = Vec::new();
                for n in 0..10 {
                    let body = object(id(creator), b"body");
                    let key = format!("log/{n}");
                    match store.create(&key, body, id(creator), None).await {
                        Ok(CreateOutcome::Ours) => won.push(n),
                        Ok(CreateOutcome::Foreign(_)) => {}
                        Err(error) => panic!("seed {seed}: {error}"),
                    }
                }
                won
            }));
        }
        let mut winners = vec![0; 10];
        for creator in creators {
            for n in creator.join().await.expect("does not panic") {
                winners[n] += 1;
            }
        }
        assert_eq!(winners, [1; 10], "seed {seed}");
    }
}
