//! CRC-32C of a large batch's records, piece by piece.
//!
//! A batch is hashed once, when it is checked; a large one already while it is read: its bytes have
//! just been touched, and the next ones are still to come. Whoever cuts it later gets the checksums
//! of the parts from those of the pieces, and hashes no more than what lies between a cut and the
//! next piece.

use std::sync::Arc;

use bytes::Bytes;

use super::crc;

/// Bytes of a piece: what the hash takes in one stride of three lanes.
pub const PIECE_BYTES: usize = 24 << 10;

/// Records of fewer bytes have no pieces: nobody cuts them.
pub const PIECES_FROM: usize = 128 << 10;

/// The checksums of the whole pieces of a buffer, from its start on, taken while it was filled; of
/// none by default. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Hashed(Option<Arc<(Bytes, Vec<u32>)>>);

/// Hashes a buffer that grows.
#[derive(Debug, Default)]
pub struct Hasher(Vec<u32>);

/// The checksums of the whole pieces of some records; of none if they are few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes before the first piece, fewer than in a piece.
    skipped: usize,
    known: Option<Arc<[u32]>>,
}

impl Hasher {
    /// Hashes the pieces that are whole by now. `buffer` starts with what was given before.
    pub fn update(&mut self, buffer: &[u8]) {
        let before = self.0.len() * PIECE_BYTES;
        let new = buffer.get(before..).unwrap_or_default();
        self.0
            .extend(new.chunks_exact(PIECE_BYTES).map(crc::crc32c));
    }

    /// What was hashed of `buffer`, which is whole; begins anew.
    pub fn take(&mut self, buffer: &Bytes) -> Hashed {
        let pieces = std::mem::take(&mut self.0);
        Hashed((!pieces.is_empty()).then(|| Arc::new((buffer.clone(), pieces))))
    }
}

impl Hashed {
    /// The pieces of `part`, if it lies in the buffer.
    fn pieces(&self, part: &[u8]) -> Option<Pieces> {
        let (buffer, pieces) = self.0.as_deref()?;
        let start = part.as_ptr().addr().checked_sub(buffer.as_ptr().addr())?;
        let end = start + part.len();
        if end > buffer.len() {
            return None;
        }
        let first = start.div_ceil(PIECE_BYTES);
        let known = pieces.get(first..end / PIECE_BYTES)?;
        Some(Pieces {
            skipped: first * PIECE_BYTES - start,
            known: Some(known.into()),
        })
    }
}

impl Pieces {
    /// Hashes records, as far as they are not; gives the pieces, and the checksum of all.
    #[must_use]
    pub fn of(records: &[u8], hashed: &Hashed) -> (Self, u32) {
        if records.len() < PIECES_FROM {
            return (Self::default(), crc::crc32c(records));
        }
        let pieces = hashed.pieces(records).unwrap_or_else(|| {
            let known = records.chunks_exact(PIECE_BYTES).map(crc::crc32c);
            Self {
                skipped: 0,
                known: Some(known.collect()),
            }
        });
        let crc = pieces.crc(records, 0);
        (pieces, crc)
    }

    /// The checksum of `part`, which starts at byte `start` of the records.
    #[must_use]
    pub fn crc(&self, part: &[u8], start: usize) -> u32 {
        let known = self.known.as_deref().unwrap_or_default();
        let end = (start + part.len()).saturating_sub(self.skipped);
        let whole = start.saturating_sub(self.skipped).div_ceil(PIECE_BYTES)..end / PIECE_BYTES;
        let Some(pieces) = known.get(whole.clone()).filter(|pieces| !pieces.is_empty()) else {
            return crc::crc32c(part);
        };
        let (head, rest) = part.split_at(self.skipped + whole.start * PIECE_BYTES - start);
        let tail = &rest[pieces.len() * PIECE_BYTES..];
        let join = |before, piece: &u32| crc::combine(before, *piece, PIECE_BYTES as u64);
        let before = pieces.iter().fold(crc::crc32c(head), join);
        crc::combine(before, crc::crc32c(tail), tail.len() as u64)
    }
}
