//! Checksums of parts from those of the pieces.

use bytes::Bytes;
use proptest::prelude::*;
use tidemill_wire::batch::{Hashed, Hasher, PIECE_BYTES, PIECES_FROM, Pieces, crc::crc32c};

fn records(len: usize) -> Vec<u8> {
    let byte = |index: usize| (index.wrapping_mul(2_654_435_761) >> 13) as u8;
    (0..len).map(byte).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_part_has_the_checksum_of_its_bytes(
        len in PIECES_FROM - 2..PIECES_FROM + 3 * PIECE_BYTES,
        cuts in prop::array::uniform2(0.0..=1.0),
    ) {
        let records = records(len);
        let (pieces, whole) = Pieces::of(&records, &Hashed::default());
        prop_assert_eq!(whole, crc32c(&records));
        let [a, b] = cuts.map(|cut: f64| (cut * len as f64) as usize);
        let part = a.min(b)..a.max(b);
        prop_assert_eq!(pieces.crc(&records[part.clone()], part.start), crc32c(&records[part]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_was_hashed_on_the_way_counts_wherever_the_records_lie(
        before in 0..2 * PIECE_BYTES,
        behind in 0..2 * PIECE_BYTES,
        len in PIECES_FROM..PIECES_FROM + 3 * PIECE_BYTES,
        steps in prop::collection::vec(1..2 * PIECE_BYTES, 1..20),
        cuts in prop::array::uniform2(0.0..=1.0),
    ) {
        let buffer = Bytes::from(records(before + len + behind));
        let mut hasher = Hasher::default();
        let mut came = 0;
        for step in steps.iter().cycle() {
            came = buffer.len().min(came + step);
            hasher.update(&buffer[..came]);
            if came == buffer.len() {
                break;
            }
        }
        let hashed = hasher.take(&buffer);
        let records = buffer.slice(before..before + len);
        let (pieces, whole) = Pieces::of(&records, &hashed);
        prop_assert_eq!(whole, crc32c(&records));
        let [a, b] = cuts.map(|cut: f64| (cut * len as f64) as usize);
        let part = a.min(b)..a.max(b);
        prop_assert_eq!(pieces.crc(&records[part.clone()], part.start), crc32c(&records[part]));
    }
}

#[test]
fn what_was_hashed_on_the_way_is_not_hashed_again() {
    let mut original = records(PIECES_FROM + 1000);
    let whole = crc32c(&original[1000..]);
    let mut hasher = Hasher::default();
    hasher.update(&original);
    original[2 * PIECE_BYTES + 7] ^= 1;
    let changed = Bytes::from(original);
    let hashed = hasher.take(&changed);
    assert_eq!(Pieces::of(&changed[1000..], &hashed).1, whole);
    // Records that lie elsewhere are hashed themselves.
    let elsewhere = changed[1000..].to_vec();
    assert_eq!(Pieces::of(&elsewhere, &hashed).1, crc32c(&elsewhere));
    // What was taken is forgotten.
    assert_eq!(
        Pieces::of(&changed[1000..], &hasher.take(&changed)).1,
        crc32c(&changed[1000..])
    );
}

#[test]
fn parts_that_begin_and_end_with_pieces() {
    let records = records(8 * PIECE_BYTES + 5);
    let (pieces, _) = Pieces::of(&records, &Hashed::default());
    for start in [
        0,
        PIECE_BYTES - 1,
        PIECE_BYTES,
        PIECE_BYTES + 1,
        2 * PIECE_BYTES,
    ] {
        for end in [
            start,
            4 * PIECE_BYTES,
            8 * PIECE_BYTES - 1,
            8 * PIECE_BYTES,
            records.len(),
        ] {
            let part = &records[start..end];
            assert_eq!(pieces.crc(part, start), crc32c(part), "{start}..{end}");
        }
    }
}

#[test]
fn whole_pieces_are_not_hashed_again() {
    let mut records = records(PIECES_FROM);
    let (pieces, whole) = Pieces::of(&records, &Hashed::default());
    records[PIECE_BYTES + 7] ^= 1;
    assert_eq!(pieces.crc(&records, 0), whole);
    let part = &records[PIECE_BYTES + 1..];
    assert_eq!(
        pieces.crc(part, PIECE_BYTES + 1),
        crc32c(part),
        "a cut within a piece"
    );
}

#[test]
fn few_records_have_no_pieces() {
    let records = records(PIECES_FROM - 1);
    let (pieces, whole) = Pieces::of(&records, &Hashed::default());
    assert_eq!(pieces, Pieces::default());
    assert_eq!(whole, crc32c(&records));
    assert_eq!(pieces.crc(&records[3..], 3), crc32c(&records[3..]));
}
