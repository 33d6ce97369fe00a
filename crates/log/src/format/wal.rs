//! WAL objects (`<hh>/wal/<writer>/<n>`, kind 4). Scope: one number of one writer. Immutable.
//!
//! Directory, little endian:
//!
//! | field | bytes |
//! |---|---|
//! | number | 8 |
//! | decided_below: all lower numbers had landed when this was encoded | 8 |
//! | replay_from: all lower numbers are in published checkpoints | 8 |
//! | when it was encoded, Unix milliseconds of the writer's clock | 8 |
//! | number of entries | 4 |
//!
//! then each entry, or fragment of one, in the order of the body:
//!
//! | field | bytes |
//! |---|---|
//! | entry id, a counter of the writer | 8 |
//! | fragment index, number of fragments | 2 + 2 |
//! | length of the whole entry | 8 |
//! | start within the body, length here | 8 + 8 |
//! | CRC32C of the bytes here | 4 |
//! | dependencies: bit j stands for number n - 1 - j | 16 |
//! | number of parts; parts stand with the last fragment only | 4 |
//!
//! and each part: kind (1), topic id (16), partition index (4), then
//!
//! | kind | fields |
//! |---|---|
//! | 1 records | the batch's header as stored (61), start within the entry (8) |
//! | 2 log start | leader epoch (4), offset (8) |
//! | 3 reserved: reference to bytes stored elsewhere | |
//!
//! An entry is applied if and only if its last fragment's object and all its dependencies landed.

use std::ops::Range;

use bytes::Bytes;
use tidemill_store::{Envelope, ObjectKind, envelope::EnvelopeError};
use tidemill_wire::{
    batch::{BatchHeader, HEADER_BYTES},
    ids::{LeaderEpoch, Offset, PartitionId},
};

use super::codec::{Reader, Writer};

/// Version of the layout.
pub const VERSION: u8 = 1;

const ENTRY_BYTES: usize = 8 + 2 + 2 + 8 + 8 + 8 + 4 + 16 + 4;
const PART_BYTES_MIN: usize = 1 + 16 + 4 + 4 + 8;
const RECORDS: u8 = 1;
const LOG_START: u8 = 2;

/// All that replay needs of a WAL object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalDirectory {
    /// The object's number.
    pub number: u64,
    /// All lower numbers had landed.
    pub decided_below: u64,
    /// All lower numbers are in published checkpoints.
    pub replay_from: u64,
    /// When it was encoded, Unix milliseconds.
    pub written_ms: i64,
    /// Entries and fragments, in the order of the body.
    pub entries: Vec<WalEntry>,
}

/// An entry, or a fragment of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalEntry {
    /// Counter of the writer.
    pub id: u64,
    /// Which fragment this is.
    pub fragment: u16,
    /// How many there are, at least 1.
    pub fragments: u16,
    /// Bytes of the whole entry.
    pub length: u64,
    /// Where its bytes here lie within the body.
    pub range: Range<u64>,
    /// CRC32C of the bytes here.
    pub crc: u32,
    /// Bit j: depends on number n - 1 - j. Of use in the last fragment only.
    pub deps: u128,
    /// In the last fragment: what the entry does.
    pub parts: Vec<WalPart>,
}

/// What an entry does to one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalPart {
    /// The partition.
    pub partition: PartitionId,
    /// What is done.
    pub body: WalPartBody,
}

/// The kinds of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalPartBody {
    /// Appends a batch.
    Records {
        /// Its header as stored.
        header: BatchHeader,
        /// Where it starts within the entry.
        start: u64,
    },
    /// Moves the log start.
    LogStart {
        /// The leader's epoch.
        epoch: LeaderEpoch,
        /// The new log start.
        offset: Offset,
    },
}

impl WalEntry {
    /// True if this is the last fragment, which has the parts.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.fragment + 1 == self.fragments
    }
}

impl WalDirectory {
    /// The directory's bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let parts: usize = self.entries.iter().map(|entry| entry.parts.len()).sum();
        let capacity = 36 + self.entries.len() * ENTRY_BYTES + parts * (29 + HEADER_BYTES);
        let mut out = Writer::with_capacity(capacity);
        out.u64(self.number);
        out.u64(self.decided_below);
        out.u64(self.replay_from);
        out.i64(self.written_ms);
        out.count(self.entries.len());
        for entry in &self.entries {
            entry.encode(&mut out);
        }
        out.finish()
    }

    /// Reads a directory whose body has `body_len` bytes.
    ///
    /// # Errors
    /// [`EnvelopeError::Malformed`] for what no writer makes, `TooNew` for an unknown kind of part.
    pub fn decode(directory: &[u8], body_len: u64) -> Result<Self, EnvelopeError> {
        let mut reader = Reader::new(directory, "WAL directory");
        let number = reader.u64()?;
        let decided_below = reader.u64()?;
        let replay_from = reader.u64()?;
        let written_ms = reader.i64()?;
        if decided_below > number || replay_from > decided_below {
            return Err(reader.malformed("numbers out of order"));
        }
        let count = reader.count(ENTRY_BYTES)?;
        let mut entries = Vec::with_capacity(count);
        let mut body_end = 0;
        for _ in 0..count {
            let entry = WalEntry::decode(&mut reader)?;
            if entry.range.start != body_end {
                return Err(reader.malformed("entries do not adjoin"));
            }
            body_end = entry.range.end;
            entries.push(entry);
        }
        if body_end != body_len {
            return Err(reader.malformed("entries do not fill the body"));
        }
        reader.finish()?;
        Ok(Self {
            number,
            decided_below,
            replay_from,
            written_ms,
            entries,
        })
    }

    /// Reads envelope and directory from an object's first bytes; the third value is where the body
    /// begins.
    ///
    /// # Errors
    /// [`EnvelopeError`]; `Truncated` says how many bytes are needed.
    pub fn decode_object(bytes: &Bytes) -> Result<(Envelope, Self, u64), EnvelopeError> {
        let (_, _, object_len) = Envelope::decode_header(bytes)?;
        let (envelope, directory) = Envelope::decode(bytes, ObjectKind::Wal, VERSION)?;
        let body_at = (Envelope::LEN + directory.len()) as u64;
        let Some(body_len) = object_len.checked_sub(body_at) else {
            let what = "WAL object: length is less than its directory's".to_owned();
            return Err(EnvelopeError::Malformed { what });
        };
        Ok((envelope, Self::decode(&directory, body_len)?, body_at))
    }
}

