//! What things cost in requests.

use std::{sync::Arc, time::Duration};

use tidemill_log::{
    Entry, Latency, LogLimits,
    ckpt::FULL_EVERY,
    recover::Recovered,
    roll::{Roll, SoleLeader},
};
use tidemill_wire::ids::{Offset, WriterId};

use crate::harness::{Rig, START_MS, WRITER, batch, partition, simulate, small_limits};

async fn trickle(rig: &Rig, partitions: i32) {
    let mut tickets = Vec::new();
    for index in 0..partitions {
        let entry = Entry::records(
            partition(index),
            batch(&[START_MS], 100, 1),
            Latency::Economy,
        );
        tickets.extend(rig.log.append(entry).unwrap());
    }
    for ticket in tickets {
        ticket.wait().await.unwrap();
    }
}

#[test]
fn ten_thousand_partitions_with_a_trickle_cost_at_most_four_puts_a_round() {
    const PARTITIONS: i32 = 10_000;
    simulate(1, |world| async move {
        let mut limits = LogLimits::bucket();
        // Merges apart; manifests soon.
        limits.roll.recent_max = 4;
        let mut rig = world.open(WRITER, limits, Recovered::default()).await;
        (0..PARTITIONS).for_each(|index| rig.lead(index));
        let mut most = 0;
        for round in 0..7 {
            trickle(&rig, PARTITIONS).await;
            let before = world.store.counters();
            let report = rig.roller.round().await.unwrap();
            let after = world.store.counters();
            assert_eq!(report.partitions, 10_000);
            let puts = after.puts - before.puts;
            // Round 5 writes the manifests of all partitions.
            let expected = if round == 4 { 3 } else { 2 };
            assert_eq!(puts, expected, "round {round}");
            most = most.max(puts);
            // The full one trims, which lists.
            assert!(after.lists - before.lists <= 2, "the look");
        }
        assert!(most <= 4);
        let before = world.store.counters();
        assert!(!rig.roller.round().await.unwrap().published);
        assert_eq!(world.store.counters(), before, "nothing new costs nothing");
    });
}

#[test]
fn full_snapshots_and_shared_manifests_keep_a_round_within_four_puts() {
    const PARTITIONS: i32 = 200;
    const ROUNDS: u64 = 2 * FULL_EVERY + 2;
    simulate(7, |world| async move {
        let mut limits = LogLimits::bucket();
        limits.roll.recent_max = 4;
        let mut rig = world.open(WRITER, limits, Recovered::default()).await;
        (0..PARTITIONS).for_each(|index| rig.lead(index));
        let (mut full, mut with_manifests) = (0, 0);
        for round in 0..ROUNDS {
            // Every other partition is quiet now and then: a full one holds it all the same.
            trickle(&rig, PARTITIONS - (round % 2) as i32 * PARTITIONS / 2).await;
            let before = world.store.counters();
            assert!(rig.roller.round().await.unwrap().published);
            let after = world.store.counters();
            let puts = after.puts - before.puts;
            assert!((2..=4).contains(&puts), "round {round}: {puts} PUTs");
            with_manifests += u64::from(puts > 2);
            // Only a full one trims, which lists once more than the look.
            full += u64::from(after.lists - before.lists > 1);
        }
        assert_eq!(full, 3, "the first, and one every {FULL_EVERY}");
        assert!(with_manifests > 2);
        rig.check_chain(&world.store).await;
    });
}

#[test]
fn a_produced_byte_is_sent_twice_and_never_read_back() {
    const PARTITIONS: i32 = 8;
    const IN_FLIGHT: usize = 20;
    const ROUNDS: usize = 3;
    const WAVES: usize = 8;
    simulate(6, |world| async move {
        let mut rig = world
            .open(WRITER, LogLimits::local(), Recovered::default())
            .await;
        (0..PARTITIONS).for_each(|index| rig.lead(index));
        let times = [START_MS; 100];
        let before = world.store.counters();
        let mut produced = 0;
        for _ in 0..ROUNDS {
            for _ in 0..WAVES {
                let mut tickets = Vec::new();
                for n in 0..IN_FLIGHT {
                    let batch = batch(&times, 1_024, n as u8);
                    produced += batch.bytes.len() as u64;
                    let partition = partition(n as i32 % PARTITIONS);
                    let entry = Entry::records(partition, batch, Latency::Low);
                    tickets.extend(rig.log.append(entry).unwrap());
                }
                for ticket in tickets {
                    ticket.wait().await.unwrap();
                }
            }
            assert!(rig.roller.round().await.unwrap().published);
            rig.merge_all().await;
        }
        let after = world.store.counters();
        let sent = after.bytes_up - before.bytes_up;
        // The WAL, the data object; directories, footers and checkpoints are what little is left.
        assert!(
            sent * 1_000 < produced * 2_010,
            "{sent} of {produced} bytes"
        );
        assert_eq!(after.gets, before.gets, "what is rolled is in memory");
        let objects = after.puts - before.puts;
        let batches = (ROUNDS * WAVES * IN_FLIGHT) as u64;
        // Those that come together go together: two waves' worth at once, and two PUTs a round.
        assert!(
            objects < batches / 2,
            "{objects} objects of {batches} batches"
        );
    });
}

