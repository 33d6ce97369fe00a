//! The header of stored objects: its bytes are final.

mod common;

use bytes::Bytes;
use common::id;
use proptest::prelude::*;
use tidemill_store::{Envelope, ObjectKind, envelope::EnvelopeError, testing::fuzz::stored_object};

const KINDS: [ObjectKind; 10] = [
    ObjectKind::Root,
    ObjectKind::Metadata,
    ObjectKind::MetadataSnapshot,
    ObjectKind::Wal,
    ObjectKind::ClosedMarker,
    ObjectKind::Checkpoint,
    ObjectKind::ClosingCheckpoint,
    ObjectKind::Segment,
    ObjectKind::SetObject,
    ObjectKind::Manifest,
];

fn sample() -> Envelope {
    Envelope {
        kind: ObjectKind::Wal,
        version: 1,
        must_understand: 0,
        may_ignore: 0x8001,
        put_id: id(0xab),
        cluster_id: *b"cluster-id-16byt",
        writer: 0x0102_0304_0506_0708,
    }
}

#[test]
fn golden_bytes() {
    let bytes = sample().encode(b"dir", 5);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "54444d4c",
        "0401",
        "0000",
        "0180",
        "0000",
        "00000000",
        "abababababababababababababababab",
        "636c75737465722d69642d3136627974",
        "0807060504030201",
        "03000000",
    );
    assert!(hex.starts_with(expected), "{hex}");
    assert_eq!(
        &hex[expected.len() + 8..expected.len() + 32],
        "580000000000000000000000"
    );
    assert_eq!(&hex[160..], "646972");
    assert_eq!(&hex[120..128], GOLDEN_DIRECTORY_CRC);
    assert_eq!(&hex[152..160], GOLDEN_HEADER_CRC);
}

/// CRC32C of `dir`, little endian.
const GOLDEN_DIRECTORY_CRC: &str = "9e261246";
/// CRC32C of the first 76 bytes, little endian.
const GOLDEN_HEADER_CRC: &str = "47457b14";

#[test]
fn kinds_keep_their_numbers() {
    for (at, kind) in KINDS.into_iter().enumerate() {
        assert_eq!(kind as usize, at + 1);
        assert_eq!(ObjectKind::from_code(kind as u8), Some(kind));
    }
    assert_eq!(ObjectKind::from_code(0), None);
    assert_eq!(ObjectKind::from_code(11), None);
}

#[test]
fn what_is_newer_stops_the_reader_and_says_so() {
    let good = sample().encode(b"dir", 0);
    for (at, value, wanted) in [
        (4, 99, "object kind 99"),
        (6, 1, "must-understand flags 0x0001"),
        (10, 1, "codec 1"),
        (12, 1, "encryption key 1"),
    ] {
        let mut bytes = good.to_vec();
        bytes[at] = value;
        let crc = crc32c::crc32c(&bytes[..76]).to_le_bytes();
        bytes[76..80].copy_from_slice(&crc);
        let error = Envelope::decode_header(&bytes).expect_err("too new");
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.to_string().contains("upgrade"), "{error}");
        assert_eq!(
            Envelope::checked_put_id(&bytes),
            Some(id(0xab)),
            "its writer is known"
        );
    }
    let newer = Envelope {
        version: 2,
        ..sample()
    }
    .encode(b"dir", 0);
    let error = Envelope::decode(&newer, ObjectKind::Wal, 1).expect_err("too new");
    assert!(matches!(error, EnvelopeError::TooNew { .. }), "{error}");
    let error = Envelope::decode(&good, ObjectKind::Segment, 1).expect_err("another kind");
    assert!(matches!(error, EnvelopeError::WrongKind { .. }), "{error}");
}

#[test]
fn every_flipped_bit_of_header_and_directory_is_found() {
    let good = sample().encode(b"directory", 4);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let decoded = Envelope::decode(&Bytes::from(bytes), ObjectKind::Wal, 1);
        assert!(decoded.is_err(), "bit {bit}");
    }
    for len in 0..good.len() {
        assert!(
            Envelope::decode(&good.slice(..len), ObjectKind::Wal, 1).is_err(),
            "{len} bytes"
        );
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        kind in 0usize..10,
        version: u8,
        may_ignore: u16,
        put_id: [u8; 16],
        cluster_id: [u8; 16],
        writer: u64,
        directory in proptest::collection::vec(any::<u8>(), 0..300),
        body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let envelope = Envelope {
            kind: KINDS[kind],
            version,
            must_understand: 0,
            may_ignore,
            put_id: tidemill_store::PutId(put_id),
            cluster_id,
            writer,
        };
        let mut bytes = envelope.encode(&directory, body.len() as u64).to_vec();
        bytes.extend_from_slice(&body);
        let bytes = Bytes::from(bytes);
        let (decoded, found) = Envelope::decode(&bytes, KINDS[kind], version)?;
        prop_assert_eq!(decoded, envelope);
        prop_assert_eq!(&found[..], &directory[..]);
        prop_assert!(Envelope::is_whole(&bytes));
        stored_object(&bytes);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(
        mut data in proptest::collection::vec(any::<u8>(), 0..200),
        ours: bool,
        right_crc: bool,
    ) {
        if ours && data.len() >= 80 {
            data[..4].copy_from_slice(b"TDML");
            data[4] %= 12;
            for at in [6, 7, 10, 12, 13, 14, 15, 58, 59] {
                data[at] = 0;
            }
            if right_crc {
                let crc = crc32c::crc32c(&data[..76]).to_le_bytes();
                data[76..80].copy_from_slice(&crc);
            }
        }
        stored_object(&data);
    }
}
