//! A spell of trouble is one line in the log, however many requests fail in it (K94).
#![expect(
    clippy::disallowed_methods,
    reason = "the test owns its runtime's time"
)]

mod common;

use std::{sync::Arc, time::Duration};

use common::{id, object};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Memory, Store, StoreOptions,
    testing::{Fault, FaultPlan, FaultyBackend, Lines, Operation, Rule},
};

/// What a thread without a subscriber meets first is taken for unwanted by all threads: the tests
/// of this file run one after the other.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(start_paused = true)]
async fn one_line_when_it_begins_and_one_when_it_is_over() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lines = Lines::of("tidemill");
    let _guard = tracing::subscriber::set_default(lines.clone());
    let runtime = Runtime::simulated(1, 0);
    let memory = Arc::new(Memory::new(runtime.clock.clone()));
    let faulty = FaultyBackend::new(memory, runtime.clone(), 1, FaultPlan::none());
    let store = Store::new(
        Arc::new(faulty.clone()),
        runtime.clone(),
        StoreOptions::default(),
    );
    let create = async |key: &str| store.create(key, object(id(1), b""), id(1), None).await;
    create("a").await.expect("creates");
    assert_eq!(lines.take(), [""; 0], "all is well");

    faulty.go_down();
    let healer = faulty.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(300)).await;
        healer.heal();
    });
    create("b").await.expect("creates in the end");
    assert!(store.counters().retries > 100);
    let during = lines.take();
    assert_eq!(during.len(), 1, "{during:?}");
    assert!(
        during[0].contains("store is in trouble") && during[0].contains("503"),
        "{during:?}"
    );

    tokio::time::sleep(Duration::from_secs(60)).await;
    create("c").await.expect("creates");
    create("d").await.expect("creates");
    let after = lines.take();
    assert_eq!(after.len(), 1, "{after:?}");
    assert!(after[0].contains("store works again"), "{after:?}");

    // Every third request fails for an hour: still one spell.
    faulty.resume();
    faulty.set_plan(FaultPlan::none().rate(Fault::Throttled, 0.3));
    for n in 0..1_000 {
        create(&format!("e/{n}")).await.expect("creates");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let during = lines.take();
    assert!(during.len() <= 5, "{} lines: {during:?}", during.len());
}

#[tokio::test(start_paused = true)]
async fn throttling_of_one_prefix_leaves_the_others_alone() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let runtime = Runtime::simulated(1, 0);
    let memory = Arc::new(Memory::new(runtime.clock.clone()));
    let throttled = Rule::new(Operation::Put, "aa/", Fault::Throttled);
    let plan = FaultPlan::none().rule(throttled);
    let faulty = FaultyBackend::new(memory, runtime.clone(), 1, plan);
    let store = Store::new(Arc::new(faulty), runtime.clone(), StoreOptions::default());
    let minute = Some(Duration::from_secs(60));
    let began = runtime.clock.monotonic();
    store
        .create("bb/1", object(id(1), b""), id(1), minute)
        .await
        .expect("creates");
    assert_eq!(runtime.clock.monotonic(), began, "at once");
    store
        .create("aa/1", object(id(1), b""), id(1), minute)
        .await
        .expect_err("throttled");
}
