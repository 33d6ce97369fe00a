//! Objects, their order, and what waits for what.

use std::{sync::Arc, time::Duration};

use tidemill_log::{
    AppendError, AppendFailed, DrainError, Entry, Latency, LogLimits, Part, PartBody,
    partition::NotifyWaiter, recover::Recovered,
};
use tidemill_store::{
    Envelope, ObjectKind, Payload, PutId,
    testing::{Fault, FaultPlan, Operation, Rule},
};
use tidemill_wire::ids::Offset;

use crate::harness::{CLUSTER, World, append, batch, lead, partition, simulate};

fn stall(world: &World, number: u64, seconds: u64) {
    stall_all(world, number..=number, seconds);
}

fn stall_all(world: &World, numbers: impl Iterator<Item = u64>, seconds: u64) {
    let plan = numbers.fold(FaultPlan::none(), |plan, number| {
        let fault = Fault::Stall(Duration::from_secs(seconds));
        let key = world.wal(1).key(number);
        plan.rule(Rule::new(Operation::Put, key, fault))
    });
    world.faulty.set_plan(plan);
}

async fn objects(world: &World) -> u64 {
    world.wal(1).list_from(1).await.unwrap().len() as u64
}

#[test]
fn what_is_pending_shares_an_object() {
    simulate(1, |world| async move {
        let log = world.open(1).await;
        for index in 0..5 {
            lead(&log, index);
        }
        let tickets: Vec<_> = (0..50)
            .map(|i| append(&log, i % 5, batch(b"x", 1)))
            .collect();
        for ticket in &tickets {
            ticket.wait().await.unwrap();
        }
        assert_eq!(objects(&world).await, 1);
    });
}

#[test]
fn a_slow_object_delays_only_its_own_partitions() {
    simulate(2, |world| async move {
        let log = world.open(1).await;
        lead(&log, 0);
        lead(&log, 1);
        stall(&world, 1, 10);
        let slow = append(&log, 0, batch(b"slow", 1));
        world.sleep_ms(1).await;
        let behind = append(&log, 0, batch(b"behind", 1));
        let other = append(&log, 1, batch(b"other", 1));
        let both = Entry {
            parts: (0..2)
                .map(|index| Part {
                    partition: partition(index),
                    leader_epoch: None,
                    body: PartBody::Records(batch(b"both", 1)),
                })
                .collect(),
            latency: Latency::Low,
        };
        world.sleep_ms(1).await;
        let both = log.append(both).unwrap();
        world.sleep_ms(1).await;
        let after = append(&log, 1, batch(b"after the atomic entry", 1));
        world.sleep_ms(100).await;
        other.wait().await.unwrap();
        let waiting = [&slow, &behind, &both[0], &both[1], &after];
        for (at, appended) in waiting.into_iter().enumerate() {
            let tidemill_log::Appended::New(ticket) = appended else {
                panic!("{at} is new")
            };
            assert!(
                ticket.outcome().is_none(),
                "{at} depends on the slow object"
            );
        }
        assert_eq!(
            log.partition(partition(0)).unwrap().high_watermark(),
            Offset(0)
        );
        assert_eq!(
            log.partition(partition(1)).unwrap().high_watermark(),
            Offset(1)
        );
        assert_eq!(log.roll_cut(), 1);
        world.sleep_ms(10_000).await;
        for appended in [slow, behind, both[0].clone(), both[1].clone(), after] {
            appended.wait().await.unwrap();
        }
        assert_eq!(log.roll_cut(), log.next_number());
    });
}

#[test]
fn a_large_entry_is_cut_and_small_ones_pass_it() {
    simulate(3, |world| async move {
        let limits = LogLimits {
            bulk_entry_bytes: 10_000,
            fragment_bytes: 10_000,
            ..LogLimits::bucket()
        };
        let log = world.open_with(1, limits, Recovered::default()).await;
        lead(&log, 0);
        let other = lead(&log, 1);
        stall(&world, 3, 10);
        let before = append(&log, 0, batch(b"before", 1));
        let large = append(&log, 0, batch(&vec![b'x'; 95_000], 1));
        let behind = append(&log, 0, batch(b"behind", 1));
        let small = append(&log, 1, batch(b"small", 1));
        before.wait().await.unwrap();
        small.wait().await.unwrap();
        assert_eq!(other.high_watermark(), Offset(1));
        world.sleep_ms(1_000).await;
        assert_eq!(
            log.partition(partition(0)).unwrap().high_watermark(),
            Offset(1)
        );
        assert!(log.roll_cut() <= 2, "no cut within the entry");
        assert_eq!(large.wait().await.unwrap().base_offset, Offset(1));
        assert_eq!(behind.wait().await.unwrap().base_offset, Offset(2));
        world.sleep_ms(100).await;
        assert_eq!(log.roll_cut(), log.decided_below());
        let tail = log
            .partition(partition(0))
            .unwrap()
            .roll_candidates(log.writer(), 1_000);
        assert_eq!(tail[1].spans.len(), 10);
        let cut = tail[1].spans[9].position.number;
        let below = log
            .partition(partition(0))
            .unwrap()
            .roll_candidates(log.writer(), cut);
        assert_eq!(below.len(), 1, "an entry is rolled whole");
    });
}

