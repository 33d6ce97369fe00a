//! Validation of a produced batch without building its records (K19, K22, K23, K37-K39, K82).

use bytes::Bytes;

use super::crc;
use super::error::{BatchError, RECORD_ERRORS_MAX, RecordError, RecordRefusal, RefusedRecord};
use super::header::{
    Attributes, BatchHeader, CRC_START, Compression, HEADER_BYTES, HeaderError, TimestampType,
};
use super::inflate::{InflateError, Inflater, Source};
use super::pieces::{Hashed, Pieces};
use super::walk::{RecordMeta, walk_record};
use super::{MAX_INFLATED_BYTES, NO_TIMESTAMP};
use crate::ids::{LeaderEpoch, Offset};

/// What a topic and a request allow.
#[derive(Clone, Copy, Debug)]
pub struct ValidateOptions {
    /// `max.message.bytes`: most bytes of the batch as received.
    pub max_message_bytes: u64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far a record's time may lie in the past.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far it may lie in the future.
    pub timestamp_after_max_ms: i64,
    /// The broker's time, milliseconds since 1970.
    pub now_ms: i64,
    /// Whether every record needs a key (compacted topics).
    pub key_required: bool,
    /// Whether the request is new enough for zstd (Produce v7 and later).
    pub allow_zstd: bool,
    /// Most bytes that the records may inflate to.
    pub max_inflated_bytes: u64,
}

impl Default for ValidateOptions {
    /// Kafka's defaults; the time is 1970.
    fn default() -> Self {
        Self {
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            now_ms: 0,
            key_required: false,
            allow_zstd: true,
            max_inflated_bytes: MAX_INFLATED_BYTES,
        }
    }
}

/// A batch that may be appended, all but base offset and leader epoch settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidBatch {
    /// The header as it is to be stored, at base offset 0.
    pub header: BatchHeader,
    /// The batch as received. Its header may differ from `header`.
    pub bytes: Bytes,
    /// Greatest timestamp of a record (-1 if none has one), or the append time.
    pub max_timestamp: i64,
    /// Bytes of the records once decompressed.
    pub inflated_bytes: u64,
    /// Checksums of the records' pieces.
    pub pieces: Pieces,
}

impl ValidBatch {
    /// The header at its place in the log.
    #[must_use]
    pub const fn at(&self, base_offset: Offset, leader_epoch: LeaderEpoch) -> BatchHeader {
        let mut header = self.header;
        header.base_offset = base_offset;
        header.partition_leader_epoch = leader_epoch;
        header
    }

    /// The batch at its place in the log: a new header, and the records as received.
    #[must_use]
    pub fn assigned(&self, base_offset: Offset, leader_epoch: LeaderEpoch) -> (Bytes, Bytes) {
        let head = self.at(base_offset, leader_epoch).encode();
        (Bytes::copy_from_slice(&head), self.records())
    }

    /// The records as received, compressed or not: all after the header.
    #[must_use]
    pub fn records(&self) -> Bytes {
        self.bytes.slice(HEADER_BYTES..)
    }
}

/// Checks a partition's bytes of a Produce request.
///
/// Reads every record's layout, decompressing through a window; keeps the bytes. Where the
/// greatest timestamp (or the timestamp type) differs from the header's, `header` has the right
/// one and its CRC.
///
/// # Errors
/// See [`BatchError`]; [`BatchError::kafka_code`] is what to answer. Layout errors come before a
/// record's time or missing key.
pub fn validate(bytes: Bytes, options: &ValidateOptions) -> Result<ValidBatch, BatchError> {
    validate_hashed(bytes, &Hashed::default(), options)
}

/// The same for a batch that lies in a buffer of which parts have been hashed.
///
/// # Errors
/// As [`validate`].
pub fn validate_hashed(
    bytes: Bytes,
    hashed: &Hashed,
    options: &ValidateOptions,
) -> Result<ValidBatch, BatchError> {
    let header = only_batch(&bytes)?;
    if header.base_offset.0 != 0 {
        return Err(BatchError::BaseOffset(header.base_offset.0));
    }
    let size = bytes.len() as u64;
    if size > options.max_message_bytes {
        return Err(BatchError::TooLarge {
            size,
            max: options.max_message_bytes,
        });
    }
    let (pieces, computed) = hash(&bytes, hashed);
    if computed != header.crc {
        return Err(BatchError::Crc {
            stored: header.crc,
            computed,
        });
    }
    let codec = check_header(&header, options)?;
    let walked = walk(codec, &header, &bytes[HEADER_BYTES..], options)?;
    let (kind, max_timestamp) = match options.timestamp_type {
        TimestampType::LogAppendTime => (TimestampType::LogAppendTime, options.now_ms),
        TimestampType::CreateTime => (TimestampType::CreateTime, walked.max_timestamp),
    };
    let attributes = header.attributes.with_timestamp_type(kind);
    let header = patched(header, attributes, max_timestamp);
    Ok(ValidBatch {
        header,
        bytes,
        max_timestamp,
        inflated_bytes: walked.inflated_bytes,
        pieces,
    })
}

/// The checksums of a batch: of its records in pieces, and of all that its own covers.
fn hash(bytes: &[u8], hashed: &Hashed) -> (Pieces, u32) {
    let records = &bytes[HEADER_BYTES..];
    let (pieces, crc) = Pieces::of(records, hashed);
    let head = crc::crc32c(&bytes[CRC_START..HEADER_BYTES]);
    (pieces, crc::combine(head, crc, records.len() as u64))
}

