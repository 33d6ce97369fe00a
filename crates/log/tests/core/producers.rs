//! Idempotent producers (K25-K27, R5), epochs (K20).

use std::time::Duration;

use tidemill_log::{AppendError, Appended, Entry, Latency, Log, LogLimits, recover::Recovered};
use tidemill_wire::{
    batch::ValidBatch,
    ids::{LeaderEpoch, Offset, ProducerEpoch},
};

use crate::harness::{append, batch, lead, partition, sequenced, simulate};

fn try_append(log: &Log, batch: ValidBatch) -> Result<Appended, AppendError> {
    log.append(Entry::records(partition(0), batch, Latency::Low))
        .map(|mut all| all.remove(0))
}

fn one(sequence: i32) -> ValidBatch {
    sequenced(7, 0, sequence, b"v", 1)
}

#[test]
fn a_duplicate_of_a_pending_batch_waits_for_it() {
    simulate(1, |world| async move {
        let log = world.open(1).await;
        let partition_0 = lead(&log, 0);
        world.faulty.pause();
        let first = try_append(&log, one(0)).unwrap();
        world.sleep_ms(1).await;
        let second = try_append(&log, one(0)).unwrap();
        let Appended::DuplicatePending(ticket) = &second else {
            panic!("{second:?}")
        };
        assert!(ticket.outcome().is_none());
        world.faulty.heal();
        assert_eq!(first.wait().await, second.wait().await);
        assert_eq!(partition_0.high_watermark(), Offset(1));
        let third = try_append(&log, one(0)).unwrap();
        let Appended::DuplicateCommitted(committed) = third else {
            panic!("{third:?}")
        };
        assert_eq!(committed.base_offset, Offset(0));
    });
}

#[test]
fn the_last_five_are_known_and_nothing_older() {
    simulate(2, |world| async move {
        let log = world.open(1).await;
        lead(&log, 0);
        for sequence in 0..7 {
            try_append(&log, one(sequence))
                .unwrap()
                .wait()
                .await
                .unwrap();
        }
        for sequence in 2..7 {
            let again = try_append(&log, one(sequence)).unwrap();
            let committed = again.wait().await.unwrap();
            assert_eq!(committed.base_offset, Offset(i64::from(sequence)));
        }
        let old = try_append(&log, one(1)).unwrap_err();
        assert!(matches!(
            old,
            AppendError::OutOfOrderSequence {
                expected: 7,
                found: 1,
                ..
            }
        ));
        let overlapping = try_append(&log, sequenced(7, 0, 6, b"v", 2)).unwrap_err();
        assert!(matches!(
            overlapping,
            AppendError::OutOfOrderSequence { .. }
        ));
        let gap = try_append(&log, one(8)).unwrap_err();
        assert!(matches!(
            gap,
            AppendError::OutOfOrderSequence {
                expected: 7,
                found: 8,
                ..
            }
        ));
    });
}

#[test]
fn epochs_begin_at_zero_and_never_go_back() {
    simulate(3, |world| async move {
        let log = world.open(1).await;
        lead(&log, 0);
        // K26: the first batch of an unknown producer may have any number.
        try_append(&log, sequenced(7, 2, 40, b"v", 1)).unwrap();
        let gap = try_append(&log, sequenced(7, 3, 5, b"v", 1)).unwrap_err();
        assert!(matches!(
            gap,
            AppendError::OutOfOrderSequence {
                expected: 0,
                found: 5,
                ..
            }
        ));
        try_append(&log, sequenced(7, 3, 0, b"v", 1)).unwrap();
        let stale = try_append(&log, sequenced(7, 2, 41, b"v", 1)).unwrap_err();
        let current = ProducerEpoch(3);
        let AppendError::InvalidProducerEpoch { current: found, .. } = stale else {
            panic!("{stale}")
        };
        assert_eq!(found, current);
    });
}

#[test]
fn sequence_numbers_wrap() {
    simulate(4, |world| async move {
        let log = world.open(1).await;
        lead(&log, 0);
        try_append(&log, sequenced(7, 0, i32::MAX - 1, b"v", 4)).unwrap();
        try_append(&log, one(2)).unwrap().wait().await.unwrap();
        let again = try_append(&log, sequenced(7, 0, i32::MAX - 1, b"v", 4)).unwrap();
        assert_eq!(again.wait().await.unwrap().last_offset, Offset(3));
    });
}

#[test]
fn a_producer_is_forgotten_after_its_time() {
    simulate(5, |world| async move {
        let limits = LogLimits {
            producer_expiration: Duration::from_secs(60),
            ..LogLimits::local()
        };
        let log = world.open_with(1, limits, Recovered::default()).await;
        let partition_0 = lead(&log, 0);
        try_append(&log, one(0)).unwrap().wait().await.unwrap();
        world.sleep_ms(59_000).await;
        log.expire_producers();
        assert_eq!(partition_0.head().producers.len(), 1);
        assert!(try_append(&log, one(9)).is_err());
        world.sleep_ms(2_000).await;
        try_append(&log, one(9)).unwrap().wait().await.unwrap();
        world.sleep_ms(61_000).await;
        log.expire_producers();
        assert!(partition_0.head().producers.is_empty());
    });
}

#[test]
fn a_refused_entry_leaves_nothing_behind() {
    simulate(6, |world| async move {
        let log = world.open(1).await;
        let partition_0 = lead(&log, 0);
        append(&log, 0, batch(b"x", 1)).wait().await.unwrap();
        try_append(&log, one(0)).unwrap();
        try_append(&log, one(5)).unwrap_err();
        let unknown = Entry::records(partition(9), batch(b"x", 1), Latency::Low);
        assert!(matches!(
            log.append(unknown),
            Err(AppendError::UnknownPartition(_))
        ));
        assert_eq!(partition_0.log_end(), Offset(2));
        try_append(&log, one(1)).unwrap().wait().await.unwrap();
        assert_eq!(partition_0.high_watermark(), Offset(3));
    });
}

#[test]
fn an_epoch_ends_where_the_next_begins() {
    simulate(7, |world| async move {
        let log = world.open(1).await;
        let partition_0 = lead(&log, 0);
        append(&log, 0, batch(b"x", 4)).wait().await.unwrap();
        let mut head = partition_0.head();
        drop(log);
        head.epoch_starts = vec![(LeaderEpoch(2), Offset(0)), (LeaderEpoch(5), Offset(3))];
        head.leader_epoch = LeaderEpoch(7);
        let mut recovered = tidemill_log::recover::RecoveredPartition::empty(partition(0));
        recovered.head = head;
        let from = Recovered {
            partitions: vec![recovered],
            ..Recovered::default()
        };
        let log = world.open_with(2, LogLimits::local(), from).await;
        let partition_0 = log.partition(partition(0)).unwrap();
        let end = |epoch: i32| {
            partition_0
                .epoch_end(LeaderEpoch(epoch))
                .map(|(e, o)| (e.0, o.0))
        };
        assert_eq!(end(8), None, "above the present one");
        assert_eq!(end(7), Some((7, 4)));
        assert_eq!(end(6), Some((5, 4)));
        assert_eq!(end(5), Some((5, 4)));
        assert_eq!(end(4), Some((2, 3)));
        assert_eq!(end(1), Some((1, 0)), "older than any known");
        append(&log, 0, batch(b"y", 1)).wait().await.unwrap();
        assert_eq!(end(5), Some((5, 4)));
        assert_eq!(end(7), Some((7, 5)));
    });
}
