//! A disk that fills: producers wait before it is full, the roll goes on, and what is deleted makes
//! room without anybody's help.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tidemill_log::{
    recover::Recovered,
    roll::{Roll, SoleLeader},
};
use tidemill_wire::ids::{Offset, WriterId};

use crate::{
    disk::{DISK, FLOOR, MIB, limits, with_disk},
    harness::{Rig, START_MS, WRITER, World, partition, simulate, small_limits},
};

/// Produces to partition `index` as long as producers may, `wait` included; returns how much.
async fn fill(world: &World, rig: &mut Rig, index: i32, wait: Duration) -> u64 {
    let mut bytes = 0;
    loop {
        let waited = rig.log.below_limit();
        let waited = world.runtime.clock.timeout(wait, waited).await;
        if waited.is_err() {
            return bytes;
        }
        rig.append(index, &[START_MS], 30_000).await;
        bytes += 30_000;
        assert!(bytes < 2 * DISK, "the disk is never full");
    }
}

#[test]
fn producers_wait_before_the_disk_is_full_and_deletion_makes_room() {
    simulate(1, |mut world| async move {
        let disk = with_disk(&mut world, DISK);
        let mut rig = world.open(WRITER, limits(), Recovered::default()).await;
        (0..2).for_each(|index| rig.lead(index));
        let roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
        let patience = Duration::from_secs(60);
        let small = fill(&world, &mut rig, 1, Duration::ZERO).await;
        let large = fill(&world, &mut rig, 0, patience).await;
        let filled = small + large;
        assert!(filled > DISK / 2, "{filled} bytes: most of it can be used");
        let least = disk.least.load(Ordering::Relaxed);
        assert!(
            least > FLOOR / 2,
            "{least} bytes were left for what makes room"
        );
        assert_eq!(disk.refused(), 0);
        rig.check_all().await;
        // Its topic is deleted: nobody removes anything by hand.
        rig.log.drop_partition(partition(0));
        rig.oracle.remove(&partition(0));
        let waited = rig.log.below_limit();
        let waited = world.runtime.clock.timeout(patience, waited).await;
        assert!(waited.is_ok(), "{} bytes are free", disk.free().await);
        let more = fill(&world, &mut rig, 1, patience).await;
        assert!(more > large / 2, "{more} bytes fit after {large} went");
        rig.check_all().await;
        assert_eq!(disk.refused(), 0);
        let deadline = world.runtime.clock.monotonic() + patience;
        roll.shutdown(deadline)
            .await
            .expect("a full disk stops cleanly");
    });
}

/// Not even one that would need more than there will ever be.
#[test]
fn a_request_that_does_not_fit_stands_in_nobodys_way() {
    simulate(7, |mut world| async move {
        let _disk = with_disk(&mut world, DISK);
        let mut rig = world.open(WRITER, limits(), Recovered::default()).await;
        rig.lead(0);
        let _roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
        let log = rig.log.clone();
        let clock = world.runtime.clock.clone();
        rig.append(0, &[START_MS], 30_000).await;
        assert!(log.must_wait_for_space(DISK));
        let huge = log.clone();
        let tasks = world.runtime.tasks.clone();
        let huge = tasks.spawn("huge", async move { huge.wait_for_space(DISK).await });
        clock.sleep(Duration::from_secs(60)).await;
        assert!(!log.must_wait_for_space(30_000), "others go on");
        let below = clock.timeout(Duration::ZERO, log.below_limit()).await;
        assert!(below.is_ok(), "nor are they muted");
        rig.append(0, &[START_MS], 30_000).await;
        let small = log.wait_for_space(30_000);
        let small = clock.timeout(Duration::from_secs(2), small).await;
        assert!(small.is_ok(), "what fits passes");
        huge.abort();
        rig.check_all().await;
    });
}

