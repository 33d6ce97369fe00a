//! Damaged, missing and superfluous objects: what readers and fsck say.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use tidemill_log::{
    Entry, Latency, Log,
    ckpt::{Landed, close},
    fsck::{self, FsckOptions, Report},
    inspect, keys,
    read::{Isolation, ReadError, ReadRequest, ReadResult},
    recover::Recovered,
    types::{DataObjectId, Extent},
};
use tidemill_store::{
    Backend, Payload,
    testing::{Fault, FaultPlan, Operation, Rule},
};
use tidemill_wire::ids::{Offset, WriterId};

use crate::{
    disk::{DISK, MIB, with_disk},
    harness::{Rig, START_MS, WRITER, World, batch, partition, simulate, small_limits},
};

async fn rolled(world: &World) -> Rig {
    // Nothing rolled stays in memory.
    let mut limits = small_limits();
    limits.tail_bytes_max = 0;
    let mut rig = world.open(WRITER, limits, Recovered::default()).await;
    rig.lead(0);
    rig.lead(1);
    for _ in 0..4 {
        rig.append(0, &[START_MS, START_MS + 5], 40_000).await;
        rig.append(1, &[START_MS], 200).await;
    }
    rig.roller.round().await.unwrap();
    rig
}

fn extent(log: &Log, index: i32) -> Extent {
    log.partition(partition(index)).unwrap().extents().recent[0].clone()
}

async fn read(log: &Log, index: i32) -> Result<ReadResult, ReadError> {
    let request = ReadRequest {
        offset: Offset(0),
        max_bytes: 1 << 20,
        isolation: Isolation::Uncommitted,
        at_least_one: true,
    };
    log.partition(partition(index)).unwrap().read(request).await
}

async fn replace(world: &World, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = world.memory.get(key).await.unwrap().to_vec();
    change(&mut bytes);
    world.memory.delete(key).await.unwrap();
    world
        .memory
        .put_if_absent(key, Payload::from(Bytes::from(bytes)))
        .await
        .unwrap();
}

async fn check(world: &World, deep: bool) -> Report {
    let options = FsckOptions {
        deep,
        partitions: None,
    };
    fsck::check(&world.store, &options, &|_| ()).await.unwrap()
}

#[test]
fn a_flipped_bit_is_corruption_of_that_partition_alone() {
    simulate(1, |world| async move {
        let rig = rolled(&world).await;
        let extent = extent(&rig.log, 0);
        let key = keys::data_key(extent.object);
        let at = extent.range.start as usize + 1_000;
        replace(&world, &key, |bytes| bytes[at] ^= 1).await;
        let error = read(&rig.log, 0).await.unwrap_err();
        assert!(
            matches!(&error, ReadError::Corrupt { key: named, .. } if *named == key),
            "{error}"
        );
        assert!(read(&rig.log, 1).await.unwrap().size > 0);
        let report = check(&world, true).await;
        assert_eq!(report.damage.len(), 1, "{report:?}");
        assert_eq!(report.damage[0].key, key);
        assert!(
            check(&world, false).await.is_clean(),
            "only the directories were read"
        );
    });
}

#[test]
fn a_bad_answer_is_asked_for_again() {
    simulate(2, |world| async move {
        let rig = rolled(&world).await;
        let rule = Rule::new(Operation::Get, "data", Fault::BitFlip).times(1);
        world.faulty.set_plan(FaultPlan::none().rule(rule));
        assert!(read(&rig.log, 0).await.unwrap().size > 0);
    });
}

#[test]
fn base_offset_and_epoch_are_covered_by_a_checksum() {
    simulate(3, |world| async move {
        let rig = rolled(&world).await;
        let extent = extent(&rig.log, 0);
        // Kafka's own CRC leaves these bytes out.
        for byte in [7, 15] {
            let at = extent.range.start as usize + byte;
            replace(&world, &keys::data_key(extent.object), |bytes| {
                bytes[at] ^= 1
            })
            .await;
            assert!(matches!(
                read(&rig.log, 0).await,
                Err(ReadError::Corrupt { .. })
            ));
            replace(&world, &keys::data_key(extent.object), |bytes| {
                bytes[at] ^= 1
            })
            .await;
        }
        assert!(read(&rig.log, 0).await.unwrap().size > 0);
    });
}

