//! Compression of a batch's records.

use std::fmt;
use std::io::Write;

use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use super::header::Compression;
use super::snappy::XerialWriter;

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

/// Compresses what is written to it, as Java's client does it: one gzip member, Snappy in
/// Xerial's framing, one LZ4 frame of independent 64 KiB blocks, one zstd frame.
pub(super) struct Compressor {
    codec: Compression,
    encoder: Encoder,
}

enum Encoder {
    None(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Snappy(XerialWriter),
    Lz4(Box<FrameEncoder<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl Compressor {
    pub(super) fn new(codec: Compression, level: Option<i32>) -> Result<Self, CompressError> {
        let encoder = match codec {
            Compression::None => Encoder::None(Vec::new()),
            Compression::Gzip => {
                let level = level.map_or(flate2::Compression::default(), |level| {
                    flate2::Compression::new(level.clamp(0, 9) as u32)
                });
                Encoder::Gzip(Box::new(GzEncoder::new(Vec::new(), level)))
            }
            Compression::Snappy => Encoder::Snappy(XerialWriter::default()),
            Compression::Lz4 => {
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max64KB)
                    .block_mode(BlockMode::Independent);
                Encoder::Lz4(Box::new(FrameEncoder::with_frame_info(info, Vec::new())))
            }
            Compression::Zstd => {
                let level = level.unwrap_or(ZSTD_DEFAULT_LEVEL);
                let encoder = zstd::stream::write::Encoder::new(Vec::new(), level);
                Encoder::Zstd(Box::new(encoder.map_err(|error| failed(codec, &error))?))
            }
        };
        Ok(Self { codec, encoder })
    }

    pub(super) fn write(&mut self, data: &[u8]) -> Result<(), CompressError> {
        let codec = self.codec;
        let written = match &mut self.encoder {
            Encoder::None(out) => out.write_all(data),
            Encoder::Gzip(encoder) => encoder.write_all(data),
            Encoder::Snappy(encoder) => {
                return encoder.write(data).map_err(|error| failed(codec, &error));
            }
            Encoder::Lz4(encoder) => encoder.write_all(data),
            Encoder::Zstd(encoder) => encoder.write_all(data),
        };
        written.map_err(|error| failed(codec, &error))
    }

    /// Compressed bytes so far; what the codec still holds back is not counted.
    pub(super) fn len(&self) -> usize {
        match &self.encoder {
            Encoder::None(out) => out.len(),
            Encoder::Gzip(encoder) => encoder.get_ref().len(),
            Encoder::Snappy(encoder) => encoder.len(),
            Encoder::Lz4(encoder) => encoder.get_ref().len(),
            Encoder::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, CompressError> {
        let codec = self.codec;
        match self.encoder {
            Encoder::None(out) => Ok(out),
            Encoder::Gzip(encoder) => encoder.finish().map_err(|error| failed(codec, &error)),
            Encoder::Snappy(encoder) => encoder.finish().map_err(|error| failed(codec, &error)),
            Encoder::Lz4(encoder) => encoder.finish().map_err(|error| failed(codec, &error)),
            Encoder::Zstd(encoder) => encoder.finish().map_err(|error| failed(codec, &error)),
        }
    }
}

fn failed(codec: Compression, error: &dyn fmt::Display) -> CompressError {
    CompressError {
        codec,
        reason: error.to_string(),
    }
}

/// `data` compressed as Java's client does it: one gzip member, Snappy in Xerial's framing, one
/// LZ4 frame of independent 64 KiB blocks, one zstd frame.
///
/// `level` is that of gzip (1-9) or zstd (-131072-22); none is the codec's default. The others
/// have no level here.
///
/// # Errors
/// The codec refuses; none does so for what fits in memory.
pub fn compress(
    codec: Compression,
    level: Option<i32>,
    data: &[u8],
) -> Result<Vec<u8>, CompressError> {
    let mut compressor = Compressor::new(codec, level)?;
    compressor.write(data)?;
    compressor.finish()
}
