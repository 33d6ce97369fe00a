//! Why a batch or one of its records is refused.

use std::fmt;

use super::inflate::InflateError;

/// What is wrong with one record's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The records end inside it.
    Truncated,
    /// A field reaches beyond the record's length.
    Beyond(&'static str),
    /// A length or count is negative where it may not be.
    Negative(&'static str, i64),
    /// A variable-length integer does not fit its type.
    Varint,
    /// Bytes are left after its last field.
    Stray(u64),
    /// Its offset is not the one after its predecessor's.
    OffsetDelta {
        /// The delta of a dense batch.
        expected: i32,
        /// The delta found.
        found: i32,
    },
    /// Base timestamp and delta exceed 64 bits.
    TimestampOverflow,
    /// The compressed bytes that hold it cannot be read.
    Inflate(InflateError),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the records end inside it"),
            Self::Beyond(field) => write!(f, "its {field} reaches beyond its length"),
            Self::Negative(field, value) => write!(f, "its {field} is {value}"),
            Self::Varint => f.write_str("a variable-length integer is too long"),
            Self::Stray(count) => write!(f, "{count} bytes follow its last field"),
            Self::OffsetDelta { expected, found } => {
                write!(f, "its offset delta is {found}, not {expected}")
            }
            Self::TimestampOverflow => f.write_str("its timestamp exceeds 64 bits"),
            Self::Inflate(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecordError {}

/// Why a produced batch is refused. Each variant has one Kafka error code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// No complete batch, or bytes after it: a partition takes exactly one (K37).
    NotOneBatch {
        /// Bytes received.
        received: u64,
    },
    /// Its length is less than a header's.
    Length(i32),
    /// Another message format than 2.
    Magic(i8),
    /// Its base offset is not 0.
    BaseOffset(i64),
    /// Larger than `max.message.bytes`.
    TooLarge {
        /// Bytes of the batch.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// Its CRC does not fit its bytes.
    Crc {
        /// The CRC it carries.
        stored: u32,
        /// The CRC of its bytes.
        computed: u32,
    },
    /// An unknown codec.
    UnknownCodec(u8),
    /// zstd in a request too old for it (Produce before v7).
    ZstdNotAllowed,
    /// Record count and last offset delta do not fit, or there is no record.
    Count {
        /// Record count in the header.
        records: i32,
        /// Last offset delta in the header.
        last_offset_delta: i32,
    },
    /// A client may not send control records.
    Control,
    /// A client may not set a delete horizon.
    DeleteHorizon,
    /// A producer id with a negative sequence or epoch.
    Producer {
        /// The base sequence.
        base_sequence: i32,
        /// The producer epoch.
        producer_epoch: i16,
    },
    /// Transactional without a producer id.
    NoProducer,
    /// A record that lies about its layout, or too few records.
    Record {
        /// Index in the batch.
        index: i32,
        /// What is wrong.
        error: RecordError,
    },
    /// Bytes after the last record.
    TrailingBytes,
    /// The compressed records cannot be read.
    Inflate(InflateError),
    /// The records inflate to more than allowed.
    InflatedTooLarge {
        /// The limit in bytes.
        max: u64,
    },
    /// The producer claims append time, which only the broker sets.
    LogAppendTime,
    /// Records that are whole and may not be stored all the same: never none, in their order, the
    /// first [`RECORD_ERRORS_MAX`] of them.
    Records(Vec<RefusedRecord>),
}

/// Records named at most when a batch is refused for them: enough for any batch that a person
/// looks at, and a batch of millions of them gets no answer larger than itself.
pub const RECORD_ERRORS_MAX: usize = 1_000;

/// A record that may not be stored (`record_errors` of a Produce response, KIP-467).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Index in the batch.
    pub index: i32,
    /// Why.
    pub why: RecordRefusal,
}

/// Why a whole record may not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRefusal {
    /// Its timestamp is too far from the broker's clock. All in milliseconds since 1970.
    Timestamp {
        /// The record's timestamp.
        timestamp: i64,
        /// The earliest that is taken.
        earliest: i64,
        /// The latest that is taken.
        latest: i64,
    },
    /// It has no key, and the topic is compacted.
    MissingKey,
}

impl fmt::Display for RecordRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timestamp {
                timestamp,
                earliest,
                latest,
            } => write!(
                f,
                "timestamp {timestamp} is not within {earliest} and {latest}"
            ),
            Self::MissingKey => f.write_str("a compacted topic takes no record without a key"),
        }
    }
}

