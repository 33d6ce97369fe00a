//! The 61 byte header of a batch, read without touching records.

use std::fmt;

use bytes::Bytes;

use super::crc;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// Bytes of a batch in front of its records.
pub const HEADER_BYTES: usize = 61;

/// The only magic that is stored: message format v2.
pub const MAGIC: i8 = 2;

/// Bytes in front of what `batch_length` counts: base offset and the length itself.
pub(super) const LOG_OVERHEAD: usize = 12;

/// Where the bytes under the batch's own CRC begin (the attributes).
pub(super) const CRC_START: usize = 21;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip, one or more members.
    Gzip,
    /// Snappy, raw or in Xerial's framing.
    Snappy,
    /// One LZ4 frame.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

impl Compression {
    /// All codecs, in the order of their ids.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of the id in a batch's attributes; unknown ids give none.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The id in a batch's attributes.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// Kafka's name of the codec (`compression.type`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Whose clock a batch's timestamps come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// Each record's, set by its producer.
    #[default]
    CreateTime,
    /// The broker's, at append; one for all records of the batch (its `max_timestamp`).
    LogAppendTime,
}

/// The attribute bits of a batch. Bits without a meaning are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    /// Attributes of a new batch.
    #[must_use]
    pub const fn new(codec: Compression, transactional: bool, control: bool) -> Self {
        let mut bits = codec.id() as i16;
        if transactional {
            bits |= Self::TRANSACTIONAL;
        }
        if control {
            bits |= Self::CONTROL;
        }
        Self(bits)
    }

    /// The codec, or none if its id is unknown.
    #[must_use]
    pub const fn compression(self) -> Option<Compression> {
        Compression::from_id(self.codec_id())
    }

    /// The codec's id, known or not.
    #[must_use]
    pub const fn codec_id(self) -> u8 {
        (self.0 & Self::CODEC) as u8
    }

    /// Whose clock the timestamps come from.
    #[must_use]
    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch holds control records (transaction markers) and no data.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp is a delete horizon (KIP-534); only compaction sets it.
    #[must_use]
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// The same bits with another timestamp type.
    #[must_use]
    pub const fn with_timestamp_type(self, kind: TimestampType) -> Self {
        match kind {
            TimestampType::CreateTime => Self(self.0 & !Self::LOG_APPEND_TIME),
            TimestampType::LogAppendTime => Self(self.0 | Self::LOG_APPEND_TIME),
        }
    }

    /// The same bits with another codec.
    #[must_use]
    pub const fn with_compression(self, codec: Compression) -> Self {
        Self(self.0 & !Self::CODEC | codec.id() as i16)
    }
}

/// The header of a batch of magic 2. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; 0 as a producer sends it.
    pub base_offset: Offset,
    /// Bytes after this field, at least 49.
    pub batch_length: i32,
    /// Epoch of the leader that appended it, -1 as a producer sends it.
    pub partition_leader_epoch: LeaderEpoch,
    /// CRC-32C from the attributes to the end.
    pub crc: u32,
    /// Codec and flags.
    pub attributes: Attributes,
    /// Offset of the last record relative to the first.
    pub last_offset_delta: i32,
    /// What the records' timestamps are relative to.
    pub base_timestamp: i64,
    /// Greatest timestamp of a record, or the append time.
    pub max_timestamp: i64,
    /// The producer, -1 for none.
    pub producer_id: ProducerId,
    /// The producer's epoch, -1 for none.
    pub producer_epoch: ProducerEpoch,
    /// Sequence number of the first record, -1 for none.
    pub base_sequence: i32,
    /// Number of records.
    pub record_count: i32,
}

/// Why bytes do not begin with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Fewer bytes than a header has, or than its length claims.
    Truncated {
        /// Bytes that a header or the batch needs.
        needed: u64,
        /// Bytes present.
        present: u64,
    },
    /// The length is less than a batch without records has.
    Length(i32),
    /// Another message format.
    Magic(i8),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, present } => {
                write!(f, "record batch of {needed} bytes is cut to {present}")
            }
            Self::Length(length) => write!(f, "batch length {length} is less than a header's"),
            Self::Magic(magic) => write!(f, "record batch magic {magic} is not 2"),
        }
    }
}

impl std::error::Error for HeaderError {}