#[test]
fn spacing_gathers_by_class_and_an_earlier_flush_takes_all() {
    simulate(4, |world| async move {
        let log = world
            .open_with(1, LogLimits::bucket(), Recovered::default())
            .await;
        lead(&log, 0);
        lead(&log, 1);
        let send = |index: i32, latency: Latency| {
            let entry = Entry::records(partition(index), batch(b"x", 1), latency);
            log.append(entry).unwrap().remove(0)
        };
        send(0, Latency::Economy).wait().await.unwrap();
        assert_eq!(objects(&world).await, 1, "the first leaves at once");
        let economy = send(0, Latency::Economy);
        world.sleep_ms(100).await;
        assert_eq!(objects(&world).await, 1, "the second waits for its 250 ms");
        send(1, Latency::Balanced).wait().await.unwrap();
        assert!(
            economy.wait().await.is_ok(),
            "it left with the earlier flush"
        );
        assert_eq!(objects(&world).await, 2);
        let start = world.runtime.clock.monotonic();
        send(0, Latency::Economy).wait().await.unwrap();
        let waited = start.elapsed();
        assert!(waited >= Duration::from_millis(240), "waited {waited:?}");
    });
}

#[test]
fn a_disk_that_is_busy_gets_fewer_and_larger_objects() {
    simulate(4, |world| async move {
        let log = world
            .open_with(1, LogLimits::local(), Recovered::default())
            .await;
        for index in 0..40 {
            lead(&log, index);
        }
        stall_all(&world, 1..=3, 10);
        let mut tickets = Vec::new();
        for index in 0..20 {
            tickets.push(append(&log, index, batch(b"x", 1)));
            world.sleep_ms(1).await;
        }
        assert_eq!(log.next_number(), 3, "two are on their way, the rest waits");
        // What makes a megabyte leaves at once, with all that waited.
        for index in 20..40 {
            tickets.push(append(&log, index, batch(&vec![b'x'; 60_000], 1)));
        }
        world.sleep_ms(1).await;
        assert_eq!(log.next_number(), 4);
        tickets.push(append(&log, 0, batch(b"after", 1)));
        world.sleep_ms(9_000).await;
        assert_eq!(log.next_number(), 4, "waits for one of them to land");
        world.sleep_ms(2_000).await;
        assert_eq!(log.next_number(), 5);
        for ticket in &tickets {
            ticket.wait().await.unwrap();
        }
    });
}

#[test]
fn a_foreign_object_fences() {
    simulate(5, |world| async move {
        let log = world.open(1).await;
        let partition_0 = lead(&log, 0);
        append(&log, 0, batch(b"kept", 1)).wait().await.unwrap();
        let put_id = PutId([9; 16]);
        let marker = Envelope {
            kind: ObjectKind::ClosedMarker,
            version: 1,
            must_understand: 0,
            may_ignore: 0,
            put_id,
            cluster_id: CLUSTER,
            writer: 2,
        };
        let marker = Payload::from(marker.encode(b"", 0));
        world.wal(1).create(2, marker, put_id, None).await.unwrap();
        let waiter = Arc::new(NotifyWaiter::default());
        let _guard = partition_0.register(waiter.clone());
        let lost = append(&log, 0, batch(b"lost", 1));
        log.fenced().await;
        assert_eq!(lost.wait().await, Err(AppendFailed::Fenced));
        waiter.0.notified().await;
        assert!(partition_0.is_stopped() && log.is_fenced());
        assert_eq!(partition_0.high_watermark(), Offset(1));
        assert!(log.partition(partition(0)).is_none());
        let entry = Entry::records(partition(0), batch(b"late", 1), Latency::Low);
        let refused = log.append(entry).unwrap_err();
        assert!(matches!(refused, AppendError::Fenced), "{refused}");
        assert!(log.fresh(world.runtime.clock.monotonic()).await.is_err());
        assert_eq!(log.pending_bytes(), 0);
    });
}