impl WalEntry {
    fn encode(&self, out: &mut Writer) {
        out.u64(self.id);
        out.u16(self.fragment);
        out.u16(self.fragments);
        out.u64(self.length);
        out.u64(self.range.start);
        out.u64(self.range.end - self.range.start);
        out.u32(self.crc);
        out.u128(self.deps);
        out.count(self.parts.len());
        for part in &self.parts {
            part.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, EnvelopeError> {
        let id = reader.u64()?;
        let fragment = reader.u16()?;
        let fragments = reader.u16()?;
        let length = reader.u64()?;
        let (start, len) = (reader.u64()?, reader.u64()?);
        let crc = reader.u32()?;
        let deps = reader.u128()?;
        let Some(end) = start.checked_add(len) else {
            return Err(reader.malformed("entry ends beyond all bytes"));
        };
        if fragment >= fragments || len > length || fragments == 1 && len != length {
            return Err(reader.malformed("fragment that cannot be"));
        }
        let count = reader.count(PART_BYTES_MIN)?;
        let is_last = fragment + 1 == fragments;
        if is_last != (count > 0) {
            return Err(reader.malformed("parts stand with the last fragment"));
        }
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            parts.push(WalPart::decode(reader, length)?);
        }
        Ok(Self {
            id,
            fragment,
            fragments,
            length,
            range: start..end,
            crc,
            deps,
            parts,
        })
    }
}

impl WalPart {
    fn encode(&self, out: &mut Writer) {
        let kind = match self.body {
            WalPartBody::Records { .. } => RECORDS,
            WalPartBody::LogStart { .. } => LOG_START,
        };
        out.u8(kind);
        out.partition(self.partition);
        match &self.body {
            WalPartBody::Records { header, start } => {
                out.raw(&header.encode());
                out.u64(*start);
            }
            WalPartBody::LogStart { epoch, offset } => {
                out.i32(epoch.0);
                out.offset(*offset);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>, entry_len: u64) -> Result<Self, EnvelopeError> {
        let kind = reader.u8()?;
        let partition = reader.partition()?;
        let body = match kind {
            RECORDS => records(reader, entry_len)?,
            LOG_START => {
                let epoch = LeaderEpoch(reader.i32()?);
                let offset = reader.offset()?;
                WalPartBody::LogStart { epoch, offset }
            }
            _ => {
                let what = format!("WAL entry kind {kind}");
                return Err(EnvelopeError::TooNew { what });
            }
        };
        Ok(Self { partition, body })
    }
}

fn records(reader: &mut Reader<'_>, entry_len: u64) -> Result<WalPartBody, EnvelopeError> {
    let header = BatchHeader::parse(reader.raw(HEADER_BYTES)?)
        .map_err(|error| reader.malformed(&error.to_string()))?;
    let start = reader.u64()?;
    let end = start.checked_add(header.size_bytes() as u64);
    if end.is_none_or(|end| end > entry_len) {
        return Err(reader.malformed("batch lies outside its entry"));
    }
    let base = header.base_offset.0;
    let delta = i64::from(header.last_offset_delta);
    if base < 0 || delta < 0 || base.checked_add(delta + 1).is_none() || header.record_count < 0 {
        return Err(reader.malformed("batch offsets that cannot be"));
    }
    Ok(WalPartBody::Records { header, start })
}

/// Fuzz entry: `bytes` as a WAL object and as a directory. What decodes encodes to the same bytes.
pub fn fuzz(bytes: &[u8]) {
    let _ = WalDirectory::decode_object(&Bytes::copy_from_slice(bytes));
    // The length of the body is in the envelope; here its first bytes stand in for that.
    let Some((body_len, directory)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let body_len = u64::from(u32::from_le_bytes(*body_len));
    if let Ok(decoded) = WalDirectory::decode(directory, body_len) {
        assert_eq!(
            decoded.encode(),
            directory,
            "one encoding for each directory"
        );
    }
}
