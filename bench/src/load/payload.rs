//! What is sent.

use bytes::Bytes;
use tidemill_runtime::Entropy;
use tidemill_wire::batch::{BatchBuilder, Compression, NewRecord};

use crate::error::BenchError;

/// Bytes a stamp takes at the start of a value.
pub const STAMP_BYTES: usize = 24;
const MAGIC: u32 = 0x7469_6465;

/// Sizes of records and batches.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a record's value; it has no key.
    pub record_bytes: usize,
    /// Records in a batch.
    pub batch_records: usize,
}

/// Who sent a record and when it was to be sent; the start of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of its producer.
    pub producer: u32,
    /// Its number at that producer.
    pub sequence: u64,
    /// Intended time, nanoseconds since the run's origin.
    pub intended_ns: u64,
}

impl Stamp {
    /// Writes the stamp over the start of `value`, which must be [`STAMP_BYTES`] long at least.
    pub fn write(&self, value: &mut [u8]) {
        value[..4].copy_from_slice(&MAGIC.to_le_bytes());
        value[4..8].copy_from_slice(&self.producer.to_le_bytes());
        value[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        value[16..STAMP_BYTES].copy_from_slice(&self.intended_ns.to_le_bytes());
    }

    /// The stamp at the start of `value`, if there is one.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let (head, _) = value.split_at_checked(STAMP_BYTES)?;
        let number = |from: usize| {
            let bytes: Option<[u8; 8]> = head.get(from..from + 8)?.try_into().ok();
            bytes.map(u64::from_le_bytes)
        };
        let first = number(0)?;
        if first as u32 != MAGIC {
            return None;
        }
        Some(Self {
            producer: (first >> 32) as u32,
            sequence: number(8)?,
            intended_ns: number(16)?,
        })
    }
}

/// Text-like bytes: what compresses to about three quarters, as base64 does.
#[must_use]
pub fn filler(bytes: usize, entropy: &Entropy) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(bytes);
    while out.len() < bytes {
        let number = entropy.next_u64();
        let letters = (0..10).map(|at| ALPHABET[(number >> (at * 6) & 63) as usize]);
        out.extend(letters.take(bytes - out.len()));
    }
    out
}

/// A batch of the given values.
///
/// # Errors
/// They are too long for one.
pub fn batch<'a>(
    values: impl IntoIterator<Item = &'a [u8]>,
    now_ms: i64,
) -> Result<Bytes, BenchError> {
    let failed = |error: tidemill_wire::batch::BuildError| {
        BenchError::Failed(format!("a batch cannot be built: {error}"))
    };
    let mut builder = BatchBuilder::new(Compression::None);
    for value in values {
        let record = NewRecord {
            timestamp: now_ms,
            key: None,
            value: Some(value),
            headers: &[],
        };
        builder.push(&record).map_err(failed)?;
    }
    builder.build().map_err(failed)
}

/// Some different batches of a shape, built beforehand: the client's CPU is not to be measured.
///
/// # Errors
/// The shape is too large for a batch.
pub fn prepared(
    shape: Shape,
    count: usize,
    now_ms: i64,
    entropy: &Entropy,
) -> Result<Vec<Bytes>, BenchError> {
    let build = |_| {
        let values: Vec<_> = (0..shape.batch_records)
            .map(|_| filler(shape.record_bytes, entropy))
            .collect();
        batch(values.iter().map(Vec::as_slice), now_ms)
    };
    (0..count).map(build).collect()
}
