//! Random lives of partitions against the oracle.

use std::time::Duration;

use tidemill_log::{PartitionConfig, recover::Recovered};
use tidemill_wire::ids::Offset;

use crate::harness::{Rig, WRITER, World, partition, simulate, small_limits};

const PARTITIONS: i32 = 4;

async fn one_step(rig: &mut Rig, world: &World, led: &mut i32) {
    let index = rig.entropy.below(PARTITIONS as u64) as i32 + *led - PARTITIONS;
    match rig.entropy.below(40) {
        0..4 => drop(rig.roller.round().await.unwrap()),
        4 => rig.merge_all().await,
        5 => {
            let end = rig
                .log
                .partition(partition(index))
                .unwrap()
                .high_watermark();
            let offset = rig.entropy.below(end.0 as u64 + 1) as i64;
            rig.delete_records(index, Offset(offset)).await;
        }
        6 => {
            world.runtime.clock.sleep(Duration::from_secs(1)).await;
            rig.roller.tidy().await;
        }
        7 if rig.entropy.below(8) == 0 => {
            rig.log.drop_partition(partition(*led - PARTITIONS));
            rig.oracle.remove(&partition(*led - PARTITIONS));
            rig.lead(*led);
            *led += 1;
        }
        8 => {
            let config = PartitionConfig {
                retention_ms: -1,
                retention_bytes: 400_000,
            };
            rig.log
                .partition(partition(index))
                .unwrap()
                .set_config(config);
            rig.roller.retain().await.unwrap();
            rig.follow_log_starts();
        }
        9 => rig.check_all().await,
        10 if rig.entropy.below(8) == 0 => rig.check_stored(&world.store).await,
        _ => rig.append_random(index).await,
    }
}

async fn live(world: World, steps: u32) {
    let mut rig = world
        .open(WRITER, small_limits(), Recovered::default())
        .await;
    (0..PARTITIONS).for_each(|index| rig.lead(index));
    let mut led = PARTITIONS;
    for _ in 0..steps {
        one_step(&mut rig, &world, &mut led).await;
    }
    rig.check_all().await;
    rig.check_offsets_and_times().await;
    rig.roller.round().await.unwrap();
    rig.merge_all().await;
    rig.check_chain(&world.store).await;
    rig.check_stored(&world.store).await;
    rig.check_all().await;
    rig.check_offsets_and_times().await;
}

#[test]
fn random_lives_read_back_what_was_written() {
    for seed in 0..20 {
        simulate(seed, |world| live(world, 300));
    }
}

#[test]
fn everything_goes_when_the_topics_are_deleted() {
    for seed in 100..105 {
        simulate(seed, |world| async move {
            let mut rig = world
                .open(WRITER, small_limits(), Recovered::default())
                .await;
            (0..PARTITIONS).for_each(|index| rig.lead(index));
            let mut led = PARTITIONS;
            for _ in 0..200 {
                one_step(&mut rig, &world, &mut led).await;
            }
            for id in rig.oracle.keys() {
                rig.log.drop_partition(*id);
            }
            rig.roller.round().await.unwrap();
            world.runtime.clock.sleep(Duration::from_secs(1)).await;
            rig.roller.tidy().await;
            let prefix = format!("{}/", tidemill_log::keys::data_prefix(WRITER));
            let left = world.store.list_all(&prefix).await.unwrap();
            assert!(left.is_empty(), "{left:?}");
            let wal = rig.log.wal_objects().list_from(0).await.unwrap();
            assert!(wal.len() <= 2, "{wal:?}");
            let chain = tidemill_log::keys::ckpt_prefix(WRITER);
            let chain = world.store.list_all(&format!("{chain}/")).await.unwrap();
            assert!(chain.len() <= 64, "trimmed below the last full one");
            rig.check_stored(&world.store).await;
        });
    }
}
