//! Many small rounds become few large extents, at a bounded price.

use std::time::Duration;

use tidemill_log::{LogLimits, recover::Recovered, types::Extent};

use crate::harness::{Rig, START_MS, WRITER, partition, simulate};

/// The smallest size class of extents ends here: what is smaller is merged with its neighbours.
const CLASS_BYTES: u64 = 64 << 10;

fn extents(rig: &Rig) -> Vec<Extent> {
    let list = rig.log.partition(partition(0)).unwrap().extents();
    assert!(list.manifests.is_empty(), "all lie beside the manifests");
    list.recent.clone()
}

#[test]
fn many_small_rounds_become_few_large_extents_and_no_byte_is_rewritten_often() {
    const ROUNDS: u64 = 128;
    const LEN: usize = 10_000;
    // From below 64 KiB to below 512 KiB, and on to below 4 MiB; and once more on the way, where
    // an extent grows by much without leaving its class.
    const REWRITES: u64 = 3;
    simulate(1, |world| async move {
        let limits = LogLimits::local();
        let fan_in = limits.roll.merge_fan_in;
        let mut rig = world.open(WRITER, limits, Recovered::default()).await;
        rig.lead(0);
        let mut rewritten = 0;
        let mut most = 0;
        for _ in 0..ROUNDS {
            rig.append(0, &[START_MS], LEN).await;
            assert!(rig.roller.round().await.unwrap().published);
            loop {
                match rig.roller.merge_step().await.unwrap() {
                    0 => break,
                    bytes => rewritten += bytes,
                }
            }
            most = most.max(extents(&rig).len());
        }
        assert!(most <= 3 * fan_in, "{most} extents at a time");
        let extents = extents(&rig);
        let small = extents.iter().filter(|e| e.size_bytes() < CLASS_BYTES);
        let small = small.count();
        assert!(small < fan_in, "{small} of {} are small", extents.len());
        assert!(extents.len() < 2 * fan_in, "{} extents", extents.len());
        let stored: u64 = extents.iter().map(Extent::size_bytes).sum();
        assert!(stored >= ROUNDS * LEN as u64);
        assert!(rewritten >= stored / 2, "{rewritten} of {stored} rewritten");
        assert!(
            rewritten <= REWRITES * stored,
            "{rewritten} of {stored} rewritten"
        );
        rig.check_all().await;
        // The small objects are gone.
        world.runtime.clock.sleep(Duration::from_secs(60)).await;
        rig.roller.round().await.unwrap();
        rig.roller.tidy().await;
        let data = world.store.list_all("").await.unwrap();
        let data = data.iter().filter(|meta| meta.key.contains("/data/"));
        assert_eq!(data.count(), extents.len());
        rig.check_stored(&world.store).await;
    });
}
