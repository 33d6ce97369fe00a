//! Header, iteration, CRC arithmetic.

use bytes::Bytes;
use proptest::prelude::*;
use tidemill_wire::batch::{
    BatchHeader, BatchIter, Compression, HeaderError, TimestampType, crc, validate, verify_crc,
};
use tidemill_wire::ids::{LeaderEpoch, Offset};

use crate::{options, sample};

#[test]
fn a_header_round_trips_and_tells_its_size() {
    let batch = sample(Compression::None, 3);
    let header = BatchHeader::parse(&batch).expect("a batch");
    assert_eq!(header.encode(), batch[..61]);
    assert_eq!(header.size_bytes(), batch.len());
    assert_eq!(header.last_offset(), Offset(2));
    assert_eq!(header.next_offset(), Offset(3));
    assert_eq!(header.last_sequence(), -1);
    assert_eq!(
        header.attributes.timestamp_type(),
        TimestampType::CreateTime
    );
    assert!(!header.has_producer());
    assert!(verify_crc(&batch).expect("whole"));
}

#[test]
fn sequences_wrap_to_zero_after_the_greatest() {
    let batch = sample(Compression::None, 3);
    let mut header = BatchHeader::parse(&batch).expect("a batch");
    header.base_sequence = i32::MAX - 1;
    assert_eq!(header.last_sequence(), 0);
}

#[test]
fn iteration_gives_every_batch_and_stops_at_a_torn_one() {
    let (first, second) = (sample(Compression::None, 2), sample(Compression::Zstd, 5));
    let mut joined = [&first[..], &second[..]].concat();
    let all: Vec<_> = BatchIter::new(Bytes::from(joined.clone())).collect();
    let all: Vec<_> = all.into_iter().map(|batch| batch.expect("whole")).collect();
    assert_eq!(all.len(), 2);
    assert_eq!((&all[0].bytes, &all[1].bytes), (&first, &second));
    assert_eq!(all[1].header.record_count, 5);

    joined.pop();
    let torn: Vec<_> = BatchIter::new(Bytes::from(joined)).collect();
    assert_eq!(torn.len(), 2);
    let size = second.len() as u64;
    let error = HeaderError::Truncated {
        needed: size,
        present: size - 1,
    };
    assert_eq!(torn[1], Err(error));
}

#[test]
fn other_formats_and_impossible_lengths_are_named() {
    let mut batch = sample(Compression::None, 1).to_vec();
    batch[16] = 1;
    assert_eq!(BatchHeader::parse(&batch), Err(HeaderError::Magic(1)));
    batch[16] = 2;
    batch[8..12].copy_from_slice(&48_i32.to_be_bytes());
    assert_eq!(BatchHeader::parse(&batch), Err(HeaderError::Length(48)));
    batch[8..12].copy_from_slice(&(-1_i32).to_be_bytes());
    assert_eq!(BatchHeader::parse(&batch), Err(HeaderError::Length(-1)));
    assert!(matches!(
        BatchHeader::parse(&batch[..60]),
        Err(HeaderError::Length(-1))
    ));
    assert!(matches!(
        BatchHeader::parse(&batch[..16]),
        Err(HeaderError::Truncated { .. })
    ));
    assert!(matches!(
        BatchHeader::parse(&[]),
        Err(HeaderError::Truncated { .. })
    ));
}

proptest! {
    #[test]
    fn combined_crcs_equal_those_of_the_joined_bytes(
        first in proptest::collection::vec(any::<u8>(), 0..200),
        second in proptest::collection::vec(any::<u8>(), 0..5000),
        patch in any::<u8>(),
    ) {
        let whole = [&first[..], &second[..]].concat();
        let len = second.len() as u64;
        let combined = crc::combine(crc::crc32c(&first), crc::crc32c(&second), len);
        prop_assert_eq!(combined, crc::crc32c(&whole));

        let other: Vec<u8> = first.iter().map(|byte| byte ^ patch).collect();
        let patched = [&other[..], &second[..]].concat();
        let replaced = crc::replace_head(
            crc::crc32c(&whole), crc::crc32c(&first), crc::crc32c(&other), len,
        );
        prop_assert_eq!(replaced, crc::crc32c(&patched));
    }

    #[test]
    fn a_crc_over_gigabytes_needs_no_bytes(
        first: u32,
        second: u32,
        len in 0_usize..1 << 40,
    ) {
        let ours = crc::combine(first, second, len as u64);
        prop_assert_eq!(ours, crc32c::crc32c_combine(first, second, len));
    }

    #[test]
    fn stored_crc_needs_no_pass(
        offset in 0_i64..i64::MAX,
        epoch in 0_i32..i32::MAX,
        count in 1_i64..20,
    ) {
        let batch = sample(Compression::Lz4, count);
        let valid = validate(batch, &options()).expect("valid");
        let (head, tail) = valid.assigned(Offset(offset), LeaderEpoch(epoch));
        let stored = [head, tail].concat();
        let header = BatchHeader::parse(&stored).expect("a batch");
        prop_assert_eq!(header.stored_crc(), crc::crc32c(&stored));
        prop_assert_eq!(header.base_offset, Offset(offset));
        prop_assert_eq!(header.partition_leader_epoch, LeaderEpoch(epoch));
        prop_assert!(verify_crc(&stored).expect("whole"));
    }
}