impl BatchError {
    /// The error code of the Kafka protocol.
    #[must_use]
    pub fn kafka_code(&self) -> i16 {
        match self {
            // CORRUPT_MESSAGE
            Self::Length(_) | Self::Crc { .. } => 2,
            // MESSAGE_TOO_LARGE: clients split the batch and try again
            Self::TooLarge { .. } | Self::InflatedTooLarge { .. } => 10,
            // INVALID_TIMESTAMP
            Self::LogAppendTime => 32,
            Self::Records(refused) if refused.iter().any(RefusedRecord::is_untimely) => 32,
            // UNSUPPORTED_COMPRESSION_TYPE
            Self::UnknownCodec(_) | Self::ZstdNotAllowed => 76,
            // INVALID_RECORD
            Self::NotOneBatch { .. }
            | Self::Magic(_)
            | Self::BaseOffset(_)
            | Self::Count { .. }
            | Self::Control
            | Self::DeleteHorizon
            | Self::Producer { .. }
            | Self::NoProducer
            | Self::Record { .. }
            | Self::TrailingBytes
            | Self::Inflate(_)
            | Self::Records(_) => 87,
        }
    }

    /// The records to blame, for `record_errors` of a Produce response: as in Kafka none if the
    /// batch cannot be read.
    #[must_use]
    pub fn refused_records(&self) -> &[RefusedRecord] {
        match self {
            Self::Records(refused) => refused,
            _ => &[],
        }
    }
}

impl RefusedRecord {
    const fn is_untimely(&self) -> bool {
        matches!(self.why, RecordRefusal::Timestamp { .. })
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOneBatch { received } => {
                write!(
                    f,
                    "the {received} bytes of records are not exactly one batch"
                )
            }
            Self::Length(length) => write!(f, "batch length {length} is less than a header's"),
            Self::Magic(magic) => write!(f, "record batch magic {magic} is not 2"),
            Self::BaseOffset(offset) => write!(f, "base offset {offset} is not 0"),
            Self::TooLarge { size, max } => {
                write!(
                    f,
                    "record batch of {size} bytes exceeds `max.message.bytes` {max}"
                )
            }
            Self::Crc { stored, computed } => {
                write!(
                    f,
                    "record batch carries crc {stored:#010x}, its bytes {computed:#010x}"
                )
            }
            Self::UnknownCodec(id) => write!(f, "unknown compression type {id}"),
            Self::ZstdNotAllowed => f.write_str("zstd needs Produce version 7 or later"),
            Self::Count {
                records,
                last_offset_delta,
            } => {
                write!(
                    f,
                    "{records} records do not fit a last offset delta of {last_offset_delta}"
                )
            }
            Self::Control => f.write_str("clients may not write control records"),
            Self::DeleteHorizon => f.write_str("clients may not set a delete horizon"),
            Self::Producer {
                base_sequence,
                producer_epoch,
            } => {
                write!(
                    f,
                    "producer with sequence {base_sequence} and epoch {producer_epoch}"
                )
            }
            Self::NoProducer => f.write_str("transactional record batch without a producer id"),
            Self::Record { index, error } => write!(f, "record {index}: {error}"),
            Self::TrailingBytes => f.write_str("bytes follow the last record"),
            Self::Inflate(error) => error.fmt(f),
            Self::InflatedTooLarge { max } => {
                write!(f, "the records inflate to more than {max} bytes")
            }
            Self::LogAppendTime => f.write_str("producers may not set the log append time"),
            Self::Records(refused) => {
                if let Some(RefusedRecord { index, why }) = refused.first() {
                    write!(f, "record {index}: {why}")?;
                }
                match refused.len() {
                    0 | 1 => Ok(()),
                    RECORD_ERRORS_MAX => write!(f, "; {RECORD_ERRORS_MAX} or more refused"),
                    count => write!(f, "; {count} records refused"),
                }
            }
        }
    }
}

impl std::error::Error for BatchError {}
