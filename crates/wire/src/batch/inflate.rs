//! Bounded decompression: a window over the records that never grows with what input claims.

use std::fmt;
use std::io::{BufRead, BufReader};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;

use super::header::Compression;
use super::snappy::SnappyBlocks;

/// Bytes of decompressed records held at once for codecs that stream (gzip, zstd).
const WINDOW_BYTES: usize = 32 << 10;

/// Greatest window a zstd frame may ask for, as a power of two: what level 22 uses and what
/// Kafka's own reader takes. Only the part that output fills is ever touched.
const ZSTD_MAX_WINDOW_LOG: u32 = 27;

/// First four bytes of an LZ4 frame.
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// Why compressed records cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InflateError {
    /// The bytes are not what the codec writes.
    Corrupt(Compression),
    /// More bytes come out than allowed.
    TooLarge {
        /// The limit in bytes.
        max: u64,
    },
}

impl fmt::Display for InflateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(codec) => write!(f, "the {} data is corrupt", codec.name()),
            Self::TooLarge { max } => write!(f, "the records inflate to more than {max} bytes"),
        }
    }
}

impl std::error::Error for InflateError {}

/// Bytes read piece by piece.
pub(super) trait Source {
    /// What comes next, at least one byte; empty at the end.
    fn fill(&mut self) -> Result<&[u8], InflateError>;

    /// Steps over the first `count` bytes of what `fill` returned.
    fn consume(&mut self, count: usize);
}

impl Source for &[u8] {
    fn fill(&mut self) -> Result<&[u8], InflateError> {
        Ok(self)
    }

    fn consume(&mut self, count: usize) {
        *self = &self[count..];
    }
}

