//! Compression of a batch's records.

use std::fmt;
use std::io::Write;

use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use super::header::Compression;
use super::snappy;

/// zstd's default level, in Kafka too.
const ZSTD_DEFAULT_LEVEL: i32 = 3;

/// Why records could not be compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressError {
    codec: Compression,
    reason: String,
}

impl fmt::Display for CompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} compression failed: {}",
            self.codec.name(),
            self.reason
        )
    }
}

impl std::error::Error for CompressError {}

/// `data` compressed as Java's client does it: one gzip member, Snappy in Xerial's framing, one
/// LZ4 frame of independent 64 KiB blocks, one zstd frame.
///
/// `level` is that of gzip (1-9) or zstd (-131072-22); none is the codec's default. The others
/// have no level here.
///
/// # Errors
/// The codec refuses, for example more than 4 GiB for Snappy.
pub fn compress(
    codec: Compression,
    level: Option<i32>,
    data: &[u8],
) -> Result<Vec<u8>, CompressError> {
    let failed = |error: &dyn fmt::Display| CompressError {
        codec,
        reason: error.to_string(),
    };
    match codec {
        Compression::None => Ok(data.to_vec()),
        Compression::Gzip => {
            let level = level.map_or(flate2::Compression::default(), |level| {
                flate2::Compression::new(level.clamp(0, 9) as u32)
            });
            let mut encoder = GzEncoder::new(Vec::new(), level);
            encoder.write_all(data).map_err(|error| failed(&error))?;
            encoder.finish().map_err(|error| failed(&error))
        }
        Compression::Snappy => snappy::compress_xerial(data).map_err(|error| failed(&error)),
        Compression::Lz4 => {
            let info = FrameInfo::new()
                .block_size(BlockSize::Max64KB)
                .block_mode(BlockMode::Independent);
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(data).map_err(|error| failed(&error))?;
            encoder.finish().map_err(|error| failed(&error))
        }
        Compression::Zstd => zstd::stream::encode_all(data, level.unwrap_or(ZSTD_DEFAULT_LEVEL))
            .map_err(|error| failed(&error)),
    }
}
