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
    let (header, records) = split(batch)?;
    if header.max_timestamp < timestamp || header.last_offset() < from {
        return Ok(None);
    }
    let mut found = None;
    walk(&header, records, max_inflated, |hit| {
        found = Some(hit).filter(|hit| hit.timestamp >= timestamp && hit.offset >= from);
        found.is_some()
    })?;
    Ok(found)
}

/// Of the records at or after offset `from` whose timestamp is at most `limit`, the first that has
/// the greatest (ListOffsets -3, KIP-734). One walk, whatever the order of timestamps.
///
/// # Errors
/// The batch cannot be read up to the record.
pub fn max_timestamp_record(
    batch: &[u8],
    limit: i64,
    from: Offset,
    max_inflated: u64,
) -> Result<Option<TimestampHit>, RecordsError> {
    let (header, records) = split(batch)?;
    if header.last_offset() < from {
        return Ok(None);
    }
    let mut best: Option<TimestampHit> = None;
    walk(&header, records, max_inflated, |hit| {
        let is_better = best.is_none_or(|best| hit.timestamp > best.timestamp);
        if is_better && hit.timestamp <= limit && hit.offset >= from {
            best = Some(hit);
        }
        best.is_some_and(|best| best.timestamp == header.max_timestamp)
    })?;
    Ok(best)
}

/// Shows the records to `judge`, until it says that it has seen enough.
fn walk(
    header: &BatchHeader,
    records: &[u8],
    max_inflated: u64,
    mut judge: impl FnMut(TimestampHit) -> bool,
) -> Result<(), RecordsError> {
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
        let timestamp = meta.timestamp(header).map_err(bad)?;
        let offset = Offset(
            header
                .base_offset
                .0
                .wrapping_add(i64::from(meta.offset_delta)),
        );
        if judge(TimestampHit { offset, timestamp }) {
            break;
        }
    }
    Ok(())
}
