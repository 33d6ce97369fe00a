//! Whose turn it is to send and to commit: the engine's task, or whoever has just appended.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tidemill_log::{AppendFailed, Appended, CommitTicket, Log, partition::Waiter};
use tidemill_store::{
    Store, StoreOptions,
    testing::{Fault, FaultPlan, Operation, Rule},
};
use tidemill_wire::ids::{Offset, PartitionId};

use crate::harness::{World, append, batch, lead, simulate};

/// A log whose store answers at once, and whose engine has begun.
async fn open(mut world: World) -> Arc<Log> {
    let (memory, runtime) = (world.memory.clone(), world.runtime.clone());
    world.store = Store::new(memory, runtime, StoreOptions::default());
    let log = world.open(1).await;
    world.sleep_ms(1).await;
    log
}

/// Appends as a request does.
fn request(log: &Log, index: i32, value: &[u8]) -> CommitTicket {
    let gather = log.gather();
    let appended = append(log, index, batch(value, 1));
    drop(gather);
    let Appended::New(ticket) = appended else {
        panic!("no producer has sent it before");
    };
    ticket
}

#[test]
fn what_a_local_store_takes_at_once_is_committed_before_anybody_waits() {
    simulate(1, |world| async move {
        let log = open(world).await;
        let partition = lead(&log, 0);
        for offset in 0..20 {
            let committed = request(&log, 0, b"x").outcome().expect("decided").unwrap();
            assert_eq!(committed.base_offset, Offset(offset));
            assert_eq!(partition.high_watermark(), Offset(offset + 1));
        }
    });
}

#[test]
fn what_takes_time_is_committed_when_it_is_done() {
    simulate(2, |world| async move {
        let log = world.open(1).await;
        let partition = lead(&log, 0);
        world.sleep_ms(1).await;
        let fault = Fault::Stall(Duration::from_secs(10));
        let rule = Rule::new(Operation::Put, world.wal(1).key(1), fault);
        world.faulty.set_plan(FaultPlan::none().rule(rule));
        let ticket = request(&log, 0, b"x");
        world.sleep_ms(9_000).await;
        assert!(ticket.outcome().is_none(), "its PUT is under way");
        assert_eq!(partition.high_watermark(), Offset(0));
        ticket.wait().await.unwrap();
        assert_eq!(partition.high_watermark(), Offset(1));
    });
}

#[test]
fn turns_from_many_threads_lose_nothing_and_keep_the_order() {
    const THREADS: usize = 4;
    const EACH: usize = 500;
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    executor.block_on(async {
        let world = World::new(3);
        let tasks = world.runtime.tasks.clone();
        let log = open(world).await;
        let partition = lead(&log, 0);
        let producers = (0..THREADS).map(|_| {
            let log = log.clone();
            tasks.spawn("producer", async move {
                let mut offsets = Vec::with_capacity(EACH);
                for _ in 0..EACH {
                    let ticket = request(&log, 0, b"x");
                    offsets.push(ticket.wait().await.unwrap().base_offset);
                }
                assert!(offsets.is_sorted(), "a later append has the later offset");
                offsets
            })
        });
        let mut offsets = Vec::new();
        for producer in producers.collect::<Vec<_>>() {
            offsets.extend(producer.join().await.unwrap());
        }
        offsets.sort_unstable();
        let all = (0..(THREADS * EACH) as i64).map(Offset);
        assert!(offsets.into_iter().eq(all));
        assert_eq!(partition.high_watermark(), Offset((THREADS * EACH) as i64));
    });
}

/// Panics the first time.
#[derive(Default)]
struct Panics(AtomicBool);

impl Waiter for Panics {
    fn progressed(&self, _partition: PartitionId) {
        assert!(self.0.swap(true, Ordering::AcqRel), "a fault of the test");
    }
}

#[test]
fn a_panic_in_an_appenders_turn_fences_and_leaves_nobody_waiting() {
    simulate(4, |world| async move {
        let log = open(world).await;
        lead(&log, 0);
        let partition = lead(&log, 1);
        // Too long for a turn: its PUT begins in a task that has not run yet.
        let long = request(&log, 0, &vec![b'x'; 3 << 20]);
        assert!(long.outcome().is_none());
        let _guard = partition.register(Arc::new(Panics::default()));
        let panicked = catch_unwind(AssertUnwindSafe(|| request(&log, 1, b"x")));
        assert!(panicked.is_err());
        assert_eq!(long.wait().await.unwrap_err(), AppendFailed::Fenced);
        log.fenced().await;
    });
}
