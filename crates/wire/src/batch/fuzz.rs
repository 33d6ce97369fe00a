//! Entry points for fuzzing: any bytes must end in a value or an error.

use bytes::Bytes;

use super::header::{BatchHeader, BatchIter, CRC_START, Compression, HEADER_BYTES, verify_crc};
use super::recompress::{RecompressOptions, recompress};
use super::records::Records;
use super::search::{first_at_or_after, max_timestamp_record};
use super::validate::{ValidateOptions, validate};
use super::{EndTxnMarker, crc};
use crate::ids::{LeaderEpoch, Offset};

/// Most bytes that a fuzzed batch may inflate to; small, so that runs stay quick.
const MAX_INFLATED: u64 = 1 << 20;

/// Any bytes as batches, then again with length and CRC set right so that validation goes deep.
///
/// # Panics
/// A rule between validation and the record reader is broken.
pub fn batch(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    for stored in BatchIter::new(bytes.clone()).flatten() {
        read(&stored.bytes);
    }
    check(bytes);
    let mut fixed = data.to_vec();
    if fixed.len() >= HEADER_BYTES {
        let length = i32::try_from(data.len() - 12).unwrap_or(i32::MAX);
        fixed[..8].fill(0);
        fixed[8..12].copy_from_slice(&length.to_be_bytes());
        fixed[16] = 2;
        let crc = crc::crc32c(&fixed[CRC_START..]);
        fixed[17..21].copy_from_slice(&crc.to_be_bytes());
        check(Bytes::from(fixed));
    }
}

/// A good header around any compressed bytes: the first byte chooses the codec, the second the
/// record count.
///
/// # Panics
/// As [`batch`].
pub fn compressed_batch(data: &[u8]) {
    let [codec, count, records @ ..] = data else {
        return;
    };
    let codec = Compression::ALL[usize::from(*codec) % Compression::ALL.len()];
    let mut template = [0; HEADER_BYTES];
    template[8..12].copy_from_slice(&49_i32.to_be_bytes());
    template[16] = 2;
    let Ok(mut header) = BatchHeader::parse(&template) else {
        return;
    };
    header.attributes = super::Attributes::new(codec, false, false);
    header.record_count = i32::from(*count);
    header.last_offset_delta = i32::from(*count) - 1;
    header.producer_id.0 = -1;
    if let Some((_, bytes)) = super::builder::join(header, records) {
        check(bytes);
    }
}

/// What validation accepts must be readable, record for record, and keep its CRC when assigned.
fn check(bytes: Bytes) {
    read(&bytes);
    let options = ValidateOptions {
        max_inflated_bytes: MAX_INFLATED,
        ..Default::default()
    };
    let Ok(valid) = validate(bytes, &options) else {
        return;
    };
    let again = RecompressOptions {
        codec: Compression::Lz4,
        level: None,
        max_inflated_bytes: MAX_INFLATED,
        max_message_bytes: MAX_INFLATED,
    };
    if let Ok(other) = recompress(valid.clone(), &again) {
        assert_eq!(
            verify_crc(&other.bytes),
            Ok(true),
            "crc of a recompressed batch"
        );
    }
    let (head, tail) = valid.assigned(Offset(1000), LeaderEpoch(3));
    let stored = Bytes::from([head, tail].concat());
    let header = valid.at(Offset(1000), LeaderEpoch(3));
    assert_eq!(
        super::verify_crc(&stored),
        Ok(true),
        "crc of an accepted batch"
    );
    assert_eq!(header.stored_crc(), crc::crc32c(&stored), "combined crc");
    let Ok(records) = Records::open(&stored, MAX_INFLATED) else {
        panic!("an accepted batch cannot be opened");
    };
    let mut count = 0;
    for record in records {
        let Ok(record) = record else {
            panic!("an accepted record cannot be read")
        };
        assert_eq!(record.offset, Offset(1000 + count), "dense offsets");
        count += 1;
    }
    assert_eq!(count, i64::from(header.record_count), "record count");
}

fn read(bytes: &Bytes) {
    if let Ok(records) = Records::open(bytes, MAX_INFLATED) {
        for record in records.flatten() {
            let _ = EndTxnMarker::parse(&record);
        }
    }
    let _ = first_at_or_after(bytes, 1, Offset(0), MAX_INFLATED);
    let _ = max_timestamp_record(bytes, i64::MAX, Offset(0), MAX_INFLATED);
}
