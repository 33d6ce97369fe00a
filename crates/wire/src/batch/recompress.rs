//! Recompression for topics whose `compression.type` is not `producer` (K40).

use std::fmt;

use super::builder::join;
use super::codec::{CompressError, Compressor};
use super::header::{Compression, HEADER_BYTES};
use super::inflate::{InflateError, Inflater, Source};
use super::pieces::Pieces;
use super::validate::ValidBatch;

/// How a batch is to be stored.
#[derive(Clone, Copy, Debug)]
pub struct RecompressOptions {
    /// The codec.
    pub codec: Compression,
    /// Its level, see [`super::compress`].
    pub level: Option<i32>,
    /// Most bytes that the records may inflate to.
    pub max_inflated_bytes: u64,
    /// `max.message.bytes`: most bytes of the batch in the new codec.
    pub max_message_bytes: u64,
}

/// Why a batch could not be recompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecompressError {
    /// An unknown codec.
    UnknownCodec(u8),
    /// The records cannot be decompressed within the bound.
    Inflate(InflateError),
    /// The codec fails.
    Compress(CompressError),
    /// The batch is larger than allowed in the new codec.
    TooLarge {
        /// The limit in bytes.
        max: u64,
    },
}

impl RecompressError {
    /// The error code of the Kafka protocol.
    #[must_use]
    pub const fn kafka_code(&self) -> i16 {
        match self {
            // UNSUPPORTED_COMPRESSION_TYPE
            Self::UnknownCodec(_) => 76,
            // MESSAGE_TOO_LARGE
            Self::TooLarge { .. } | Self::Inflate(InflateError::TooLarge { .. }) => 10,
            // INVALID_RECORD
            Self::Inflate(InflateError::Corrupt(_)) => 87,
            // UNKNOWN_SERVER_ERROR
            Self::Compress(_) => -1,
        }
    }
}

impl fmt::Display for RecompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCodec(id) => write!(f, "unknown compression type {id}"),
            Self::Inflate(error) => error.fmt(f),
            Self::Compress(error) => error.fmt(f),
            Self::TooLarge { max } => {
                write!(
                    f,
                    "recompressed record batch exceeds `max.message.bytes` {max}"
                )
            }
        }
    }
}

impl std::error::Error for RecompressError {}

/// The batch with its records in another codec; itself if it has that codec already. Attributes
/// and CRC follow, all else in the header stays.
///
/// Works through a window: the decompressed records are never held as a whole.
///
/// # Errors
/// The records cannot be read, or are too large in the new codec.
pub fn recompress(
    batch: ValidBatch,
    options: &RecompressOptions,
) -> Result<ValidBatch, RecompressError> {
    let attributes = batch.header.attributes;
    let present = attributes
        .compression()
        .ok_or(RecompressError::UnknownCodec(attributes.codec_id()))?;
    if present == options.codec {
        return Ok(batch);
    }
    let records = transcode(present, &batch.records(), options)?;
    let mut header = batch.header;
    header.attributes = attributes.with_compression(options.codec);
    let too_large = RecompressError::TooLarge {
        max: options.max_message_bytes,
    };
    let (header, bytes) = join(header, &records).ok_or(too_large)?;
    Ok(ValidBatch {
        header,
        bytes,
        pieces: Pieces::default(),
        ..batch
    })
}

fn transcode(
    present: Compression,
    records: &[u8],
    options: &RecompressOptions,
) -> Result<Vec<u8>, RecompressError> {
    let max = options.max_message_bytes;
    let fits = |len: usize| {
        let size = (HEADER_BYTES + len) as u64;
        if size > max {
            Err(RecompressError::TooLarge { max })
        } else {
            Ok(())
        }
    };
    let mut source = Inflater::new(present, records, options.max_inflated_bytes)
        .map_err(RecompressError::Inflate)?;
    let mut target =
        Compressor::new(options.codec, options.level).map_err(RecompressError::Compress)?;
    loop {
        let window = source.fill().map_err(RecompressError::Inflate)?;
        let count = window.len();
        if count == 0 {
            break;
        }
        target.write(window).map_err(RecompressError::Compress)?;
        source.consume(count);
        fits(target.len())?;
    }
    source.finish().map_err(RecompressError::Inflate)?;
    let records = target.finish().map_err(RecompressError::Compress)?;
    fits(records.len())?;
    Ok(records)
}