#[test]
fn an_idle_log_asks_the_store_for_nothing() {
    simulate(2, |world| async move {
        let mut rig = world
            .open(WRITER, LogLimits::bucket(), Recovered::default())
            .await;
        rig.lead(0);
        rig.append(0, &[START_MS], 100).await;
        let roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
        roll.round().await.unwrap();
        world.runtime.clock.sleep(Duration::from_secs(120)).await;
        let before = world.store.counters();
        world.runtime.clock.sleep(Duration::from_secs(3_600)).await;
        assert_eq!(world.store.counters(), before);
    });
}

#[test]
fn old_data_is_rolled_and_trimmed_by_itself() {
    simulate(3, |world| async move {
        let mut rig = world
            .open(WRITER, LogLimits::bucket(), Recovered::default())
            .await;
        rig.lead(0);
        let _roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
        for _ in 0..5 {
            rig.append(0, &[START_MS], 100).await;
        }
        let wal = rig.log.wal_objects().list_from(0).await.unwrap().len();
        assert!(wal > 5);
        world.runtime.clock.sleep(Duration::from_secs(700)).await;
        assert_eq!(rig.log.unrolled_bytes(), 0);
        assert_eq!(rig.log.wal_objects().list_from(0).await.unwrap().len(), 1);
        rig.check_all().await;
        rig.check_stored(&world.store).await;
    });
}

#[test]
fn readers_of_one_block_share_one_read() {
    simulate(4, |world| async move {
        let mut rig = world
            .open(WRITER, small_limits(), Recovered::default())
            .await;
        rig.lead(0);
        for _ in 0..12 {
            rig.append(0, &[START_MS], 40_000).await;
        }
        rig.roller.round().await.unwrap();
        // Another log over the same store has nothing in memory.
        let fresh = tidemill_log::read::Reader::new(
            world.store.clone(),
            world.runtime.clone(),
            tidemill_log::read::ReadOptions::bucket(),
        );
        let list = rig.log.partition(partition(0)).unwrap().extents();
        let before = world.store.counters().gets;
        let reads = (0..100).map(|_| {
            let (fresh, list) = (fresh.clone(), list.clone());
            async move {
                let request = tidemill_log::read::ExtentRead {
                    offset: Offset(3),
                    end: Offset(12),
                    max_bytes: 1 << 20,
                    at_least_one: true,
                };
                fresh.read_extents(&list, request).await.unwrap()
            }
        });
        let read = futures_util::future::join_all(reads).await;
        assert!(read.iter().all(|other| *other == read[0]));
        // A footer and a block: 480 KB is one segment.
        assert_eq!(world.store.counters().gets - before, 2);
        assert_eq!(read[0].slices.len(), 1, "one slice");
        assert_eq!(read[0].next_offset, Offset(12));
    });
}

#[test]
fn a_clean_stop_closes_its_own_log() {
    simulate(5, |world| async move {
        let mut rig = world
            .open(WriterId(9), LogLimits::bucket(), Recovered::default())
            .await;
        rig.lead(0);
        rig.append(0, &[START_MS], 100).await;
        let roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
        let deadline = world.runtime.clock.monotonic() + Duration::from_secs(10);
        roll.shutdown(deadline).await.unwrap();
        let chain = tidemill_log::ckpt::read_chain(&world.store, WriterId(9))
            .await
            .unwrap();
        let (_, closing) = chain.closing.unwrap();
        assert_eq!(chain.partitions[&partition(0)].head.next_offset, Offset(1));
        assert!(
            closing.last.is_some_and(|last| chain.replay_from > last),
            "all is rolled"
        );
    });
}

#[test]
fn what_was_never_rolled_goes_with_its_topic() {
    const HOUR: Duration = Duration::from_secs(3_600);
    simulate(9, |world| async move {
        let mut rig = world
            .open(WRITER, LogLimits::bucket(), Recovered::default())
            .await;
        rig.lead(0);
        let _roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
        for _ in 0..5 {
            rig.append(0, &[START_MS], 40_000).await;
        }
        // Still pending when its topic goes.
        let entry = Entry::records(
            partition(0),
            batch(&[START_MS], 40_000, 1),
            Latency::Economy,
        );
        let pending = rig.log.append(entry).unwrap().remove(0);
        rig.log.drop_partition(partition(0));
        pending.wait().await.unwrap();
        world.runtime.clock.sleep(HOUR).await;
        let wal = rig.log.wal_objects().list_from(0).await.unwrap();
        assert_eq!(wal.len(), 1, "the newest number stays");
        let before = world.store.counters();
        world.runtime.clock.sleep(HOUR).await;
        assert_eq!(world.store.counters(), before, "an idle hour costs nothing");
    });
}

#[test]
fn what_was_deleted_before_it_was_rolled_goes_soon() {
    simulate(10, |world| async move {
        let mut limits = LogLimits::bucket();
        // Age brings about nothing here.
        limits.roll.interval = Duration::from_secs(1_000_000);
        let mut rig = world.open(WRITER, limits, Recovered::default()).await;
        rig.lead(0);
        let _roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
        for _ in 0..5 {
            rig.append(0, &[START_MS], 40_000).await;
        }
        rig.delete_records(0, Offset(5)).await;
        world.runtime.clock.sleep(Duration::from_secs(600)).await;
        let wal = rig.log.wal_objects().list_from(0).await.unwrap();
        assert_eq!(wal.len(), 1, "the newest number stays");
        rig.check_stored(&world.store).await;
    });
}