#[test]
fn fsck_names_what_is_missing_and_what_is_left_over() {
    simulate(4, |world| async move {
        let rig = rolled(&world).await;
        assert!(check(&world, true).await.is_clean());
        let extent = extent(&rig.log, 1);
        let key = keys::data_key(extent.object);
        let bytes = world.memory.get(&key).await.unwrap();
        world.memory.delete(&key).await.unwrap();
        let report = check(&world, false).await;
        assert_eq!(report.damage.len(), 1);
        assert_eq!(report.damage[0].key, key);
        assert!(matches!(read(&rig.log, 1).await, Err(ReadError::Store(_))));
        world
            .memory
            .put_if_absent(&key, Payload::from(bytes.clone()))
            .await
            .unwrap();
        // What a writer of which nothing else is known left behind may be in flight.
        let stray = DataObjectId {
            seq: 1_000,
            ..extent.object
        };
        let key = keys::data_key(stray);
        world
            .memory
            .put_if_absent(&key, Payload::from(bytes))
            .await
            .unwrap();
        assert!(
            check(&world, false).await.is_clean(),
            "its writer may be about to list it"
        );
        world.memory.delete(&key).await.unwrap();
        // A number of the WAL that no checkpoint holds.
        let mut rig = rig;
        rig.append(0, &[START_MS], 10).await;
        rig.append(0, &[START_MS], 10).await;
        let wal = rig.log.wal_objects();
        let (last, _) = *wal.list_from(0).await.unwrap().last().unwrap();
        let key = wal.key(last - 1);
        let bytes = world.memory.get(&key).await.unwrap();
        world.memory.delete(&key).await.unwrap();
        let report = check(&world, false).await;
        assert!(
            report.damage.iter().any(|finding| finding.key == key),
            "{report:?}"
        );
        // Its header and directory are whole, its end is not.
        let cut = bytes.slice(..bytes.len() - 3);
        let long = Bytes::from([&bytes[..], &[0]].concat());
        for torn in [cut, long] {
            let put = world.memory.put_if_absent(&key, Payload::from(torn)).await;
            put.unwrap();
            let report = check(&world, false).await;
            let found: Vec<_> = report.damage.iter().map(|found| &found.key).collect();
            assert_eq!(found, [&key]);
            world.memory.delete(&key).await.unwrap();
        }
        world
            .memory
            .put_if_absent(&key, Payload::from(bytes))
            .await
            .unwrap();
        assert!(check(&world, true).await.is_clean());
    });
}

/// Changes the last byte of the newest WAL object.
async fn flip_newest(world: &World, rig: &Rig) -> String {
    let wal = rig.log.wal_objects();
    let (newest, _) = *wal.list_from(0).await.unwrap().last().unwrap();
    let key = wal.key(newest);
    flip(world, &key).await;
    key
}

async fn flip(world: &World, key: &str) {
    replace(world, key, |bytes| *bytes.last_mut().unwrap() ^= 1).await;
}

async fn wal_below(world: &World, rig: &Rig, key: &str) -> usize {
    let prefix = format!("{}/", keys::wal_prefix(rig.log.writer()));
    let listed = world.store.list_all(&prefix).await.unwrap();
    listed.iter().filter(|meta| *meta.key < *key).count()
}

