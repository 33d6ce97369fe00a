//! What the log says while free space goes up and down around its floor.
//!
//! One test in a program of its own: what a thread without a subscriber meets first is taken for
//! unwanted by all threads.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

#[allow(dead_code, reason = "shared with the tests of data")]
#[path = "data/disk.rs"]
mod disk;
#[allow(dead_code, reason = "shared with the tests of data")]
#[path = "data/harness.rs"]
mod harness;

use std::{sync::atomic::Ordering, time::Duration};

use disk::{DISK, Disk, FLOOR, MIB, limits, with_disk};
use harness::{Rig, START_MS, WRITER, World, simulate};
use tidemill_log::recover::Recovered;
use tidemill_store::testing::Lines;

/// Others take all but `free` bytes, and it is looked at.
async fn leaves(world: &World, rig: &Rig, disk: &Disk, free: u64) {
    disk.foreign.store(0, Ordering::Relaxed);
    let foreign = disk.free().await - free;
    disk.foreign.store(foreign, Ordering::Relaxed);
    let waits = rig.log.wait_for_space(4 * DISK);
    let waited = world.runtime.clock.timeout(Duration::from_secs(3), waits);
    assert!(waited.await.is_err(), "there is never so much");
}

#[test]
fn a_disk_around_its_floor_is_one_line_and_one_when_it_is_over() {
    let lines = Lines::of("tidemill_log");
    let _guard = tracing::subscriber::set_default(lines.clone());
    simulate(1, |mut world| async move {
        let disk = with_disk(&mut world, DISK);
        let mut rig = world.open(WRITER, limits(), Recovered::default()).await;
        rig.lead(0);
        rig.append(0, &[START_MS], 100).await;
        leaves(&world, &rig, &disk, 2 * FLOOR).await;
        assert_eq!(lines.take(), [""; 0], "all is well");
        // Ten minutes of rounds and trims, the floor crossed by little or by much.
        for n in 0..100 {
            leaves(&world, &rig, &disk, FLOOR - 1_000).await;
            let above = if n % 2 == 0 { 50_000 } else { 8 * MIB };
            leaves(&world, &rig, &disk, FLOOR + above).await;
        }
        let said = lines.take();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("free space crossed its floor"), "{said:?}");
        // Just above is not over, however long.
        for _ in 0..100 {
            leaves(&world, &rig, &disk, FLOOR + 50_000).await;
        }
        assert_eq!(lines.take(), [""; 0]);
        for _ in 0..100 {
            leaves(&world, &rig, &disk, FLOOR + 8 * MIB).await;
        }
        let said = lines.take();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("free space is above its floor"),
            "{said:?}"
        );
        leaves(&world, &rig, &disk, FLOOR - 1_000).await;
        assert_eq!(lines.take().len(), 1, "the next time");
    });
}
