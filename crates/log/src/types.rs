//! What the parts of the log hand to each other.

use std::ops::Range;

use bytes::Bytes;
use tidemill_wire::ids::{LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId, WriterId};

/// Highest minus lowest undecided WAL number stays below this (W of the design); a dependency
/// bitmap has W - 1 bits. Part of the format.
pub const WAL_SPAN: u64 = 128;
/// At most this many WAL objects are in flight.
pub const WAL_IN_FLIGHT_MAX: usize = 32;

/// One number of one writer's WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalPosition {
    /// The writer.
    pub writer: WriterId,
    /// The number, from 0.
    pub number: u64,
}

/// Where a stored batch's bytes lie: byte ranges of WAL objects, in order (several for an entry cut
/// into fragments).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalSpan {
    /// The WAL object.
    pub position: WalPosition,
    /// Bytes of the whole object (header and directory included).
    pub range: Range<u64>,
}

/// A committed batch that is in no extent yet.
#[derive(Clone, Debug)]
pub struct TailBatch {
    /// First offset.
    pub base_offset: Offset,
    /// Last offset (inclusive).
    pub last_offset: Offset,
    /// The leader's epoch when it was appended.
    pub leader_epoch: LeaderEpoch,
    /// Largest record timestamp, Unix milliseconds.
    pub max_timestamp: i64,
    /// Length in bytes as stored.
    pub size_bytes: u32,
    /// CRC32C of the batch as stored, all bytes.
    pub crc: u32,
    /// Kafka's batch attributes (compression, timestamp type, transactional, control).
    pub attributes: i16,
    /// Producer, or -1.
    pub producer_id: ProducerId,
    /// When it was committed, Unix milliseconds of the writer's clock; for the age of a roll.
    pub committed_ms: i64,
    /// Where it lies in the WAL.
    pub spans: Vec<WalSpan>,
    /// The bytes, while they are kept in memory, in order.
    pub data: Option<BatchSlices>,
}

/// A stored batch's bytes: the patched head and the rest as received, or one slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSlices {
    /// First slice.
    pub head: Bytes,
    /// Second slice, may be empty.
    pub rest: Bytes,
}

impl BatchSlices {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.rest.len()
    }

    /// True if there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Names a data object: `<hh>/data/<writer>/<seq>`, `hh` being two hex digits of a hash of the
/// writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataObjectId {
    /// Who wrote it.
    pub writer: WriterId,
    /// Unique within the writer, never used twice, not even by a failed try.
    pub seq: u64,
}

/// A run of one partition's batches inside a segment or set object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First offset.
    pub base_offset: Offset,
    /// One past the last offset; offsets in between that no batch holds are declared gaps.
    pub end_offset: Offset,
    /// The object.
    pub object: DataObjectId,
    /// Length of the whole object in bytes.
    pub object_len: u64,
    /// Bytes of the batches within the object.
    pub range: Range<u64>,
    /// Bytes of this run's footer (sparse offset and time index, aborted transactions) in the
    /// object.
    pub footer: Range<u64>,
    /// Largest record timestamp in the run, Unix milliseconds.
    pub max_timestamp: i64,
    /// The offset of the batch that holds `max_timestamp` (its base offset).
    pub max_timestamp_offset: Offset,
    /// CRC32C of the footer.
    pub footer_crc: u32,
}

/// Where an immutable extent list of one partition lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestRef {
    /// The manifest object.
    pub object: DataObjectId,
    /// Bytes of this partition's list within it.
    pub range: Range<u64>,
    /// CRC32C of these bytes.
    pub crc: u32,
    /// Number of extents in it.
    pub extents: u32,
    /// First offset it covers.
    pub base_offset: Offset,
    /// One past the last offset it covers.
    pub end_offset: Offset,
    /// Sum of the extents' bytes.
    pub size_bytes: u64,
    /// Largest record timestamp in the extents, Unix milliseconds.
    pub max_timestamp: i64,
}

/// The last batches of one producer in one partition (K25: five).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its newest epoch.
    pub epoch: ProducerEpoch,
    /// When it last wrote, Unix milliseconds.
    pub last_timestamp: i64,
    /// Oldest first, at most five.
    pub batches: Vec<ProducerBatch>,
    /// First offset of its open transaction, or none.
    pub open_transaction: Option<Offset>,
    /// Coordinator epoch of its last marker, or -1.
    pub coordinator_epoch: i32,
}

/// One batch a producer wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerBatch {
    /// First sequence number.
    pub first_sequence: i32,
    /// Last sequence number (inclusive; wraps at 2^31-1 to 0).
    pub last_sequence: i32,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Largest timestamp.
    pub timestamp: i64,
}

/// A partition's committed state, as checkpoints hold it. A replay on top of it skips the effects
/// of entries below `next_offset`, but still finds in the WAL every batch at or above the extents'
/// end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionHead {
    /// The partition.
    pub partition: PartitionId,
    /// The present leader's epoch.
    pub leader_epoch: LeaderEpoch,
    /// High watermark: one past the last committed offset.
    pub next_offset: Offset,
    /// Log start offset.
    pub log_start: Offset,
    /// Start offset of each epoch that has data, ascending (OffsetForLeaderEpoch).
    pub epoch_starts: Vec<(LeaderEpoch, Offset)>,
    /// Producers, ordered by id.
    pub producers: Vec<ProducerState>,
}
