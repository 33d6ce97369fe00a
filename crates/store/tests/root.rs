//! The checks at start.

mod common;

use std::{sync::Arc, time::Duration};

use common::{id, joined, object};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Backend, Envelope, Memory, ObjectKind, Root, RootError, Store, StoreOptions, open_root,
    read_root,
    root::{FORMAT_LEVEL, ROOT_KEY},
    testing::{Fault, FaultPlan, FaultyBackend, Operation, Rule},
};

const MINUTE: Duration = Duration::from_secs(60);

struct Setup {
    runtime: Runtime,
    memory: Memory,
    faulty: FaultyBackend,
    store: Store,
}

fn setup(plan: FaultPlan) -> Setup {
    let runtime = Runtime::simulated(1, 1_000);
    let memory = Memory::new(runtime.clock.clone());
    let faulty = FaultyBackend::new(Arc::new(memory.clone()), runtime.clone(), 1, plan);
    let store = Store::new(
        Arc::new(faulty.clone()),
        runtime.clone(),
        StoreOptions::default(),
    );
    Setup {
        runtime,
        memory,
        faulty,
        store,
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_store_is_adopted_once_and_found_again() {
    let setup = setup(FaultPlan::none());
    let missing = read_root(&setup.store, MINUTE).await;
    assert!(
        matches!(missing, Err(RootError::Missing { .. })),
        "{missing:?}"
    );
    assert!(setup.memory.is_empty());
    let first = open_root(&setup.store, None, MINUTE).await.expect("adopts");
    assert_eq!(
        (first.format_level, first.created_ms),
        (FORMAT_LEVEL, 1_000)
    );
    assert_eq!(
        open_root(&setup.store, None, MINUTE).await,
        Ok(first.clone())
    );
    assert_eq!(
        open_root(&setup.store, Some(first.cluster_id), MINUTE).await,
        Ok(first.clone())
    );
    assert_eq!(read_root(&setup.store, MINUTE).await, Ok(first));
    assert_eq!(setup.memory.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_id_given_is_used_and_then_must_match() {
    let setup = setup(FaultPlan::none());
    let root = open_root(&setup.store, Some([3; 16]), MINUTE)
        .await
        .expect("adopts");
    assert_eq!(root.cluster_id, [3; 16]);
    let other = open_root(&setup.store, Some([4; 16]), MINUTE)
        .await
        .expect_err("another cluster");
    assert!(
        other.to_string().contains("belongs to cluster 03030303"),
        "{other}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_holds_something_else_is_refused() {
    let setup = setup(FaultPlan::none());
    setup
        .memory
        .put_if_absent("photos/cat", object(id(1), b""))
        .await
        .expect("puts");
    let error = open_root(&setup.store, None, MINUTE)
        .await
        .expect_err("occupied");
    assert!(error.to_string().contains("`photos/cat`"), "{error}");
    assert_eq!(setup.memory.len(), 1, "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn a_root_that_is_not_one_is_refused() {
    for body in [joined(&object(id(1), b"")), b"hello".to_vec(), Vec::new()] {
        let setup = setup(FaultPlan::none());
        setup
            .memory
            .put_if_absent(ROOT_KEY, bytes::Bytes::from(body).into())
            .await
            .expect("puts");
        let error = open_root(&setup.store, None, MINUTE)
            .await
            .expect_err("not ours");
        assert!(matches!(error, RootError::Invalid { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_newer_format_says_what_to_upgrade() {
    let newer_level = Root {
        cluster_id: [1; 16],
        format_level: FORMAT_LEVEL + 1,
        created_ms: 0,
        created_by: "9.0.0".to_owned(),
    };
    let envelope = Envelope {
        kind: ObjectKind::Root,
        version: 2,
        must_understand: 0,
        may_ignore: 0,
        put_id: id(1),
        cluster_id: [1; 16],
        writer: 0,
    };
    for body in [newer_level.encode(id(1)), envelope.encode(b"", 0)] {
        let setup = setup(FaultPlan::none());
        setup
            .memory
            .put_if_absent(ROOT_KEY, body.into())
            .await
            .expect("puts");
        let error = open_root(&setup.store, None, MINUTE)
            .await
            .expect_err("too new");
        assert!(matches!(error, RootError::TooNew { .. }), "{error}");
        assert!(error.to_string().contains("upgrade"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_ignores_the_condition_is_found_out() {
    let setup = setup(FaultPlan::none());
    open_root(&setup.store, None, MINUTE).await.expect("adopts");
    // Deleting before the second PUT looks just like a store that overwrites.
    let memory = setup.memory.clone();
    setup.faulty.on_event(move |event| {
        if event.operation == Operation::Put {
            let memory = memory.clone();
            let delete = async move { memory.delete(ROOT_KEY).await };
            futures_util::FutureExt::now_or_never(delete);
        }
    });
    let error = open_root(&setup.store, None, MINUTE)
        .await
        .expect_err("found out");
    assert!(
        matches!(error, RootError::ConditionIgnored { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn refusals_end_a_start_only_when_confirmed() {
    let refused = Rule::new(Operation::Get, "", Fault::Refused);
    let one = setup(FaultPlan::none().rule(refused.clone().times(1)));
    open_root(&one.store, None, MINUTE)
        .await
        .expect("a single refusal is not believed");
    let began = one.runtime.clock.monotonic();
    let all = setup(FaultPlan::none().rule(refused));
    let error = open_root(&all.store, None, MINUTE)
        .await
        .expect_err("confirmed");
    assert!(matches!(error, RootError::Refused { .. }), "{error}");
    assert!(one.runtime.clock.monotonic() - began < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_is_waited_for_until_the_time_is_up() {
    let setup = setup(FaultPlan::none());
    setup.faulty.pause();
    let began = setup.runtime.clock.monotonic();
    let error = open_root(&setup.store, None, MINUTE)
        .await
        .expect_err("silent for good");
    assert!(matches!(error, RootError::TimedOut { .. }), "{error}");
    let waited = setup.runtime.clock.monotonic() - began;
    assert!(
        (MINUTE..MINUTE + Duration::from_secs(2)).contains(&waited),
        "{waited:?}"
    );
    let (faulty, clock) = (setup.faulty.clone(), setup.runtime.clock.clone());
    let heal = async {
        clock.sleep(Duration::from_secs(30)).await;
        faulty.resume();
    };
    let (opened, ()) = tokio::join!(open_root(&setup.store, None, MINUTE), heal);
    opened.expect("it answers in time");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out_until_the_time_is_up() {
    let setup = setup(FaultPlan::none());
    setup.faulty.go_down();
    let began = setup.runtime.clock.monotonic();
    let error = open_root(&setup.store, None, MINUTE)
        .await
        .expect_err("down for good");
    assert!(matches!(error, RootError::TimedOut { .. }), "{error}");
    let waited = setup.runtime.clock.monotonic() - began;
    assert!(
        (MINUTE..MINUTE + Duration::from_secs(2)).contains(&waited),
        "{waited:?}"
    );
    let (store, faulty, clock) = (
        setup.store.clone(),
        setup.faulty.clone(),
        setup.runtime.clock.clone(),
    );
    setup.runtime.tasks.spawn("heal", async move {
        clock.sleep(Duration::from_secs(20)).await;
        faulty.heal();
    });
    open_root(&store, None, MINUTE)
        .await
        .expect("healed in time");
}

#[tokio::test(start_paused = true)]
async fn every_start_succeeds_on_a_bad_day() {
    for seed in 0..50 {
        let runtime = Runtime::simulated(seed, 0);
        let memory = Memory::new(runtime.clock.clone());
        let faulty = FaultyBackend::new(
            Arc::new(memory),
            runtime.clone(),
            seed,
            FaultPlan::bad_day(),
        );
        let store = Store::new(Arc::new(faulty), runtime, StoreOptions::default());
        let patience = Duration::from_secs(600);
        let (one, two) = tokio::join!(
            open_root(&store, None, patience),
            open_root(&store, None, patience)
        );
        assert_eq!(one.expect("starts"), two.expect("starts"), "seed {seed}");
    }
}

#[test]
fn golden_bytes() {
    let root = Root {
        cluster_id: *b"0123456789abcdef",
        format_level: 1,
        created_ms: 1_700_000_000_000,
        created_by: "0.1.0".to_owned(),
    };
    let bytes = root.encode(id(0xaa));
    let directory = "010000000068e5cf8b0100000500302e312e30";
    let hex: String = bytes[Envelope::LEN..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(hex, directory);
    assert_eq!(Root::decode(&bytes), Ok(root));
}