/// A log of which nothing stays in memory; of its partitions 0 to 2 the second has one damaged
/// batch in the WAL, with a deletion before it. Returns the key of its object.
async fn damaged(world: &World) -> (Rig, String) {
    let mut limits = small_limits();
    limits.tail_bytes_max = 0;
    let mut rig = world.open(WRITER, limits, Recovered::default()).await;
    (0..3).for_each(|index| rig.lead(index));
    rig.append(1, &[START_MS], 200).await;
    rig.append(0, &[START_MS], 40_000).await;
    rig.roller.round().await.unwrap();
    rig.delete_records(1, Offset(1)).await;
    rig.append(1, &[START_MS], 40_000).await;
    let key = flip_newest(world, &rig).await;
    for index in 0..3 {
        rig.append(index, &[START_MS], 40_000).await;
    }
    (rig, key)
}

async fn roll_and_tidy(world: &World, rig: &mut Rig) {
    assert!(rig.roller.round().await.unwrap().published);
    assert!(!rig.roller.round().await.unwrap().published, "all is said");
    world.runtime.clock.sleep(Duration::from_secs(1)).await;
    rig.roller.tidy().await;
    assert_eq!(rig.log.left_out(), 1);
    let end = |index| {
        let partition = rig.log.partition(partition(index)).unwrap();
        (partition.extents().end_offset(), partition.high_watermark())
    };
    for healthy in [0, 2] {
        let (rolled, high_watermark) = end(healthy);
        assert_eq!(rolled, high_watermark, "{healthy} rolls on");
    }
    assert!(end(1).0 < end(1).1, "the damaged one does not");
}

#[test]
fn a_corrupt_body_in_the_wal_stops_the_roll_of_its_partition_alone() {
    simulate(6, |world| async move {
        let (mut rig, key) = damaged(&world).await;
        roll_and_tidy(&world, &mut rig).await;
        assert_eq!(wal_below(&world, &rig, &key).await, 0, "what is below goes");
        // More comes, and goes on rolling; what is damaged stays.
        rig.append(0, &[START_MS], 40_000).await;
        rig.append(1, &[START_MS], 200).await;
        roll_and_tidy(&world, &mut rig).await;
        assert!(world.memory.get(&key).await.is_ok());
        // Repaired, it is rolled after a while, and all is trimmed.
        flip(&world, &key).await;
        world.runtime.clock.sleep(Duration::from_secs(700)).await;
        rig.roller.round().await.unwrap();
        world.runtime.clock.sleep(Duration::from_secs(1)).await;
        rig.roller.tidy().await;
        assert_eq!(rig.log.left_out(), 0);
        assert!(world.memory.get(&key).await.is_err());
        rig.check_all().await;
        rig.check_stored(&world.store).await;
    });
}

#[test]
fn what_is_left_out_is_there_after_a_restart_and_goes_with_its_records() {
    simulate(7, |world| async move {
        let (mut rig, key) = damaged(&world).await;
        roll_and_tidy(&world, &mut rig).await;
        let oracle = std::mem::take(&mut rig.oracle);
        rig.log.close();
        let mut limits = small_limits();
        limits.tail_bytes_max = 0;
        let recovered = world.recover(&[WRITER]).await;
        let next = WriterId(WRITER.0 + 1);
        let mut rig = world.open(next, limits, recovered).await;
        rig.oracle = oracle;
        assert_eq!(
            rig.log.partition(partition(1)).unwrap().log_start(),
            Offset(1)
        );
        rig.append(0, &[START_MS], 200).await;
        rig.append(1, &[START_MS], 200).await;
        roll_and_tidy(&world, &mut rig).await;
        rig.roller.clean_up().await.unwrap();
        assert!(world.memory.get(&key).await.is_ok(), "kept for repair");
        // Given up by whoever owns it.
        rig.delete_records(1, Offset(2)).await;
        rig.roller.round().await.unwrap();
        world.runtime.clock.sleep(Duration::from_secs(1)).await;
        rig.roller.tidy().await;
        rig.roller.clean_up().await.unwrap();
        assert!(world.memory.get(&key).await.is_err());
        rig.check_all().await;
        rig.check_stored(&world.store).await;
    });
}

/// Data objects of a log's writer.
async fn data_objects(world: &World, rig: &Rig) -> usize {
    let prefix = format!("{}/", keys::data_prefix(rig.log.writer()));
    world.store.list_all(&prefix).await.unwrap().len()
}

