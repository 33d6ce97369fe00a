//! Retention by time and by size, and DeleteRecords beside it.

use std::time::Duration;

use tidemill_log::{
    Entry, Latency, PartitionConfig,
    read::{Isolation, ReadError, ReadRequest},
    recover::Recovered,
};
use tidemill_wire::ids::Offset;

use crate::harness::{Rig, START_MS, WRITER, World, partition, simulate, small_limits};

/// As a producer says that a record has no time.
const NO_TIMESTAMP: i64 = -1;
const SECOND: i64 = 1_000;

fn by_time(retention_ms: i64) -> PartitionConfig {
    PartitionConfig {
        retention_ms,
        retention_bytes: -1,
    }
}

fn by_size(retention_bytes: i64) -> PartitionConfig {
    PartitionConfig {
        retention_ms: -1,
        retention_bytes,
    }
}

async fn rig(world: &World, config: PartitionConfig) -> Rig {
    let mut rig = world
        .open(WRITER, small_limits(), Recovered::default())
        .await;
    rig.lead(0);
    rig.log.partition(partition(0)).unwrap().set_config(config);
    rig
}

/// An extent of its own with one batch of one record.
async fn extent(rig: &mut Rig, time: i64, len: usize) {
    rig.append(0, &[time], len).await;
    rig.roller.round().await.unwrap();
}

fn log_start(rig: &Rig) -> i64 {
    rig.log.partition(partition(0)).unwrap().log_start().0
}

async fn sleep(world: &World, ms: i64) {
    let time = Duration::from_millis(u64::try_from(ms).unwrap());
    world.runtime.clock.sleep(time).await;
}

#[test]
fn what_is_older_than_retention_ms_goes_and_its_objects_with_it() {
    simulate(1, |world| async move {
        let mut rig = rig(&world, by_time(30 * SECOND)).await;
        for time in [0, 10, 20, 60] {
            extent(&mut rig, START_MS + time * SECOND, 40_000).await;
        }
        // Nothing is that old yet, whatever the records say of the future.
        assert_eq!(rig.roller.retain().await.unwrap(), 0);
        sleep(&world, 31 * SECOND).await;
        assert_eq!(rig.roller.retain().await.unwrap(), 1);
        assert_eq!(log_start(&rig), 1);
        sleep(&world, 30 * SECOND).await;
        assert_eq!(rig.roller.retain().await.unwrap(), 1);
        assert_eq!(log_start(&rig), 3);
        let request = ReadRequest {
            offset: Offset(2),
            max_bytes: 1 << 20,
            isolation: Isolation::Uncommitted,
            at_least_one: true,
        };
        let partition = rig.log.partition(partition(0)).unwrap();
        let read = partition.read(request).await;
        assert!(matches!(read, Err(ReadError::OutOfRange)), "{read:?}");
        rig.follow_log_starts();
        rig.check_all().await;
        rig.roller.round().await.unwrap();
        sleep(&world, SECOND).await;
        rig.roller.tidy().await;
        let prefix = format!("{}/", tidemill_log::keys::data_prefix(WRITER));
        let left = world.store.list_all(&prefix).await.unwrap();
        assert_eq!(
            left.len(),
            1,
            "the objects of what expired are gone: {left:?}"
        );
        rig.check_stored(&world.store).await;
    });
}

/// What was worked out under the old setting does not delay the new one.
#[test]
fn a_shorter_retention_counts_at_once() {
    simulate(4, |world| async move {
        let mut rig = rig(&world, by_time(7 * 24 * 3_600 * SECOND)).await;
        for time in [0, 10, 60] {
            extent(&mut rig, START_MS + time * SECOND, 50).await;
        }
        sleep(&world, 60 * SECOND).await;
        rig.roller.retain().await.unwrap();
        assert_eq!(log_start(&rig), 0);
        let partition = rig.log.partition(partition(0)).unwrap();
        partition.set_config(by_time(30 * SECOND));
        rig.roller.retain().await.unwrap();
        assert_eq!(log_start(&rig), 2);
        partition.set_config(by_time(7 * 24 * 3_600 * SECOND));
        sleep(&world, 60 * SECOND).await;
        rig.roller.retain().await.unwrap();
        assert_eq!(log_start(&rig), 2, "and a longer one too");
    });
}

