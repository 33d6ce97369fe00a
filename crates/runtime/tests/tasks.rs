//! Work that may block: all of it is done, on few threads, and on fewer after a burst.

use std::{
    sync::{Arc, Barrier, mpsc},
    time::Duration,
};

use futures_util::future::join_all;
use tidemill_runtime::{Runtime, Tasks};

/// More threads than these are never used.
const THREADS_MAX: usize = 64;

/// Nothing here takes longer than a minute.
async fn wait_until(runtime: &Runtime, condition: impl Fn(&Tasks) -> bool) {
    let deadline = runtime.clock.monotonic() + Duration::from_secs(60);
    while !condition(&runtime.tasks) {
        assert!(runtime.clock.monotonic() < deadline, "{runtime:?}");
        let work = || std::hint::black_box(());
        runtime
            .tasks
            .blocking("trickle", work)
            .await
            .expect("no panic");
    }
}

#[tokio::test]
async fn threads_of_a_burst_end_although_work_goes_on() {
    let runtime = Runtime::system();
    let tasks = &runtime.tasks;
    let all_at_once = Arc::new(Barrier::new(20));
    let burst = (0..20).map(|_| {
        let barrier = Arc::clone(&all_at_once);
        tasks.blocking("burst", move || barrier.wait().is_leader())
    });
    join_all(burst).await;
    assert_eq!(tasks.blocking_threads(), 20);
    // Some may still be on their way to their seats when the next piece of work comes.
    wait_until(&runtime, |tasks| tasks.blocking_threads() < 10).await;
}

#[tokio::test]
async fn what_finds_no_thread_waits_for_one() {
    let runtime = Runtime::system();
    let tasks = &runtime.tasks;
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(parking_lot::Mutex::new(gate));
    let all = (0..5 * THREADS_MAX).map(|number| {
        let gate = Arc::clone(&gate);
        // Each waits until the gate is gone.
        let work = move || gate.lock().recv().map_or(number, |()| number);
        tasks.blocking("wait", work)
    });
    let mut all = std::pin::pin!(join_all(all));
    assert!(futures_util::poll!(&mut all).is_pending());
    assert_eq!(tasks.blocking_threads(), THREADS_MAX);
    assert_eq!(tasks.running().len(), 5 * THREADS_MAX);
    drop(open);
    let numbers: Result<Vec<usize>, _> = all.await.into_iter().collect();
    assert_eq!(numbers, Ok((0..5 * THREADS_MAX).collect()));
    assert_eq!(tasks.blocking_threads(), THREADS_MAX);
}

#[tokio::test]
async fn a_panic_is_told_and_its_thread_goes_on() {
    let tasks = Tasks::new();
    for round in 1..=3 {
        let panicked = tasks.blocking("bad", || panic!("no good")).await;
        let panic: tidemill_runtime::TaskPanic =
            panicked.map(|(): ()| ()).expect_err("it panicked");
        assert_eq!((panic.name, panic.message.as_str()), ("bad", "no good"));
        assert_eq!(tasks.panics(), round);
        assert_eq!(tasks.blocking("good", || 7).await, Ok(7));
    }
}

/// As if it ran where it was asked for.
#[tokio::test]
async fn it_may_spawn_tasks() {
    let runtime = Runtime::system();
    let tasks = runtime.tasks.clone();
    let clock = runtime.clock.clone();
    let work = move || {
        let later = async move {
            clock.sleep(Duration::from_millis(1)).await;
            7
        };
        tasks.spawn("later", later)
    };
    let spawned = runtime.tasks.blocking("spawns", work).await;
    assert_eq!(spawned.expect("no panic").join().await, Ok(7));
}
