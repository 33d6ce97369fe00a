//! Rounds, merges, trims and deletions against a store on a bad day: late and doubled writes, lost
//! answers, throttling. Nothing is lost, and the successor finds nothing it cannot clean up.

use std::time::Duration;

use tidemill_log::{
    ckpt::{Landed, close},
    recover::Recovered,
    roll::RollError,
};
use tidemill_store::testing::FaultPlan;
use tidemill_wire::ids::{Offset, WriterId};

use crate::{
    crash::{PARTITIONS, end},
    harness::{Rig, World, partition, simulate, small_limits},
};

/// What fails is tried again, as the roll's task does.
async fn stubborn(rig: &mut Rig) {
    for _ in 0..50 {
        match rig.roller.round().await {
            Ok(_) => return,
            Err(RollError::Fenced) => panic!("nobody has sealed this writer"),
            Err(_) => {}
        }
    }
    panic!("a round never succeeds");
}

async fn one_step(rig: &mut Rig, world: &World) {
    let index = rig.entropy.below(PARTITIONS as u64) as i32;
    match rig.entropy.below(20) {
        0..2 => stubborn(rig).await,
        2 => drop(rig.roller.merge_step().await),
        3 => {
            world.runtime.clock.sleep(Duration::from_secs(2)).await;
            rig.roller.tidy().await;
        }
        4 => {
            let end = rig
                .log
                .partition(partition(index))
                .unwrap()
                .high_watermark();
            let offset = rig.entropy.below(end.0 as u64 / 2 + 1) as i64;
            rig.delete_records(index, Offset(offset)).await;
        }
        _ => rig.append_random(index).await,
    }
}

#[test]
fn a_bad_day_loses_nothing_and_leaves_nothing() {
    for seed in 0..12 {
        simulate(seed, |world| async move {
            let writer = WriterId(5);
            let mut rig = world
                .open(writer, small_limits(), Recovered::default())
                .await;
            (0..PARTITIONS).for_each(|index| rig.lead(index));
            world.faulty.set_plan(FaultPlan::bad_day());
            for _ in 0..120 {
                one_step(&mut rig, &world).await;
            }
            world.faulty.heal();
            rig.check_all().await;
            stubborn(&mut rig).await;
            rig.check_chain(&world.store).await;
            rig.check_all().await;
            // Writes that were hours late have arrived.
            world
                .runtime
                .clock
                .sleep(Duration::from_secs(3 * 3_600))
                .await;
            rig.check_all().await;
            rig.check_offsets_and_times().await;
            let oracle = std::mem::take(&mut rig.oracle);
            rig.log.close();
            end(&world, WriterId(6), &[writer], oracle).await;
        });
    }
}

#[test]
fn a_log_that_was_closed_stops_its_writer() {
    simulate(77, |world| async move {
        let writer = WriterId(5);
        let mut rig = world
            .open(writer, small_limits(), Recovered::default())
            .await;
        rig.lead(0);
        rig.append_random(0).await;
        rig.roller.round().await.unwrap();
        let listed = world.store.list_all("").await.unwrap();
        let landed = Landed {
            decided_below: 0,
            above: vec![0, 1, 2],
        };
        close(&world.store, writer, [7; 16], &landed, None)
            .await
            .unwrap();
        rig.append_random(0).await;
        assert_eq!(rig.roller.round().await, Err(RollError::Fenced));
        assert!(rig.log.is_fenced());
        world.runtime.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(rig.roller.round().await, Err(RollError::Fenced));
        let left = world.store.list_all("").await.unwrap();
        let kept = listed
            .iter()
            .all(|meta| left.iter().any(|other| other.key == meta.key));
        assert!(kept, "a fenced writer deletes nothing");
    });
}
