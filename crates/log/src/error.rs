//! What can go wrong when appending, and afterwards.

use std::fmt;

use tidemill_wire::ids::{LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId};

/// Why an entry was not accepted. Nothing was assigned or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// This writer does not lead the partition.
    UnknownPartition(PartitionId),
    /// The caller's leader epoch is not the present one.
    WrongEpoch {
        /// The partition.
        partition: PartitionId,
        /// The present leader epoch.
        current: LeaderEpoch,
    },
    /// The sequence number does not follow the producer's last one (K25, K26).
    OutOfOrderSequence {
        /// The partition.
        partition: PartitionId,
        /// The producer.
        producer_id: ProducerId,
        /// The sequence number that was expected.
        expected: i32,
        /// The one that came.
        found: i32,
    },
    /// The producer epoch is older than the producer's newest one (K29).
    InvalidProducerEpoch {
        /// The partition.
        partition: PartitionId,
        /// The producer.
        producer_id: ProducerId,
        /// Its newest epoch.
        current: ProducerEpoch,
        /// The one that came.
        found: ProducerEpoch,
    },
    /// A new log start beyond the high watermark.
    OffsetOutOfRange {
        /// The partition.
        partition: PartitionId,
        /// The offset asked for.
        offset: Offset,
        /// The high watermark.
        high_watermark: Offset,
    },
    /// One part of an entry of several parts is a duplicate, or two parts name one partition.
    Conflict(PartitionId),
    /// The entry has no parts, or a batch without records.
    Empty,
    /// The entry is larger than the limit.
    TooLarge {
        /// Its bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The log is fenced.
    Fenced,
    /// The log is shutting down.
    Closed,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPartition(partition) => {
                write!(f, "partition `{partition}` is not led here")
            }
            Self::WrongEpoch { partition, current } => {
                write!(f, "partition `{partition}` is at leader epoch {current}")
            }
            Self::OutOfOrderSequence {
                partition,
                producer_id,
                expected,
                found,
            } => write!(
                f,
                "producer {producer_id} sent sequence {found} to `{partition}`, expected {expected}"
            ),
            Self::InvalidProducerEpoch {
                partition,
                producer_id,
                current,
                found,
            } => write!(
                f,
                "producer {producer_id} sent epoch {found} to `{partition}`, newest is {current}"
            ),
            Self::OffsetOutOfRange {
                partition,
                offset,
                high_watermark,
            } => write!(
                f,
                "offset {offset} of `{partition}` is beyond the high watermark {high_watermark}"
            ),
            Self::Conflict(partition) => {
                write!(
                    f,
                    "entry conflicts with itself or an earlier one at `{partition}`"
                )
            }
            Self::Empty => f.write_str("entry is empty"),
            Self::TooLarge { bytes, limit } => {
                write!(f, "entry of {bytes} bytes exceeds the limit of {limit}")
            }
            Self::Fenced => f.write_str("log is fenced"),
            Self::Closed => f.write_str("log is closed"),
        }
    }
}

impl std::error::Error for AppendError {}

/// Why an accepted entry will not be acknowledged. Its outcome is unknown: a replay may apply it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFailed {
    /// Somebody sealed this writer.
    Fenced,
    /// The log was closed before the entry was durable.
    Closed,
}

impl fmt::Display for AppendFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fenced => "writer is fenced",
            Self::Closed => "log was closed",
        })
    }
}

impl std::error::Error for AppendFailed {}

/// This writer has been sealed, or is closed: it may answer nothing that promises freshness (R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superseded;

impl fmt::Display for Superseded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("writer has been superseded")
    }
}

impl std::error::Error for Superseded {}

/// The log could not write everything before its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainError {
    /// Somebody sealed this writer.
    Fenced,
    /// The log was closed meanwhile.
    Closed,
    /// Entries are still pending.
    Deadline {
        /// Their bytes.
        pending_bytes: u64,
    },
}

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str("writer is fenced"),
            Self::Closed => f.write_str("log was closed"),
            Self::Deadline { pending_bytes } => {
                write!(f, "deadline passed with {pending_bytes} bytes pending")
            }
        }
    }
}

impl std::error::Error for DrainError {}
