//! Record batches of magic 2: header, validation, compression, records, building.
//!
//! The bytes a producer sent are kept: validation walks them without building records, and only
//! the 61 byte header is ever made anew. Nothing here allocates a size that the input claims.

mod builder;
mod codec;
mod control;
pub mod crc;
mod error;
pub mod fuzz;
mod header;
mod inflate;
mod pieces;
mod recompress;
mod records;
mod search;
mod snappy;
mod validate;
mod varint;
mod walk;

pub use builder::{BatchBuilder, BuildError, NewRecord};
pub use codec::{CompressError, compress};
pub use control::{ControlError, EndTxnMarker};
pub use error::{BatchError, RECORD_ERRORS_MAX, RecordError, RecordRefusal, RefusedRecord};
pub use header::{
    Attributes, BatchHeader, BatchIter, Compression, HEADER_BYTES, HeaderError, MAGIC, StoredBatch,
    TimestampType, verify_crc,
};
pub use inflate::{InflateError, inflate};
pub use pieces::{Hashed, Hasher, PIECE_BYTES, PIECES_FROM, Pieces};
pub use recompress::{RecompressError, RecompressOptions, recompress};
pub use records::{Record, RecordHeader, Records, RecordsError};
pub use search::{TimestampHit, first_at_or_after, max_timestamp_record};
pub use validate::{ValidBatch, ValidateOptions, validate, validate_hashed};

/// Kafka's "no timestamp".
pub const NO_TIMESTAMP: i64 = -1;

/// Kafka's "no sequence": the base sequence of batches without a producer id and of markers.
pub const NO_SEQUENCE: i32 = -1;

/// Most bytes that the records of one batch may inflate to, if nothing else is asked for.
///
/// Validation streams, so this bounds work; the record reader holds as much. 128 MiB is more
/// than a hundred times the default `max.message.bytes`, which no real data reaches.
pub const MAX_INFLATED_BYTES: u64 = 128 << 20;
