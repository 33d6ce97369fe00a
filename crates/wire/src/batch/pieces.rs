//! CRC-32C of a large batch's records, piece by piece.
//!
//! A batch is hashed once, when it is checked. Whoever cuts it later gets the checksums of the
//! parts from those of the pieces, and hashes no more than what lies between a cut and the next
//! piece.

use std::sync::Arc;

use super::crc;

/// Bytes of a piece: what the hash takes in one stride of three lanes.
pub const PIECE_BYTES: usize = 24 << 10;

/// Records of fewer bytes have no pieces: nobody cuts them.
pub const PIECES_FROM: usize = 128 << 10;

/// The checksums of the whole pieces of some records, from their start on; of none if they are few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces(Option<Arc<[u32]>>);

impl Pieces {
    /// Hashes records; gives the pieces, and the checksum of all.
    #[must_use]
    pub fn of(records: &[u8]) -> (Self, u32) {
        if records.len() < PIECES_FROM {
            return (Self::default(), crc::crc32c(records));
        }
        let pieces = records.chunks_exact(PIECE_BYTES).map(crc::crc32c);
        let pieces = Self(Some(pieces.collect()));
        let crc = pieces.crc(records, 0);
        (pieces, crc)
    }

    /// The checksum of `part`, which starts at byte `start` of the records.
    #[must_use]
    pub fn crc(&self, part: &[u8], start: usize) -> u32 {
        let known = self.0.as_deref().unwrap_or_default();
        let whole = start.div_ceil(PIECE_BYTES)..(start + part.len()) / PIECE_BYTES;
        let Some(pieces) = known.get(whole.clone()).filter(|pieces| !pieces.is_empty()) else {
            return crc::crc32c(part);
        };
        let (head, rest) = part.split_at(whole.start * PIECE_BYTES - start);
        let tail = &rest[pieces.len() * PIECE_BYTES..];
        let join = |before, piece: &u32| crc::combine(before, *piece, PIECE_BYTES as u64);
        let before = pieces.iter().fold(crc::crc32c(head), join);
        crc::combine(before, crc::crc32c(tail), tail.len() as u64)
    }
}