fn array<const N: usize>(head: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&head[at..at + N]);
    out
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which need not hold the records.
    ///
    /// # Errors
    /// Too few bytes, an impossible length, another magic. Nothing else is checked.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let needed = HEADER_BYTES as u64;
        let short = HeaderError::Truncated {
            needed,
            present: bytes.len() as u64,
        };
        // The magic stands before the length's check: formats 0 and 1 have shorter headers.
        let magic = *bytes.get(16).ok_or(short)?;
        if magic != MAGIC as u8 {
            return Err(HeaderError::Magic(magic as i8));
        }
        let length = i32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if length < (HEADER_BYTES - LOG_OVERHEAD) as i32 {
            return Err(HeaderError::Length(length));
        }
        let head = bytes.first_chunk::<HEADER_BYTES>().ok_or(short)?;
        Ok(Self {
            base_offset: Offset(i64::from_be_bytes(array(head, 0))),
            batch_length: length,
            partition_leader_epoch: LeaderEpoch(i32::from_be_bytes(array(head, 12))),
            crc: u32::from_be_bytes(array(head, 17)),
            attributes: Attributes(i16::from_be_bytes(array(head, 21))),
            last_offset_delta: i32::from_be_bytes(array(head, 23)),
            base_timestamp: i64::from_be_bytes(array(head, 27)),
            max_timestamp: i64::from_be_bytes(array(head, 35)),
            producer_id: ProducerId(i64::from_be_bytes(array(head, 43))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(array(head, 51))),
            base_sequence: i32::from_be_bytes(array(head, 53)),
            record_count: i32::from_be_bytes(array(head, 57)),
        })
    }

    /// The header as stored.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut head = [0; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.base_offset.0.to_be_bytes());
        put(8, &self.batch_length.to_be_bytes());
        put(12, &self.partition_leader_epoch.0.to_be_bytes());
        put(16, &MAGIC.to_be_bytes());
        put(17, &self.crc.to_be_bytes());
        put(21, &self.attributes.0.to_be_bytes());
        put(23, &self.last_offset_delta.to_be_bytes());
        put(27, &self.base_timestamp.to_be_bytes());
        put(35, &self.max_timestamp.to_be_bytes());
        put(43, &self.producer_id.0.to_be_bytes());
        put(51, &self.producer_epoch.0.to_be_bytes());
        put(53, &self.base_sequence.to_be_bytes());
        put(57, &self.record_count.to_be_bytes());
        head
    }

    /// Offset of the last record. Wraps only for a header that no log has assigned.
    #[must_use]
    pub const fn last_offset(&self) -> Offset {
        Offset(
            self.base_offset
                .0
                .wrapping_add(self.last_offset_delta as i64),
        )
    }

    /// Offset after the last record.
    #[must_use]
    pub const fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.wrapping_add(1))
    }

    /// Sequence number of the last record; wraps from 2^31-1 to 0 as Kafka's do. -1 for none.
    #[must_use]
    pub const fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return super::NO_SEQUENCE;
        }
        self.base_sequence.wrapping_add(self.last_offset_delta) & i32::MAX
    }

    /// Whether an idempotent or transactional producer sent it.
    #[must_use]
    pub const fn has_producer(&self) -> bool {
        self.producer_id.0 > ProducerId::NONE.0
    }

    /// Bytes of the whole batch.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        // Not negative: `parse` refuses such a length.
        self.batch_length as usize + LOG_OVERHEAD
    }

    /// CRC-32C of the whole batch as stored, from the batch's own, which covers all but the
    /// first 21 bytes. Costs no pass over the records.
    #[must_use]
    pub fn stored_crc(&self) -> u32 {
        let head = crc::crc32c(&self.encode()[..CRC_START]);
        crc::combine(head, self.crc, (self.size_bytes() - CRC_START) as u64)
    }
}

/// Whether the CRC of the batch at the start of `bytes` fits its bytes.
///
/// # Errors
/// No whole batch stands there.
pub fn verify_crc(bytes: &[u8]) -> Result<bool, HeaderError> {
    let header = BatchHeader::parse(bytes)?;
    let batch = bytes
        .get(..header.size_bytes())
        .ok_or(HeaderError::Truncated {
            needed: header.size_bytes() as u64,
            present: bytes.len() as u64,
        })?;
    Ok(crc::crc32c(&batch[CRC_START..]) == header.crc)
}

/// One batch out of several, a slice of the same memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// Its header.
    pub header: BatchHeader,
    /// The whole batch, header included.
    pub bytes: Bytes,
}

/// The batches of a concatenation, as stored. Ends after the first error.
#[derive(Clone, Debug)]
pub struct BatchIter {
    rest: Bytes,
}

impl BatchIter {
    /// Iterates over `bytes`, which begin with a batch.
    #[must_use]
    pub const fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read yet.
    #[must_use]
    pub const fn rest(&self) -> &Bytes {
        &self.rest
    }
}

impl Iterator for BatchIter {
    type Item = Result<StoredBatch, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = BatchHeader::parse(&self.rest).and_then(|header| {
            let needed = header.size_bytes();
            if needed > self.rest.len() {
                let present = self.rest.len() as u64;
                return Err(HeaderError::Truncated {
                    needed: needed as u64,
                    present,
                });
            }
            Ok(header)
        });
        Some(match parsed {
            Ok(header) => {
                let bytes = self.rest.split_to(header.size_bytes());
                Ok(StoredBatch { header, bytes })
            }
            Err(error) => {
                self.rest = Bytes::new();
                Err(error)
            }
        })
    }
}