/// The header of bytes that are exactly one batch.
fn only_batch(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let not_one = BatchError::NotOneBatch {
        received: bytes.len() as u64,
    };
    let header = BatchHeader::parse(bytes).map_err(|error| match error {
        HeaderError::Truncated { .. } => not_one.clone(),
        HeaderError::Length(length) => BatchError::Length(length),
        HeaderError::Magic(magic) => BatchError::Magic(magic),
    })?;
    if header.size_bytes() == bytes.len() {
        Ok(header)
    } else {
        Err(not_one)
    }
}

/// Checks what the header says by itself, in Kafka's order (K38).
fn check_header(
    header: &BatchHeader,
    options: &ValidateOptions,
) -> Result<Compression, BatchError> {
    let records = header.record_count;
    if records <= 0 || header.last_offset_delta != records - 1 {
        let last_offset_delta = header.last_offset_delta;
        return Err(BatchError::Count {
            records,
            last_offset_delta,
        });
    }
    let attributes = header.attributes;
    if attributes.is_control() {
        return Err(BatchError::Control);
    }
    let (base_sequence, producer_epoch) = (header.base_sequence, header.producer_epoch.0);
    if header.has_producer() && (base_sequence < 0 || producer_epoch < 0) {
        return Err(BatchError::Producer {
            base_sequence,
            producer_epoch,
        });
    }
    if attributes.is_transactional() && !header.has_producer() {
        return Err(BatchError::NoProducer);
    }
    if attributes.has_delete_horizon() {
        return Err(BatchError::DeleteHorizon);
    }
    if attributes.timestamp_type() == TimestampType::LogAppendTime {
        return Err(BatchError::LogAppendTime);
    }
    match attributes.compression() {
        None => Err(BatchError::UnknownCodec(attributes.codec_id())),
        Some(Compression::Zstd) if !options.allow_zstd => Err(BatchError::ZstdNotAllowed),
        Some(codec) => Ok(codec),
    }
}

struct Walked {
    max_timestamp: i64,
    inflated_bytes: u64,
}

fn walk(
    codec: Compression,
    header: &BatchHeader,
    records: &[u8],
    options: &ValidateOptions,
) -> Result<Walked, BatchError> {
    if codec == Compression::None {
        let mut rest = records;
        let max_timestamp = walk_all(&mut rest, header, options)?;
        if !rest.is_empty() {
            return Err(BatchError::TrailingBytes);
        }
        return Ok(Walked {
            max_timestamp,
            inflated_bytes: records.len() as u64,
        });
    }
    let mut source = Inflater::new(codec, records, options.max_inflated_bytes).map_err(refused)?;
    let max_timestamp = walk_all(&mut source, header, options)?;
    if !source.finish().map_err(refused)? {
        return Err(BatchError::TrailingBytes);
    }
    Ok(Walked {
        max_timestamp,
        inflated_bytes: source.taken(),
    })
}

fn refused(error: InflateError) -> BatchError {
    match error {
        InflateError::TooLarge { max } => BatchError::InflatedTooLarge { max },
        InflateError::Corrupt(_) => BatchError::Inflate(error),
    }
}

/// Walks the claimed number of records; gives the greatest timestamp.
fn walk_all<S: Source>(
    source: &mut S,
    header: &BatchHeader,
    options: &ValidateOptions,
) -> Result<i64, BatchError> {
    let mut max_timestamp = NO_TIMESTAMP;
    // A lying layout matters more than a wrong time: the walk goes on to find it.
    let mut blamed = Vec::new();
    for index in 0..header.record_count {
        let bad = |error| match error {
            RecordError::Inflate(error) => refused(error),
            error => BatchError::Record { index, error },
        };
        let meta = walk_record(source).map_err(bad)?;
        if meta.offset_delta != index {
            let error = RecordError::OffsetDelta {
                expected: index,
                found: meta.offset_delta,
            };
            return Err(bad(error));
        }
        let timestamp = meta.timestamp(header).map_err(bad)?;
        max_timestamp = max_timestamp.max(timestamp);
        if let Some(why) = refusal(&meta, timestamp, options)
            && blamed.len() < RECORD_ERRORS_MAX
        {
            blamed.push(RefusedRecord { index, why });
        }
    }
    if blamed.is_empty() {
        return Ok(max_timestamp);
    }
    Err(BatchError::Records(blamed))
}

fn refusal(meta: &RecordMeta, timestamp: i64, options: &ValidateOptions) -> Option<RecordRefusal> {
    if options.key_required && !meta.has_key {
        return Some(RecordRefusal::MissingKey);
    }
    let create_time = options.timestamp_type == TimestampType::CreateTime;
    if create_time && timestamp != NO_TIMESTAMP && !in_time(timestamp, options) {
        let now_ms = options.now_ms;
        return Some(RecordRefusal::Timestamp {
            timestamp,
            earliest: now_ms.saturating_sub(options.timestamp_before_max_ms),
            latest: now_ms.saturating_add(options.timestamp_after_max_ms),
        });
    }
    None
}

fn in_time(timestamp: i64, options: &ValidateOptions) -> bool {
    let age = options.now_ms.saturating_sub(timestamp);
    let ahead = timestamp.saturating_sub(options.now_ms);
    age <= options.timestamp_before_max_ms && ahead <= options.timestamp_after_max_ms
}

/// The header with other attributes and greatest timestamp, and the CRC that goes with them.
fn patched(header: BatchHeader, attributes: Attributes, max_timestamp: i64) -> BatchHeader {
    if header.attributes == attributes && header.max_timestamp == max_timestamp {
        return header;
    }
    let new = BatchHeader {
        attributes,
        max_timestamp,
        ..header
    };
    let part = |header: &BatchHeader| crc::crc32c(&header.encode()[CRC_START..]);
    let records = (header.size_bytes() - HEADER_BYTES) as u64;
    let crc = crc::replace_head(header.crc, part(&header), part(&new), records);
    BatchHeader { crc, ..new }
}