#[test]
fn a_large_share_taken_over_with_a_damaged_end_leaves_no_objects_behind() {
    simulate(10, |world| async move {
        let mut limits = small_limits();
        limits.tail_bytes_max = 0;
        let mut rig = world
            .open(WRITER, limits.clone(), Recovered::default())
            .await;
        (0..2).for_each(|index| rig.lead(index));
        rig.append(0, &[START_MS], 200).await;
        // Two segments, of which the second has one damaged batch.
        for _ in 0..20 {
            rig.append(1, &[START_MS], 40_000).await;
        }
        let key = flip_newest(&world, &rig).await;
        rig.append(1, &[START_MS], 200).await;
        let mut oracle = std::mem::take(&mut rig.oracle);
        rig.log.close();
        let mut writers = vec![WRITER];
        for start in 1..4 {
            let next = WriterId(WRITER.0 + start);
            let recovered = world.recover_through(&writers, |_| false).await;
            rig = world.open(next, limits.clone(), recovered).await;
            rig.oracle = oracle;
            for attempt in 0..3 {
                rig.roller.round().await.unwrap();
                assert_eq!(rig.log.left_out(), 1);
                let end = rig.log.partition(partition(1)).unwrap();
                assert_eq!(
                    end.extents().end_offset(),
                    Offset(0),
                    "as a whole or not at all"
                );
                if attempt > 0 {
                    let written = data_objects(&world, &rig).await;
                    assert!(written <= 1, "start {start}, attempt {attempt}: {written}");
                }
                world.runtime.clock.sleep(Duration::from_secs(1)).await;
                rig.roller.tidy().await;
                rig.roller.clean_up().await.unwrap();
                // What the first partition has.
                let kept = usize::from(start == 1);
                assert_eq!(data_objects(&world, &rig).await, kept, "{start}, {attempt}");
                assert!(world.memory.get(&key).await.is_ok(), "kept for repair");
                world.runtime.clock.sleep(Duration::from_secs(700)).await;
            }
            oracle = std::mem::take(&mut rig.oracle);
            rig.log.close();
            writers.push(next);
        }
        flip(&world, &key).await;
        let next = WriterId(WRITER.0 + 4);
        let recovered = world.recover_through(&writers, |_| false).await;
        rig = world.open(next, limits, recovered).await;
        rig.oracle = oracle;
        rig.roller.round().await.unwrap();
        world.runtime.clock.sleep(Duration::from_secs(1)).await;
        rig.roller.tidy().await;
        rig.roller.clean_up().await.unwrap();
        assert_eq!(rig.log.left_out(), 0);
        rig.check_all().await;
        rig.check_stored(&world.store).await;
    });
}

/// Its first checkpoint said nothing of it, for want of space, and no other is due.
#[test]
fn a_large_share_found_damaged_late_leaves_no_objects_behind() {
    simulate(11, |mut world| async move {
        let disk = with_disk(&mut world, DISK);
        let mut limits = small_limits();
        limits.tail_bytes_max = 0;
        limits.free_bytes_min = MIB;
        let mut rig = world
            .open(WRITER, limits.clone(), Recovered::default())
            .await;
        rig.lead(1);
        for _ in 0..20 {
            rig.append(1, &[START_MS], 40_000).await;
        }
        flip_newest(&world, &rig).await;
        rig.append(1, &[START_MS], 200).await;
        rig.log.close();
        let free = disk.free().await;
        disk.foreign.store(free - MIB, Ordering::Relaxed);
        let recovered = world.recover(&[WRITER]).await;
        let next = WriterId(WRITER.0 + 1);
        rig = world.open(next, limits, recovered).await;
        let said = rig.roller.round().await.unwrap();
        assert!(said.published && rig.log.left_out() == 0, "nothing fits");
        disk.foreign.store(0, Ordering::Relaxed);
        rig.roller.round().await.unwrap();
        assert_eq!(rig.log.left_out(), 1);
        world.runtime.clock.sleep(Duration::from_secs(1)).await;
        rig.roller.tidy().await;
        assert_eq!(data_objects(&world, &rig).await, 0);
    });
}

