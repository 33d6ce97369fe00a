//! Building of batches: internal topics, the command line's producer, the load generator.

use std::fmt;

use bytes::Bytes;

use super::codec::{CompressError, compress};
use super::crc;
use super::header::{
    Attributes, BatchHeader, CRC_START, Compression, HEADER_BYTES, LOG_OVERHEAD, TimestampType,
};
use super::varint::{put_varint, put_varlong, varlong_len};
use super::{NO_SEQUENCE, NO_TIMESTAMP};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// A record to be added.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// Milliseconds since 1970, -1 for none.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers in order; keys may repeat.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

impl<'a> NewRecord<'a> {
    /// A record with key and value, without timestamp and headers.
    #[must_use]
    pub const fn key_value(key: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            timestamp: NO_TIMESTAMP,
            key: Some(key),
            value: Some(value),
            headers: &[],
        }
    }
}

/// Why a batch could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// A field, a record or the batch is longer than 2^31-1 bytes.
    TooLong,
    /// Timestamps lie further apart than 64 bits.
    Timestamp(i64),
    /// There is no record in it.
    Empty,
    /// Compression failed.
    Compress(CompressError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("record or batch is longer than 2147483647 bytes"),
            Self::Timestamp(timestamp) => {
                write!(f, "timestamp {timestamp} is too far from the batch's first")
            }
            Self::Empty => f.write_str("a record batch needs a record"),
            Self::Compress(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {}

/// Collects records and makes a batch of them.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    records: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    codec: Compression,
    level: Option<i32>,
    append_time: Option<i64>,
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: i32,
    transactional: bool,
    control: bool,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            count: 0,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            codec: Compression::None,
            level: None,
            append_time: None,
            base_offset: Offset(0),
            leader_epoch: LeaderEpoch(-1),
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch(-1),
            base_sequence: NO_SEQUENCE,
            transactional: false,
            control: false,
        }
    }
}

impl BatchBuilder {
    /// A builder for batches of this codec, as a producer sends them: base offset 0, no epoch.
    #[must_use]
    pub fn new(codec: Compression) -> Self {
        Self {
            codec,
            ..Self::default()
        }
    }

    /// Sets the compression level, see [`compress`].
    pub const fn level(&mut self, level: Option<i32>) -> &mut Self {
        self.level = level;
        self
    }

    /// Sets the place in the log.
    pub const fn at(&mut self, base_offset: Offset, leader_epoch: LeaderEpoch) -> &mut Self {
        self.base_offset = base_offset;
        self.leader_epoch = leader_epoch;
        self
    }

    /// Sets the idempotent producer and the sequence number of the first record.
    pub const fn producer(
        &mut self,
        id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: i32,
    ) -> &mut Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Marks the batch as part of its producer's transaction.
    pub const fn transactional(&mut self) -> &mut Self {
        self.transactional = true;
        self
    }

    /// Makes it a transactional control batch of this producer, which has no sequence.
    pub const fn control(&mut self, id: ProducerId, epoch: ProducerEpoch) -> &mut Self {
        self.control = true;
        self.transactional = true;
        self.producer(id, epoch, NO_SEQUENCE)
    }

    /// Gives all records this append time.
    pub const fn log_append_time(&mut self, now_ms: i64) -> &mut Self {
        self.append_time = Some(now_ms);
        self
    }

    /// Number of records so far.
    #[must_use]
    pub const fn count(&self) -> i32 {
        self.count
    }

    /// Bytes of the batch so far, before compression.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        HEADER_BYTES + self.records.len()
    }

    /// Appends a record. Its offset is the base offset plus the number of those before it.
    ///
    /// # Errors
    /// It is too long, or its timestamp too far from the first one's. The builder is unchanged.
    pub fn push(&mut self, record: &NewRecord<'_>) -> Result<(), BuildError> {
        let base = if self.count == 0 {
            record.timestamp
        } else {
            self.base_timestamp
        };
        let delta = record.timestamp.checked_sub(base);
        let delta = delta.ok_or(BuildError::Timestamp(record.timestamp))?;
        let count = self.count.checked_add(1).ok_or(BuildError::TooLong)?;
        let length = record_len(record, delta, self.count)?;
        if length.saturating_add(self.size_bytes()) > i32::MAX as usize {
            return Err(BuildError::TooLong);
        }
        let out = &mut self.records;
        put_varint(out, length as i32);
        out.push(0);
        put_varlong(out, delta);
        put_varint(out, self.count);
        put_bytes(out, record.key);
        put_bytes(out, record.value);
        put_varint(out, record.headers.len() as i32);
        for (key, value) in record.headers {
            put_bytes(out, Some(key.as_bytes()));
            put_bytes(out, *value);
        }
        self.base_timestamp = base;
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        self.count = count;
        Ok(())
    }

    /// The batch.
    ///
    /// # Errors
    /// It holds no record, is too long, or the codec fails.
    pub fn build(&self) -> Result<Bytes, BuildError> {
        if self.count == 0 {
            return Err(BuildError::Empty);
        }
        let compressed;
        let records = if self.codec == Compression::None {
            &self.records
        } else {
            compressed =
                compress(self.codec, self.level, &self.records).map_err(BuildError::Compress)?;
            &compressed
        };
        let mut attributes = Attributes::new(self.codec, self.transactional, self.control);
        if self.append_time.is_some() {
            attributes = attributes.with_timestamp_type(TimestampType::LogAppendTime);
        }
        let header = BatchHeader {
            base_offset: self.base_offset,
            batch_length: 0,
            partition_leader_epoch: self.leader_epoch,
            crc: 0,
            attributes,
            last_offset_delta: self.count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.append_time.unwrap_or(self.max_timestamp),
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.count,
        };
        let (_, bytes) = join(header, records).ok_or(BuildError::TooLong)?;
        Ok(bytes)
    }
}

/// A batch of a header and its records, length and CRC set; none if it is too long.
pub(super) fn join(mut header: BatchHeader, records: &[u8]) -> Option<(BatchHeader, Bytes)> {
    let length = HEADER_BYTES - LOG_OVERHEAD + records.len();
    header.batch_length = i32::try_from(length).ok()?;
    let head = crc::crc32c(&header.encode()[CRC_START..]);
    header.crc = crc::combine(head, crc::crc32c(records), records.len() as u64);
    let mut out = Vec::with_capacity(HEADER_BYTES + records.len());
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(records);
    Some((header, Bytes::from(out)))
}

/// Bytes of a record after its length.
fn record_len(
    record: &NewRecord<'_>,
    timestamp_delta: i64,
    offset_delta: i32,
) -> Result<usize, BuildError> {
    let headers = i32::try_from(record.headers.len()).map_err(|_| BuildError::TooLong)?;
    let mut length = 1
        + varlong_len(timestamp_delta)
        + varlong_len(i64::from(offset_delta))
        + bytes_len(record.key)?
        + bytes_len(record.value)?
        + varlong_len(i64::from(headers));
    for (key, value) in record.headers {
        length += bytes_len(Some(key.as_bytes()))? + bytes_len(*value)?;
    }
    Ok(length)
}

fn bytes_len(bytes: Option<&[u8]>) -> Result<usize, BuildError> {
    let Some(bytes) = bytes else { return Ok(1) };
    let length = i32::try_from(bytes.len()).map_err(|_| BuildError::TooLong)?;
    Ok(varlong_len(i64::from(length)) + bytes.len())
}

/// Lengths were checked by `record_len`.
fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
    }
}
