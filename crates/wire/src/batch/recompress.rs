//! Recompression for topics whose `compression.type` is not `producer` (K40).

use std::fmt;

use bytes::Bytes;

use super::builder::join;
use super::codec::{CompressError, compress};
use super::header::Compression;
use super::inflate::{InflateError, inflate};
use super::records::{RecordsError, split};

/// Why a batch could not be recompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecompressError {
    /// No whole batch, or an unknown codec.
    Batch(RecordsError),
    /// The records cannot be decompressed within the bound.
    Inflate(InflateError),
    /// The codec fails.
    Compress(CompressError),
    /// The batch would exceed 2^31-1 bytes.
    TooLong,
}

impl fmt::Display for RecompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch(error) => error.fmt(f),
            Self::Inflate(error) => error.fmt(f),
            Self::Compress(error) => error.fmt(f),
            Self::TooLong => f.write_str("recompressed batch exceeds 2147483647 bytes"),
        }
    }
}

impl std::error::Error for RecompressError {}

/// The batch at the start of `batch` with its records in another codec; itself if it has that
/// codec already. Attributes and CRC follow, all else in the header stays.
///
/// # Errors
/// The batch cannot be read, or its records not be compressed.
pub fn recompress(
    batch: &Bytes,
    codec: Compression,
    level: Option<i32>,
    max_inflated: u64,
) -> Result<Bytes, RecompressError> {
    let (mut header, records) = split(batch).map_err(RecompressError::Batch)?;
    let unknown = RecordsError::UnknownCodec(header.attributes.codec_id());
    let present = header
        .attributes
        .compression()
        .ok_or(RecompressError::Batch(unknown))?;
    if present == codec {
        return Ok(batch.slice(..header.size_bytes()));
    }
    let plain = inflate(present, &batch.slice_ref(records), max_inflated)
        .map_err(RecompressError::Inflate)?;
    let compressed = compress(codec, level, &plain).map_err(RecompressError::Compress)?;
    header.attributes = header.attributes.with_compression(codec);
    join(header, &compressed).ok_or(RecompressError::TooLong)
}
