//! Replay decides by what the closing checkpoint says, and names what is wrong.

use std::collections::BTreeMap;

use tidemill_log::{
    Appended, Entry, Latency, LogLimits,
    extents::ExtentList,
    recover::{Recovered, RecoveredPartition, ReplayError, ReplayStats, SealedWal, replay},
    types::{DataObjectId, Extent},
};
use tidemill_store::{Backend, Payload};
use tidemill_wire::ids::{Offset, PartitionId, WriterId};

use crate::{
    harness::{CLUSTER, World, append, batch, lead, partition, sequenced, simulate},
    sealer::seal,
};

type Partitions = BTreeMap<PartitionId, RecoveredPartition>;

fn empty() -> Partitions {
    [(partition(0), RecoveredPartition::empty(partition(0)))].into()
}

async fn onto(
    world: &World,
    sealed: &SealedWal,
    mut base: Partitions,
) -> Result<(RecoveredPartition, ReplayStats), ReplayError> {
    let stats = replay(&world.store, CLUSTER, sealed, &mut base).await?;
    Ok((base.remove(&partition(0)).unwrap(), stats))
}

/// Six objects with one batch each, sealed.
async fn six(world: &World) -> (SealedWal, RecoveredPartition) {
    let log = world.open(1).await;
    let partition_0 = lead(&log, 0);
    for sequence in 0..6 {
        append(&log, 0, sequenced(7, 0, sequence, b"v", 1))
            .wait()
            .await
            .unwrap();
    }
    let mut middle = RecoveredPartition::empty(partition(0));
    middle.head = partition_0.head();
    drop(log);
    (seal(world, 1, 0).await, middle)
}

#[test]
fn an_object_that_is_gone_or_damaged_is_named() {
    simulate(1, |world| async move {
        let (sealed, _) = six(&world).await;
        let key = world.wal(1).key(3);
        let whole = world.memory.get(&key).await.unwrap();
        world.memory.delete(&key).await.unwrap();
        let error = onto(&world, &sealed, empty()).await.unwrap_err();
        assert!(
            matches!(&error, ReplayError::Missing { key: named } if *named == key),
            "{error}"
        );
        let mut damaged = whole.to_vec();
        damaged[90] ^= 1;
        let damaged = Payload::from(bytes::Bytes::from(damaged));
        world.memory.put_if_absent(&key, damaged).await.unwrap();
        let error = onto(&world, &sealed, empty()).await.unwrap_err();
        let is_named = matches!(&error, ReplayError::Object { key: named, .. } if *named == key);
        assert!(is_named, "{error}");
    });
}

#[test]
fn a_damaged_answer_is_read_again() {
    simulate(2, |world| async move {
        let (sealed, _) = six(&world).await;
        use tidemill_store::testing::{Fault, FaultPlan, Operation, Rule};
        let rule = Rule::new(Operation::Get, world.wal(1).key(3), Fault::BitFlip).times(1);
        world.faulty.set_plan(FaultPlan::none().rule(rule));
        let (recovered, _) = onto(&world, &sealed, empty()).await.unwrap();
        assert_eq!(recovered.head.next_offset, Offset(6));
    });
}

#[test]
fn the_bitmap_decides_and_not_what_is_found() {
    simulate(3, |world| async move {
        let (mut sealed, _) = six(&world).await;
        let closing = &sealed.closing;
        let landed = (0..6).filter(|number| *number != 4);
        sealed.closing =
            tidemill_log::format::checkpoint::ClosingCheckpoint::new(closing.follows, 0, landed);
        // Number 4 is there, and number 5 was encoded when it had landed, so only 5 states nothing.
        let error = onto(&world, &sealed, empty()).await.unwrap_err();
        let is_i2 = matches!(&error, ReplayError::Broken { violation, .. }
            if violation.invariant == "I2");
        assert!(is_i2, "a bitmap that cannot be is caught: {error}");
    });
}

#[test]
fn a_newer_head_keeps_its_state_and_still_finds_its_data() {
    simulate(4, |world| async move {
        let (sealed, newer) = six(&world).await;
        let head = newer.head.clone();
        let mut base = newer.clone();
        base.extents = ExtentList {
            manifests: Vec::new(),
            recent: vec![Extent {
                base_offset: Offset(0),
                end_offset: Offset(2),
                object: DataObjectId {
                    writer: WriterId(1),
                    seq: 0,
                },
                range: 0..100,
                footer: 100..120,
                max_timestamp: 0,
                max_timestamp_offset: Offset(0),
                footer_crc: 0,
                object_len: 120,
            }],
        };
        let sealed = SealedWal {
            replay_from: 3,
            ..sealed
        };
        let (recovered, stats) = onto(&world, &sealed, [(partition(0), base)].into())
            .await
            .unwrap();
        assert_eq!(recovered.head, head, "effects below the head are skipped");
        assert_eq!(stats.objects, 4, "numbers below `replay_from` are not read");
        let bases: Vec<_> = recovered
            .tail
            .iter()
            .map(|batch| batch.base_offset.0)
            .collect();
        assert_eq!(bases, [2, 3, 4, 5]);
    });
}

#[test]
fn producers_and_log_start_survive() {
    simulate(5, |world| async move {
        let log = world.open(1).await;
        lead(&log, 0);
        for sequence in 0..6 {
            append(&log, 0, sequenced(7, 0, sequence, b"v", 1))
                .wait()
                .await
                .unwrap();
        }
        let moved = Entry::log_start(partition(0), Offset(6), Latency::Low);
        log.append(moved).unwrap()[0].wait().await.unwrap();
        let head = log.partition(partition(0)).unwrap().head();
        drop(log);
        let sealed = seal(&world, 1, 0).await;
        let (recovered, _) = onto(&world, &sealed, empty()).await.unwrap();
        assert_eq!(recovered.head.producers, head.producers, "K27");
        assert_eq!(recovered.head.log_start, Offset(6));
        assert!(recovered.tail.is_empty());
        let from = Recovered {
            partitions: vec![recovered],
            ..Recovered::default()
        };
        let log = world.open_with(2, LogLimits::local(), from).await;
        let again = append(&log, 0, sequenced(7, 0, 3, b"v", 1));
        let Appended::DuplicateCommitted(committed) = again else {
            panic!("{again:?}")
        };
        assert_eq!(
            (committed.base_offset, committed.log_start),
            (Offset(3), Offset(6))
        );
        let next = append(&log, 0, sequenced(7, 0, 6, b"v", 1))
            .wait()
            .await
            .unwrap();
        assert_eq!(next.base_offset, Offset(6));
    });
}

#[test]
fn partitions_nobody_asks_for_are_passed_over() {
    simulate(6, |world| async move {
        let log = world.open(1).await;
        lead(&log, 0);
        lead(&log, 1);
        append(&log, 1, batch(b"other", 1)).wait().await.unwrap();
        append(&log, 0, batch(b"mine", 1)).wait().await.unwrap();
        drop(log);
        let sealed = seal(&world, 1, 0).await;
        let (recovered, stats) = onto(&world, &sealed, empty()).await.unwrap();
        assert_eq!(recovered.tail.len(), 1);
        assert_eq!(stats.applied, 2);
    });
}
