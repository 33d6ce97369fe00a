//! Snappy, raw and in Xerial's framing (what Java's SnappyOutputStream writes).

use super::header::Compression;
use super::inflate::InflateError;

/// The first bytes of Xerial's framing; a version and a compatible version (int32) follow.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];

/// Bytes in front of Xerial's first block.
const XERIAL_HEADER_BYTES: usize = 16;

/// Bytes of input in one block of Xerial's framing, Java's default.
const XERIAL_BLOCK_BYTES: usize = 32 << 10;

/// No snappy data inflates further: its densest element makes 64 bytes of 3. A claim beyond it
/// is a lie, so the output buffer is bounded by the bytes that were really received.
const MAX_RATIO: u64 = 22;

const CORRUPT: InflateError = InflateError::Corrupt(Compression::Snappy);

/// Decompresses block by block.
pub(super) struct SnappyBlocks<'a> {
    rest: &'a [u8],
    xerial: bool,
    block: Vec<u8>,
    read: usize,
    inflated: u64,
    max: u64,
}

impl<'a> SnappyBlocks<'a> {
    pub(super) fn new(data: &'a [u8], max: u64) -> Result<Self, InflateError> {
        let xerial = data.starts_with(&XERIAL_MAGIC);
        let rest = if xerial {
            data.get(XERIAL_HEADER_BYTES..).ok_or(CORRUPT)?
        } else {
            data
        };
        Ok(Self {
            rest,
            xerial,
            block: Vec::new(),
            read: 0,
            inflated: 0,
            max,
        })
    }

    pub(super) const fn unread(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn fill(&mut self) -> Result<&[u8], InflateError> {
        while self.read == self.block.len() && !self.rest.is_empty() {
            let compressed = self.take_block()?;
            self.inflate(compressed)?;
        }
        Ok(&self.block[self.read..])
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.read += count;
    }

    fn take_block(&mut self) -> Result<&'a [u8], InflateError> {
        if !self.xerial {
            return Ok(std::mem::take(&mut self.rest));
        }
        let (length, rest) = self.rest.split_first_chunk::<4>().ok_or(CORRUPT)?;
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 {
            return Err(CORRUPT);
        }
        let (block, rest) = rest.split_at_checked(length).ok_or(CORRUPT)?;
        self.rest = rest;
        Ok(block)
    }

    fn inflate(&mut self, compressed: &[u8]) -> Result<(), InflateError> {
        let length = snap::raw::decompress_len(compressed).map_err(|_| CORRUPT)?;
        if length as u64 > compressed.len() as u64 * MAX_RATIO {
            return Err(CORRUPT);
        }
        self.inflated += length as u64;
        if self.inflated > self.max {
            return Err(InflateError::TooLarge { max: self.max });
        }
        self.read = 0;
        self.block.resize(length, 0);
        let written = snap::raw::Decoder::new()
            .decompress(compressed, &mut self.block)
            .map_err(|_| CORRUPT)?;
        self.block.truncate(written);
        Ok(())
    }
}

/// Compresses in Xerial's framing, block for block like Java's client.
#[derive(Default)]
pub(super) struct XerialWriter {
    out: Vec<u8>,
    /// The block that is not full yet.
    block: Vec<u8>,
}

impl XerialWriter {
    pub(super) fn write(&mut self, mut data: &[u8]) -> Result<(), snap::Error> {
        while !data.is_empty() {
            let room = XERIAL_BLOCK_BYTES - self.block.len();
            let (now, later) = data.split_at(room.min(data.len()));
            self.block.extend_from_slice(now);
            data = later;
            if self.block.len() == XERIAL_BLOCK_BYTES {
                self.end_block()?;
            }
        }
        Ok(())
    }

    pub(super) const fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, snap::Error> {
        self.end_block()?;
        Ok(self.out)
    }

    fn end_block(&mut self) -> Result<(), snap::Error> {
        const VERSION: [u8; 4] = 1_i32.to_be_bytes();
        if self.out.is_empty() {
            self.out.extend_from_slice(&XERIAL_MAGIC);
            self.out.extend_from_slice(&VERSION);
            self.out.extend_from_slice(&VERSION);
        }
        if !self.block.is_empty() {
            let compressed = snap::raw::Encoder::new().compress_vec(&self.block)?;
            self.out
                .extend_from_slice(&(compressed.len() as u32).to_be_bytes());
            self.out.extend_from_slice(&compressed);
            self.block.clear();
        }
        Ok(())
    }
}