/// Whatever became of it: it was refused, or its client has gone.
#[test]
fn what_a_request_took_is_there_again_when_it_ends() {
    simulate(8, |mut world| async move {
        let _disk = with_disk(&mut world, DISK);
        let mut rig = world.open(WRITER, limits(), Recovered::default()).await;
        rig.lead(0);
        rig.append(0, &[START_MS], 30_000).await;
        let (log, clock) = (&rig.log, &world.runtime.clock);
        let taken = log.wait_for_space(4 * MIB).await;
        assert!(taken.is_some());
        assert!(log.must_wait_for_space(4 * MIB), "the next one sees it");
        let next = log.wait_for_space(4 * MIB);
        let ended = async {
            clock.sleep(Duration::from_millis(10)).await;
            drop(taken);
        };
        let both = async { futures_util::join!(next, ended).0 };
        let next = clock.timeout(Duration::from_millis(20), both).await;
        assert!(
            next.is_ok_and(|taken| taken.is_some()),
            "it goes on at once"
        );
        assert!(!log.must_wait_for_space(4 * MIB));
        // A look has shown what is there: nothing is given back twice.
        let taken = log.wait_for_space(3 * MIB).await;
        clock.sleep(Duration::from_secs(2)).await;
        let never = log.wait_for_space(2 * DISK);
        assert!(clock.timeout(Duration::from_secs(2), never).await.is_err());
        assert!(!log.must_wait_for_space(4 * MIB), "it was looked at");
        drop(taken);
        assert!(log.must_wait_for_space(7 * MIB), "no more than is free");
        assert!(!log.must_wait_for_space(6 * MIB));
    });
}

#[test]
fn records_deleted_make_room_too() {
    simulate(2, |mut world| async move {
        let disk = with_disk(&mut world, DISK);
        let mut rig = world.open(WRITER, limits(), Recovered::default()).await;
        rig.lead(0);
        let _roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
        let patience = Duration::from_secs(100);
        let filled = fill(&world, &mut rig, 0, patience).await;
        let end = rig.log.partition(partition(0)).unwrap().high_watermark();
        rig.delete_records(0, Offset(end.0 - 10)).await;
        let more = fill(&world, &mut rig, 0, patience).await;
        assert!(more > filled / 2, "{more} bytes fit after {filled} went");
        rig.check_all().await;
        assert_eq!(disk.refused(), 0);
    });
}

#[test]
fn a_disk_that_is_full_from_the_start_takes_no_records() {
    simulate(3, |mut world| async move {
        let disk = with_disk(&mut world, DISK);
        let free = FLOOR - 1_000;
        disk.foreign.store(DISK - free, Ordering::Relaxed);
        let mut rig = world.open(WRITER, limits(), Recovered::default()).await;
        rig.lead(0);
        world.runtime.clock.sleep(Duration::from_millis(1)).await;
        assert!(!rig.log.is_below_limit());
        disk.foreign.store(0, Ordering::Relaxed);
        rig.log.below_limit().await;
        rig.append(0, &[START_MS], 100).await;
    });
}

/// Somebody else fills the disk. The roll gives up what does not fit, cleans up after itself, and
/// what is deleted makes room.
#[test]
fn a_disk_that_others_have_filled_heals_from_within() {
    for free in [100_000, 500_000, FLOOR, 2 * MIB, 4 * MIB] {
        simulate(free, |mut world| async move {
            let disk = with_disk(&mut world, DISK);
            let mut rig = world.open(WRITER, limits(), Recovered::default()).await;
            (0..3).for_each(|index| rig.lead(index));
            for _ in 0..20 {
                rig.append(0, &[START_MS], 30_000).await;
            }
            let roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
            roll.round().await.unwrap();
            for _ in 0..40 {
                rig.append(1, &[START_MS], 60_000).await;
                rig.append(2, &[START_MS], 20_000).await;
            }
            let foreign = disk.free().await.saturating_sub(free);
            disk.foreign.store(foreign, Ordering::Relaxed);
            let _ = roll.round().await;
            world.runtime.clock.sleep(Duration::from_secs(60)).await;
            rig.check_all().await;
            for index in [0, 1] {
                rig.log.drop_partition(partition(index));
                rig.oracle.remove(&partition(index));
            }
            world.runtime.clock.sleep(Duration::from_secs(60)).await;
            let left = disk.free().await;
            assert!(left > free + MIB, "{left} bytes are free, {free} were");
            rig.check_all().await;
            rig.append(2, &[START_MS], 20_000).await;
            // What the given-up rounds wrote is gone.
            disk.foreign.store(0, Ordering::Relaxed);
            world.runtime.clock.sleep(Duration::from_secs(700)).await;
            rig.check_all().await;
            rig.check_stored(&world.store).await;
        });
    }
}

