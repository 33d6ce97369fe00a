//! Search for a record by its timestamp inside a batch (ListOffsets, K16).

use super::error::RecordError;
use super::header::BatchHeader;
use super::inflate::{InflateError, Inflater};
use super::records::{RecordsError, split};
use super::walk::walk_record;
use crate::ids::Offset;

/// A record found by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampHit {
    /// The record's offset.
    pub offset: Offset,
    /// Its timestamp, milliseconds since 1970.
    pub timestamp: i64,
}

/// The first record at or after offset `from` whose timestamp is at least `timestamp`.
///
/// `batch` begins with one batch, of which no more than `max_inflated` bytes of records are
/// read. A batch whose greatest timestamp is smaller is not read at all.
///
/// # Errors
/// The batch cannot be read up to the record.
pub fn first_at_or_after(
    batch: &[u8],
    timestamp: i64,
    from: Offset,
    max_inflated: u64,
) -> Result<Option<TimestampHit>, RecordsError> {
    find(batch, max_inflated, |header, hit| {
        if header.max_timestamp < timestamp || header.last_offset() < from {
            return Step::Never;
        }
        match hit {
            Some(hit) if hit.timestamp >= timestamp && hit.offset >= from => Step::Found,
            _ => Step::On,
        }
    })
}

/// The first record with the batch's greatest timestamp (ListOffsets -3, KIP-734).
///
/// # Errors
/// The batch cannot be read up to the record.
pub fn max_timestamp_record(
    batch: &[u8],
    max_inflated: u64,
) -> Result<Option<TimestampHit>, RecordsError> {
    find(batch, max_inflated, |header, hit| match hit {
        Some(hit) if hit.timestamp == header.max_timestamp => Step::Found,
        _ => Step::On,
    })
}

enum Step {
    On,
    Found,
    Never,
}

/// Walks the records until `judge` has found one; it is asked once before, without a record.
fn find(
    batch: &[u8],
    max_inflated: u64,
    judge: impl Fn(&BatchHeader, Option<TimestampHit>) -> Step,
) -> Result<Option<TimestampHit>, RecordsError> {
    let (header, records) = split(batch)?;
    if matches!(judge(&header, None), Step::Never) {
        return Ok(None);
    }
    let codec_id = header.attributes.codec_id();
    let codec = header
        .attributes
        .compression()
        .ok_or(RecordsError::UnknownCodec(codec_id))?;
    let inflate = |error: InflateError| RecordsError::Inflate(error);
    let mut source = Inflater::new(codec, records, max_inflated).map_err(inflate)?;
    for index in 0..header.record_count {
        let bad = |error| match error {
            RecordError::Inflate(error) => RecordsError::Inflate(error),
            error => RecordsError::Record { index, error },
        };
        let meta = walk_record(&mut source).map_err(bad)?;
        let timestamp = meta.timestamp(&header).map_err(bad)?;
        let offset = Offset(
            header
                .base_offset
                .0
                .wrapping_add(i64::from(meta.offset_delta)),
        );
        let hit = TimestampHit { offset, timestamp };
        match judge(&header, Some(hit)) {
            Step::On => {}
            Step::Found => return Ok(Some(hit)),
            Step::Never => return Ok(None),
        }
    }
    Ok(None)
}