#[test]
fn without_a_limit_nothing_goes() {
    simulate(2, |world| async move {
        let mut rig = rig(&world, by_time(-1)).await;
        extent(&mut rig, START_MS, 100).await;
        extent(&mut rig, NO_TIMESTAMP, 100).await;
        sleep(&world, 1_000_000 * SECOND).await;
        assert_eq!(rig.roller.retain().await.unwrap(), 0);
        assert_eq!(log_start(&rig), 0);
    });
}

/// Kafka takes the last change of a segment of which no record has a time.
#[test]
fn records_without_a_time_expire_by_when_they_were_written() {
    simulate(3, |world| async move {
        let mut rig = rig(&world, by_time(30 * SECOND)).await;
        sleep(&world, 5 * SECOND).await;
        extent(&mut rig, NO_TIMESTAMP, 100).await;
        extent(&mut rig, START_MS + 6 * SECOND, 100).await;
        assert_eq!(rig.roller.retain().await.unwrap(), 0, "not at once");
        sleep(&world, 29 * SECOND).await;
        assert_eq!(rig.roller.retain().await.unwrap(), 0);
        sleep(&world, 3 * SECOND).await;
        assert_eq!(rig.roller.retain().await.unwrap(), 1);
        assert_eq!(
            log_start(&rig),
            2,
            "and what follows does not wait for ever"
        );
    });
}

#[test]
fn of_retention_bytes_at_least_as_much_is_kept() {
    simulate(4, |world| async move {
        let mut rig = rig(&world, by_size(100_000)).await;
        for _ in 0..5 {
            extent(&mut rig, START_MS, 40_000).await;
        }
        assert_eq!(rig.roller.retain().await.unwrap(), 1);
        let partition = rig.log.partition(partition(0)).unwrap();
        assert_eq!(log_start(&rig), 2, "three extents are 120 kB, two too few");
        rig.roller.round().await.unwrap();
        assert!(
            partition.size_bytes() >= 100_000,
            "{}",
            partition.size_bytes()
        );
        partition.set_config(by_size(0));
        assert_eq!(rig.roller.retain().await.unwrap(), 1);
        assert_eq!(log_start(&rig), 5, "all that is rolled");
        rig.append(0, &[START_MS], 100).await;
        assert_eq!(
            rig.roller.retain().await.unwrap(),
            0,
            "what is not rolled yet stays"
        );
        rig.follow_log_starts();
        rig.check_all().await;
    });
}

/// Both move the log start, neither moves it back nor beyond the high watermark.
#[test]
fn deleted_records_and_retention_agree() {
    for seed in 10..30 {
        simulate(seed, |world| async move {
            let mut rig = rig(&world, by_size(150_000)).await;
            let mut before = 0;
            for _ in 0..120 {
                match rig.entropy.below(8) {
                    0 => drop(rig.roller.round().await.unwrap()),
                    1 => rig.merge_all().await,
                    2 => {
                        let end = rig.log.partition(partition(0)).unwrap().high_watermark();
                        let offset = rig.entropy.below(end.0 as u64 + 1) as i64;
                        rig.delete_records(0, Offset(offset)).await;
                    }
                    3 => {
                        let config = match rig.entropy.below(3) {
                            0 => by_time(i64::try_from(rig.entropy.below(60)).unwrap() * SECOND),
                            1 => by_size(0),
                            _ => by_size(150_000),
                        };
                        rig.log.partition(partition(0)).unwrap().set_config(config);
                        rig.roller.retain().await.unwrap();
                        rig.follow_log_starts();
                    }
                    4 => sleep(&world, 10 * SECOND).await,
                    _ => {
                        let now_ms = world.runtime.clock.now_ms();
                        let time = [now_ms, NO_TIMESTAMP][rig.entropy.below(2) as usize];
                        rig.append(0, &[time], 20_000).await;
                    }
                }
                let partition = rig.log.partition(partition(0)).unwrap();
                let (start, end) = (partition.log_start(), partition.high_watermark());
                assert!(start <= end, "the log start {start} is beyond {end}");
                assert!(start.0 >= before, "the log start went back to {start}");
                before = start.0;
            }
            rig.check_all().await;
            rig.roller.round().await.unwrap();
            rig.check_stored(&world.store).await;
        });
    }
}

#[test]
fn records_beyond_the_high_watermark_cannot_be_deleted() {
    simulate(5, |world| async move {
        let mut rig = rig(&world, by_time(-1)).await;
        extent(&mut rig, START_MS, 100).await;
        let entry = Entry::log_start(partition(0), Offset(2), Latency::Low);
        let refused = rig.log.append(entry);
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(log_start(&rig), 0);
    });
}
