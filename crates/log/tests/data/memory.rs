//! What is kept in memory stays within its limits (L2), and what is not is read from the store.

use tidemill_log::recover::Recovered;

use crate::harness::{START_MS, WRITER, partition, simulate, small_limits};

#[test]
fn tails_and_caches_keep_their_limits() {
    for seed in 0..2 {
        simulate(seed, |world| async move {
            let mut limits = small_limits();
            limits.tail_bytes_max = 256 << 10;
            limits.read.cache_bytes = 300 << 10;
            let (tail_max, cache_max) = (limits.tail_bytes_max, limits.read.cache_bytes);
            let mut rig = world.open(WRITER, limits, Recovered::default()).await;
            (0..3).for_each(|index| rig.lead(index));
            for step in 0..200 {
                let index = rig.entropy.below(3) as i32;
                rig.append_random(index).await;
                let bytes = rig.log.tail_bytes();
                assert!(bytes <= tail_max, "tails hold {bytes} bytes");
                if step % 40 == 39 {
                    // From the WAL what is evicted before it is rolled, then from extents.
                    rig.check_all().await;
                    rig.roller.round().await.unwrap();
                    rig.merge_all().await;
                    rig.check_all().await;
                    let bytes = rig.log.reader().cached_bytes();
                    assert!(bytes <= cache_max, "caches hold {bytes} bytes");
                }
            }
            rig.check_offsets_and_times().await;
        });
    }
}

/// A batch takes more than its bytes: a million of one small record must not fill the memory before
/// a round is due.
#[test]
fn small_batches_count_for_what_they_take() {
    simulate(9, |world| async move {
        let mut limits = small_limits();
        limits.tail_bytes_max = 64 << 10;
        let mut rig = world.open(WRITER, limits, Recovered::default()).await;
        rig.lead(0);
        for _ in 0..500 {
            rig.append(0, &[START_MS], 1).await;
        }
        let unrolled = rig.log.unrolled_bytes();
        assert!(unrolled >= 500 * 256, "only {unrolled} bytes are counted");
        assert!(rig.log.tail_bytes() <= 64 << 10);
        rig.check_all().await;
        rig.roller.round().await.unwrap();
        assert_eq!(rig.log.unrolled_bytes(), 0);
        rig.check_all().await;
    });
}

/// What deleted topics and deleted records held is free for others at once.
#[test]
fn what_was_deleted_counts_no_more() {
    simulate(10, |world| async move {
        let mut limits = small_limits();
        limits.tail_bytes_max = 200 << 10;
        let mut rig = world.open(WRITER, limits, Recovered::default()).await;
        rig.lead(0);
        rig.append(0, &[START_MS], 30_000).await;
        let kept = rig.log.tail_bytes();
        for index in 1..20 {
            rig.lead(index);
            for _ in 0..5 {
                rig.append(index, &[START_MS], 20_000).await;
            }
            rig.log.drop_partition(partition(index)).unwrap();
            rig.oracle.remove(&partition(index));
            assert_eq!(rig.log.tail_bytes(), kept, "after {index}");
        }
        for _ in 0..20 {
            rig.append(0, &[START_MS], 8_000).await;
            let end = rig.log.partition(partition(0)).unwrap().high_watermark();
            rig.delete_records(0, end).await;
            assert_eq!(rig.log.tail_bytes(), 0);
        }
        assert_eq!(rig.log.unrolled_bytes(), 0);
        // Far more batches than there is room for, all of them gone again.
        for index in 20..23 {
            rig.lead(index);
            for _ in 0..300 {
                rig.append(index, &[START_MS], 2_000).await;
                assert!(rig.log.tail_bytes() <= 200 << 10);
            }
            rig.check_all().await;
            rig.log.drop_partition(partition(index)).unwrap();
            rig.oracle.remove(&partition(index));
            assert_eq!(rig.log.tail_bytes(), 0);
        }
    });
}