#[test]
fn an_entry_in_several_objects_around_the_damage_is_replayed_whole() {
    simulate(9, |world| async move {
        let mut limits = small_limits();
        limits.tail_bytes_max = 0;
        limits.bulk_entry_bytes = 10_000;
        limits.fragment_bytes = 20_000;
        limits.puts_in_flight_max = 2;
        limits.bulk_in_flight_max = 1;
        let mut rig = world
            .open(WRITER, limits.clone(), Recovered::default())
            .await;
        (0..2).for_each(|index| rig.lead(index));
        let each = Duration::from_millis(10);
        world.faulty.set_plan(FaultPlan::none().delayed(each, each));
        let bulk = Entry::records(partition(0), batch(&[START_MS], 190_000, 7), Latency::Low);
        let bulk = rig.log.append(bulk).unwrap().remove(0);
        world.runtime.clock.sleep(Duration::from_millis(35)).await;
        let small = Entry::records(partition(1), batch(&[START_MS], 100, 8), Latency::Low);
        let small = rig.log.append(small).unwrap().remove(0);
        small.wait().await.unwrap();
        bulk.wait().await.unwrap();
        let numbers = rig.log.wal_objects().list_from(1).await.unwrap();
        let (damaged, _) = *numbers.iter().min_by_key(|(_, size)| *size).unwrap();
        assert!(
            1 < damaged && damaged < numbers.last().unwrap().0,
            "amid the fragments"
        );
        flip(&world, &rig.log.wal_objects().key(damaged)).await;
        rig.roller.round().await.unwrap();
        assert_eq!(rig.log.left_out(), 1);
        rig.log.close();
        let recovered = world.recover(&[WRITER]).await;
        let next = WriterId(WRITER.0 + 1);
        let rig = world.open(next, limits, recovered).await;
        assert!(read(&rig.log, 0).await.unwrap().size > 190_000);
    });
}

#[test]
fn a_missing_wal_object_stops_the_roll_of_its_partition_alone() {
    simulate(8, |world| async move {
        let (mut rig, key) = damaged(&world).await;
        world.memory.delete(&key).await.unwrap();
        roll_and_tidy(&world, &mut rig).await;
        // Its topic is deleted: nothing is kept for it.
        rig.log.drop_partition(partition(1));
        rig.oracle.remove(&partition(1));
        rig.roller.round().await.unwrap();
        world.runtime.clock.sleep(Duration::from_secs(1)).await;
        rig.roller.tidy().await;
        rig.check_all().await;
        rig.check_stored(&world.store).await;
    });
}

#[test]
fn every_object_can_be_shown() {
    simulate(5, |world| async move {
        let mut rig = rolled(&world).await;
        for _ in 0..12 {
            rig.append(0, &[START_MS], 100).await;
            rig.append(1, &[START_MS], 100).await;
            rig.roller.round().await.unwrap();
        }
        let landed = Landed {
            decided_below: 3,
            above: vec![3, 5],
        };
        close(&world.store, WRITER, [7; 16], &landed, None)
            .await
            .unwrap();
        let mut kinds = String::new();
        for meta in world.store.list_all("").await.unwrap() {
            let bytes = world.store.get(&meta.key).await.unwrap();
            let needed = inspect::bytes_needed(&bytes).unwrap();
            let text = inspect::render(&bytes.slice(..needed as usize)).unwrap();
            assert!(text.contains("writer: 5"), "{text}");
            kinds.push_str(text.lines().next().unwrap());
        }
        for kind in [
            "Wal",
            "Checkpoint",
            "ClosingCheckpoint",
            "SetObject",
            "Segment",
            "Manifest",
        ] {
            assert!(kinds.contains(kind), "{kind} in {kinds}");
        }
    });
}
