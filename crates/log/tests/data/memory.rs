//! What is kept in memory stays within its limits (L2), and what is not is read from the store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tidemill_log::{
    Partition,
    read::{Isolation, ReadRequest},
    recover::Recovered,
};
use tidemill_runtime::Entropy;
use tidemill_store::testing::FaultPlan;
use tidemill_wire::batch::BatchIter;

use crate::harness::{Kept, START_MS, WRITER, partition, simulate, small_limits};

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

/// Reads batches anywhere until told to stop, and compares them; how many it read.
async fn read_at_random(
    partition: Arc<Partition>,
    kept: Arc<Vec<Kept>>,
    entropy: Entropy,
    stop: Arc<AtomicBool>,
) -> u64 {
    let mut reads = 0;
    while !stop.load(Relaxed) {
        let first = entropy.below(kept.len() as u64) as usize;
        let request = ReadRequest {
            offset: kept[first].last,
            max_bytes: 1 << entropy.below(20),
            isolation: Isolation::Uncommitted,
            at_least_one: true,
        };
        let read = partition.read(request).await.unwrap();
        let wanted = kept[first..].iter().map(|kept| &kept.bytes);
        let found = BatchIter::new(read.slices.concat().into());
        for (found, wanted) in found.zip(wanted) {
            assert_eq!(found.unwrap().bytes, *wanted, "from {}", request.offset);
        }
        assert!(read.size > 0, "nothing at {}", request.offset);
        reads += 1;
    }
    reads
}

/// F12: caches with room for a block or two, many readers, and merges that replace what they read.
#[test]
fn f12_what_is_evicted_merged_and_read_at_once_stays_the_same() {
    for seed in 30..34 {
        simulate(seed, |world| async move {
            let mut limits = small_limits();
            limits.tail_bytes_max = 64 << 10;
            limits.read.cache_bytes = 1_500 << 10;
            // Merges make extents of several blocks, and what they replace is gone at once.
            limits.roll.segment_bytes_max = 4 << 20;
            limits.roll.grace = Duration::ZERO;
            let (tail_max, cache_max) = (limits.tail_bytes_max, limits.read.cache_bytes);
            let mut rig = world.open(WRITER, limits, Recovered::default()).await;
            (0..2).for_each(|index| rig.lead(index));
            for step in 1..=120 {
                rig.append_random(0).await;
                if step % 10 == 0 {
                    rig.roller.round().await.unwrap();
                }
            }
            // From here on a read takes long enough to be overtaken by whatever else happens.
            let (least, most) = (Duration::from_millis(1), Duration::from_millis(20));
            world
                .faulty
                .set_plan(FaultPlan::none().delayed(least, most));
            let kept = Arc::new(rig.oracle[&partition(0)].batches.clone());
            let stop = Arc::new(AtomicBool::new(false));
            let reader = |_| {
                let partition = rig.log.partition(partition(0)).unwrap();
                let entropy = rig.entropy.fork();
                let read = read_at_random(partition, kept.clone(), entropy, stop.clone());
                world.runtime.tasks.spawn("reader", read)
            };
            let readers: Vec<_> = (0..8).map(reader).collect();
            let (mut merged, mut fullest) = (0, 0);
            for step in 1..=60 {
                rig.append_random(1).await;
                if step % 6 == 0 {
                    rig.roller.round().await.unwrap();
                    while let count @ 1.. = rig.roller.merge_step().await.unwrap() {
                        merged += count;
                        rig.roller.round().await.unwrap();
                        rig.roller.tidy().await;
                    }
                }
                let (tail, cache) = (rig.log.tail_bytes(), rig.log.reader().cached_bytes());
                assert!(tail <= tail_max, "tails hold {tail} bytes");
                assert!(cache <= cache_max, "caches hold {cache} bytes");
                fullest = fullest.max(cache);
            }
            stop.store(true, Relaxed);
            for reader in readers {
                assert!(reader.join().await.unwrap() > 10, "it read all the while");
            }
            assert!(merged > 0 && fullest > cache_max / 2);
            rig.check_all().await;
        });
    }
}