/// The file system says there is space, and refuses all the same: a quota.
#[test]
fn a_round_that_finds_no_space_is_given_up_and_leaves_nothing() {
    simulate(5, |mut world| async move {
        let mut limits = small_limits();
        limits.free_bytes_min = 0;
        let disk = with_disk(&mut world, DISK);
        let mut rig = world.open(WRITER, limits, Recovered::default()).await;
        (0..2).for_each(|index| rig.lead(index));
        rig.append(0, &[START_MS], 400).await;
        let roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
        roll.round().await.unwrap();
        for _ in 0..30 {
            rig.append(0, &[START_MS], 90_000).await;
            rig.append(1, &[START_MS], 90_000).await;
        }
        let foreign = disk.free().await - 2 * MIB;
        disk.foreign.store(foreign, Ordering::Relaxed);
        assert!(roll.round().await.is_err(), "it does not fit");
        world.runtime.clock.sleep(Duration::from_secs(30)).await;
        assert!(disk.free().await > MIB, "what was given up is gone");
        rig.log.drop_partition(partition(0));
        rig.oracle.remove(&partition(0));
        world.runtime.clock.sleep(Duration::from_secs(30)).await;
        rig.check_all().await;
        disk.foreign.store(0, Ordering::Relaxed);
        roll.round().await.unwrap();
        world.runtime.clock.sleep(Duration::from_secs(30)).await;
        rig.check_all().await;
        rig.check_stored(&world.store).await;
    });
}

/// What was taken over is moved as a whole or not at all, and nothing is lost either way.
#[test]
fn a_restart_on_a_full_disk_serves_reads_and_heals() {
    simulate(6, |mut world| async move {
        let disk = with_disk(&mut world, DISK);
        let mut rig = world.open(WRITER, limits(), Recovered::default()).await;
        (0..2).for_each(|index| rig.lead(index));
        for _ in 0..40 {
            rig.append(0, &[START_MS], 60_000).await;
            rig.append(1, &[START_MS], 20_000).await;
        }
        let oracle = std::mem::take(&mut rig.oracle);
        rig.log.close();
        let foreign = disk.free().await - FLOOR;
        disk.foreign.store(foreign, Ordering::Relaxed);
        let recovered = world.recover(&[WRITER]).await;
        let next = WriterId(WRITER.0 + 1);
        let mut rig = world.open(next, limits(), recovered).await;
        rig.oracle = oracle;
        let roll = Roll::start(rig.log.clone(), Arc::new(SoleLeader));
        world.runtime.clock.sleep(Duration::from_secs(60)).await;
        assert!(!rig.log.is_below_limit());
        rig.check_all().await;
        rig.log.drop_partition(partition(0));
        rig.oracle.remove(&partition(0));
        world.runtime.clock.sleep(Duration::from_secs(60)).await;
        let left = disk.free().await;
        assert!(
            rig.log.is_below_limit(),
            "{left} free, {} unrolled",
            rig.log.unrolled_bytes()
        );
        assert!(disk.free().await > FLOOR + 2 * MIB);
        rig.append(1, &[START_MS], 20_000).await;
        roll.round().await.unwrap();
        rig.check_all().await;
        world.runtime.clock.sleep(Duration::from_secs(60)).await;
        rig.check_stored(&world.store).await;
    });
}
