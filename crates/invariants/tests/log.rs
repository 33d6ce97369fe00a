//! The predicates tell right from wrong.

use tidemill_invariants::{
    log::{
        Batch, Marks, acked_is_stored, covered, marks_advance, offsets_are_dense, real_time_order,
        sequence_state, sequences_are_unique,
    },
    wal::{applies, cut_is_clean, missing_before, span_kept},
};

fn batch(base: i64, last: i64, content: u64, first_sequence: i32) -> Batch {
    let count = i32::try_from(last - base).expect("the batch is short");
    let producer = Some((7, 0, first_sequence, first_sequence + count));
    Batch {
        base,
        last,
        content,
        producer,
    }
}

#[test]
fn acknowledged_batches_stay_where_they_are() {
    let stored = [batch(0, 1, 10, 0), batch(2, 2, 11, 2)];
    assert_eq!(acked_is_stored(&stored, &stored, 0), Ok(()));
    assert!(
        acked_is_stored(&[batch(2, 2, 12, 2)], &stored, 0).is_err(),
        "other contents"
    );
    assert!(
        acked_is_stored(&[batch(3, 3, 13, 3)], &stored, 0).is_err(),
        "missing"
    );
    assert_eq!(
        acked_is_stored(&[batch(0, 0, 9, 0)], &stored, 2),
        Ok(()),
        "below the start"
    );
}

#[test]
fn offsets_follow_each_other() {
    assert_eq!(offsets_are_dense(5, 5, 7), Ok(()));
    assert!(offsets_are_dense(5, 6, 7).is_err());
    assert!(offsets_are_dense(5, 5, 4).is_err());
    assert_eq!(covered(1, 5, &[(0, 2), (3, 4)]), Ok(()));
    assert!(covered(0, 5, &[(0, 2), (4, 4)]).is_err(), "a hole");
    assert!(covered(0, 5, &[(0, 2), (2, 4)]).is_err(), "an overlap");
    assert!(covered(0, 6, &[(0, 2), (3, 4)]).is_err(), "an end missing");
    assert!(real_time_order(4, 5).is_ok() && real_time_order(5, 5).is_err());
}

#[test]
fn marks_only_advance() {
    let before = Marks {
        log_start: 1,
        last_stable: 3,
        high_watermark: 5,
    };
    assert_eq!(marks_advance(&before, &before), Ok(()));
    for fault in [
        Marks {
            high_watermark: 4,
            ..before
        },
        Marks {
            log_start: 0,
            ..before
        },
        Marks {
            last_stable: 6,
            ..before
        },
        Marks {
            log_start: 4,
            ..before
        },
    ] {
        assert!(marks_advance(&before, &fault).is_err(), "{fault:?}");
    }
}

#[test]
fn sequence_numbers_are_stored_once() {
    let stored = [batch(0, 1, 10, 0), batch(2, 2, 11, 2)];
    assert_eq!(sequences_are_unique(&stored), Ok(()));
    let twice = [batch(0, 1, 10, 0), batch(2, 3, 10, 0)];
    assert!(sequences_are_unique(&twice).is_err());
    let overlap = [batch(0, 3, 10, 0), batch(4, 5, 10, 2)];
    assert!(sequences_are_unique(&overlap).is_err());
    assert_eq!(
        sequence_state(&[(2, 2, 2)], &[(0, 1, 0), (2, 2, 2)]),
        Ok(())
    );
    assert!(sequence_state(&[(0, 1, 0)], &[(0, 1, 0), (2, 2, 2)]).is_err());
}

#[test]
fn an_entry_needs_all_it_depends_on() {
    let landed = |number: u64| number != 6;
    let missing = missing_before(8, landed);
    assert_eq!(missing, 0b10, "number 6 is the second before 8");
    assert!(applies(true, 0b101, missing));
    assert!(!applies(true, 0b010, missing));
    assert!(!applies(false, 0, 0));
    assert!(span_kept(3, 130).is_ok() && span_kept(3, 131).is_err());
    assert!(cut_is_clean(5, 5, &[(2, 4), (5, 9)]).is_ok());
    assert!(
        cut_is_clean(5, 5, &[(4, 5)]).is_err(),
        "the entry ends at the cut"
    );
    assert!(cut_is_clean(6, 5, &[]).is_err());
}