enum Decoder<'a> {
    Plain(&'a [u8]),
    Gzip(Box<BufReader<MultiGzDecoder<&'a [u8]>>>),
    Snappy(SnappyBlocks<'a>),
    Lz4(Box<FrameDecoder<&'a [u8]>>),
    Zstd(Box<BufReader<zstd::stream::read::Decoder<'static, &'a [u8]>>>),
}

/// The decompressed form of a batch's records, read through a window.
pub(super) struct Inflater<'a> {
    decoder: Decoder<'a>,
    codec: Compression,
    taken: u64,
    max: u64,
}

impl<'a> Inflater<'a> {
    /// Reads `data`, of which at most `max` bytes may come out.
    pub(super) fn new(codec: Compression, data: &'a [u8], max: u64) -> Result<Self, InflateError> {
        let corrupt = InflateError::Corrupt(codec);
        let decoder = match codec {
            Compression::None => Decoder::Plain(data),
            Compression::Gzip => {
                let decoder = MultiGzDecoder::new(data);
                Decoder::Gzip(Box::new(BufReader::with_capacity(WINDOW_BYTES, decoder)))
            }
            Compression::Snappy => Decoder::Snappy(SnappyBlocks::new(data, max)?),
            Compression::Lz4 => {
                if !is_one_lz4_frame(data) {
                    return Err(corrupt);
                }
                Decoder::Lz4(Box::new(FrameDecoder::new(data)))
            }
            Compression::Zstd => {
                let mut decoder =
                    zstd::stream::read::Decoder::with_buffer(data).map_err(|_| corrupt)?;
                decoder
                    .window_log_max(ZSTD_MAX_WINDOW_LOG)
                    .map_err(|_| corrupt)?;
                Decoder::Zstd(Box::new(BufReader::with_capacity(WINDOW_BYTES, decoder)))
            }
        };
        Ok(Self {
            decoder,
            codec,
            taken: 0,
            max,
        })
    }

    /// Bytes that have come out so far.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether no byte is left to come out.
    ///
    /// An error if input is left that gave nothing.
    pub(super) fn finish(&mut self) -> Result<bool, InflateError> {
        if !self.fill()?.is_empty() {
            return Ok(false);
        }
        let unread = match &self.decoder {
            Decoder::Plain(rest) => rest.len(),
            Decoder::Gzip(reader) => reader.get_ref().get_ref().len(),
            Decoder::Snappy(blocks) => blocks.unread(),
            Decoder::Lz4(reader) => reader.get_ref().len(),
            Decoder::Zstd(reader) => reader.get_ref().get_ref().len(),
        };
        if unread == 0 {
            Ok(true)
        } else {
            Err(InflateError::Corrupt(self.codec))
        }
    }
}

impl Source for Inflater<'_> {
    fn fill(&mut self) -> Result<&[u8], InflateError> {
        let codec = self.codec;
        let window = match &mut self.decoder {
            Decoder::Plain(rest) => Ok(*rest),
            Decoder::Gzip(reader) => reader.fill_buf(),
            Decoder::Snappy(blocks) => return limited(blocks.fill()?, self.taken, self.max),
            Decoder::Lz4(reader) => reader.fill_buf(),
            Decoder::Zstd(reader) => reader.fill_buf(),
        };
        // Whatever the decoder says, its input is memory: the data is to blame.
        limited(
            window.map_err(|_| InflateError::Corrupt(codec))?,
            self.taken,
            self.max,
        )
    }

    fn consume(&mut self, count: usize) {
        self.taken += count as u64;
        match &mut self.decoder {
            Decoder::Plain(rest) => *rest = &rest[count..],
            Decoder::Gzip(reader) => reader.consume(count),
            Decoder::Snappy(blocks) => blocks.consume(count),
            Decoder::Lz4(reader) => reader.consume(count),
            Decoder::Zstd(reader) => reader.consume(count),
        }
    }
}

fn limited(window: &[u8], taken: u64, max: u64) -> Result<&[u8], InflateError> {
    if taken + window.len() as u64 > max {
        return Err(InflateError::TooLarge { max });
    }
    Ok(window)
}

/// Whether `data` is one LZ4 frame from its magic to its end mark, by its block lengths alone.
///
/// Java's reader stops at the first end mark and needs one, where other decoders go on or end
/// quietly; a batch that clients read differently is refused.
fn is_one_lz4_frame(data: &[u8]) -> bool {
    const BLOCK_CHECKSUM: u8 = 0x10;
    const CONTENT_SIZE: u8 = 0x08;
    const CONTENT_CHECKSUM: u8 = 0x04;
    const UNCOMPRESSED: u32 = 1 << 31;
    if data.len() < 7 || data[..4] != LZ4_MAGIC {
        return false;
    }
    let flags = data[4];
    let mut at = 7 + if flags & CONTENT_SIZE == 0 { 0 } else { 8 };
    loop {
        let Some(length) = data.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
            return false;
        };
        at += 4;
        let length = u32::from_le_bytes(*length);
        if length == 0 {
            break;
        }
        let checksum = if flags & BLOCK_CHECKSUM == 0 { 0 } else { 4 };
        at += (length & !UNCOMPRESSED) as usize + checksum;
    }
    at + if flags & CONTENT_CHECKSUM == 0 { 0 } else { 4 } == data.len()
}

/// All of `data` decompressed, at most `max` bytes; a slice of it if it is not compressed.
///
/// # Errors
/// Corrupt data, or more than `max` bytes. Memory grows with what comes out, not with a claim.
pub fn inflate(codec: Compression, data: &Bytes, max: u64) -> Result<Bytes, InflateError> {
    if codec == Compression::None {
        return limited(data, 0, max).map(|_| data.clone());
    }
    let mut source = Inflater::new(codec, data, max)?;
    let mut out = Vec::new();
    loop {
        let window = source.fill()?;
        let count = window.len();
        if count == 0 {
            break;
        }
        out.extend_from_slice(window);
        source.consume(count);
    }
    source.finish()?;
    Ok(Bytes::from(out))
}