#[test]
fn a_silent_store_fills_the_limit_and_nothing_else() {
    simulate(6, |world| async move {
        let limits = LogLimits {
            pending_bytes_max: 10_000,
            ..LogLimits::local()
        };
        let log = world.open_with(1, limits, Recovered::default()).await;
        lead(&log, 0);
        world.faulty.pause();
        let mut tickets = Vec::new();
        while log.is_below_limit() {
            tickets.push(append(&log, 0, batch(&[b'x'; 500], 1)));
            world.sleep_ms(1).await;
        }
        let clock = &world.runtime.clock;
        let muted = clock
            .timeout(Duration::from_secs(300), log.below_limit())
            .await;
        assert!(muted.is_err(), "the store is silent");
        let deadline = clock.monotonic() + Duration::from_secs(1);
        let pending_bytes = log.pending_bytes();
        assert_eq!(
            log.drain(deadline).await,
            Err(DrainError::Deadline { pending_bytes })
        );
        world.faulty.heal();
        log.below_limit().await;
        for ticket in tickets {
            ticket.wait().await.unwrap();
        }
        let entry = Entry::records(partition(0), batch(b"x", 1), Latency::Low);
        assert!(
            matches!(log.append(entry), Err(AppendError::Closed)),
            "it is draining"
        );
        assert_eq!(
            log.drain(clock.monotonic() + Duration::from_secs(1)).await,
            Ok(())
        );
    });
}

#[test]
fn draining_does_not_wait_for_the_class() {
    simulate(7, |world| async move {
        let log = world
            .open_with(1, LogLimits::bucket(), Recovered::default())
            .await;
        lead(&log, 0);
        append(&log, 0, batch(b"x", 1)).wait().await.unwrap();
        let entry = Entry::records(partition(0), batch(b"y", 1), Latency::Economy);
        let ticket = log.append(entry).unwrap().remove(0);
        let deadline = world.runtime.clock.monotonic() + Duration::from_millis(100);
        assert_eq!(log.drain(deadline).await, Ok(()));
        ticket.wait().await.unwrap();
    });
}

#[test]
fn memory_is_bounded_and_what_is_evicted_stays_known() {
    simulate(8, |world| async move {
        let limits = LogLimits {
            tail_bytes_max: 5_000,
            ..LogLimits::local()
        };
        let log = world.open_with(1, limits, Recovered::default()).await;
        let partition_0 = lead(&log, 0);
        for _ in 0..20 {
            append(&log, 0, batch(&[b'x'; 900], 1))
                .wait()
                .await
                .unwrap();
        }
        let tail = partition_0.roll_candidates(log.writer(), 1_000);
        assert_eq!(tail.len(), 20);
        let in_memory = tail.iter().filter(|batch| batch.data.is_some()).count();
        assert!((4..6).contains(&in_memory), "{in_memory} batches in memory");
        assert!(tail[19].data.is_some(), "the newest stay");
        let all: u64 = tail.iter().map(|batch| u64::from(batch.size_bytes)).sum();
        assert!(log.unrolled_bytes() > all, "and what they take beside");
        assert_eq!(partition_0.size_bytes(), all);
    });
}

#[test]
fn a_log_start_moves_by_an_entry_and_frees_the_tail() {
    simulate(9, |world| async move {
        let log = world.open(1).await;
        let partition_0 = lead(&log, 0);
        for _ in 0..4 {
            append(&log, 0, batch(b"x", 2)).wait().await.unwrap();
        }
        let beyond = log.append(Entry::log_start(partition(0), Offset(9), Latency::Low));
        assert!(matches!(beyond, Err(AppendError::OffsetOutOfRange { .. })));
        let moved = log
            .append(Entry::log_start(partition(0), Offset(5), Latency::Low))
            .unwrap();
        assert_eq!(moved[0].wait().await.unwrap().log_start, Offset(5));
        assert_eq!(partition_0.log_start(), Offset(5));
        let left = partition_0.roll_candidates(log.writer(), 1_000);
        assert_eq!(
            left[0].base_offset,
            Offset(4),
            "the batch that holds the start stays"
        );
        let before = objects(&world).await;
        let again = log
            .append(Entry::log_start(partition(0), Offset(3), Latency::Low))
            .unwrap();
        assert_eq!(again[0].wait().await.unwrap().log_start, Offset(5));
        assert_eq!(objects(&world).await, before, "nothing to write");
    });
}

#[test]
fn a_closed_log_lets_go() {
    simulate(10, |world| async move {
        let log = world.open(1).await;
        lead(&log, 0);
        world.faulty.pause();
        let ticket = append(&log, 0, batch(b"x", 1));
        world.sleep_ms(1).await;
        drop(log);
        assert_eq!(ticket.wait().await, Err(AppendFailed::Closed));
        world.sleep_ms(1).await;
        let running = world.runtime.tasks.running();
        assert!(
            !running.contains(&"wal-engine") && !running.contains(&"wal-put"),
            "{running:?}"
        );
    });
}
