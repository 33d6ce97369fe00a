//! Data objects: segments (one partition) and set objects (several, sorted by partition).
//!
//! Scope: batches that have left the WAL. Mutability: none; named once, deleted when no partition
//! lists them. Layout: envelope; directory (count, then one [`Run`] each); then for each run its
//! batches and its footer. The directory alone says what to read to prove every byte: a run's
//! [`Run::crc`] covers its batches, the footer's chunk checksums cover them piece by piece.
//!
//! Footer: count of chunks, each {first offset, position in the run, CRC32C, largest timestamp},
//! then count of aborted transactions, each {producer, first offset, last offset}. A chunk is a
//! sequence of whole batches of about [`CHUNK_BYTES`].

use std::ops::Range;

use bytes::Bytes;
use tidemill_store::Payload;
use tidemill_store::envelope::{Envelope, EnvelopeError, ObjectKind, PutId};
use tidemill_wire::{
    batch::crc::combine,
    ids::{Offset, PartitionId, ProducerId, WriterId},
};

use super::codec::{Reader, Writer};
use crate::types::{DataObjectId, Extent};

/// Version of the layout of segments and set objects.
pub const DATA_VERSION: u8 = 1;
/// Bytes of batches between two entries of the sparse index: what a seek reads in vain at most.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Bytes of an encoded [`Run`].
pub const RUN_LEN: usize = 20 + 8 + 8 + 16 + 16 + 8 + 8 + 4 + 4;
const CHUNK_LEN: usize = 8 + 4 + 4 + 8;
const ABORTED_LEN: usize = 24;

/// One partition's batches in a data object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The partition.
    pub partition: PartitionId,
    /// First offset covered.
    pub base_offset: Offset,
    /// One past the last offset covered; what no batch in between holds is a declared gap.
    pub end_offset: Offset,
    /// Bytes of the batches within the object.
    pub range: Range<u64>,
    /// Bytes of the footer within the object.
    pub footer: Range<u64>,
    /// Largest record timestamp, Unix milliseconds.
    pub max_timestamp: i64,
    /// Base offset of the first batch that holds it.
    pub max_timestamp_offset: Offset,
    /// CRC32C of the batches.
    pub crc: u32,
    /// CRC32C of the footer.
    pub footer_crc: u32,
}

impl Run {
    /// The run as an extent of its partition.
    #[must_use]
    pub fn extent(&self, object: DataObjectId, object_len: u64) -> Extent {
        Extent {
            base_offset: self.base_offset,
            end_offset: self.end_offset,
            object,
            object_len,
            range: self.range.clone(),
            footer: self.footer.clone(),
            max_timestamp: self.max_timestamp,
            max_timestamp_offset: self.max_timestamp_offset,
            footer_crc: self.footer_crc,
        }
    }

    fn write(&self, out: &mut Writer) {
        out.partition(self.partition);
        out.offset(self.base_offset);
        out.offset(self.end_offset);
        out.range(&self.range);
        out.range(&self.footer);
        out.i64(self.max_timestamp);
        out.offset(self.max_timestamp_offset);
        out.u32(self.crc);
        out.u32(self.footer_crc);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, EnvelopeError> {
        Ok(Self {
            partition: from.partition()?,
            base_offset: from.offset()?,
            end_offset: from.offset()?,
            range: from.range()?,
            footer: from.range()?,
            max_timestamp: from.i64()?,
            max_timestamp_offset: from.offset()?,
            crc: from.u32()?,
            footer_crc: from.u32()?,
        })
    }
}

/// A data object's header and directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDirectory {
    /// The header.
    pub envelope: Envelope,
    /// Length of the whole object in bytes.
    pub object_len: u64,
    /// Its runs, in the order of their bytes.
    pub runs: Vec<Run>,
}

/// Bytes of header and directory, from the first [`Envelope::LEN`] bytes.
///
/// # Errors
/// The bytes are no header.
pub fn directory_end(header: &[u8]) -> Result<u64, EnvelopeError> {
    let (_, directory_len, _) = Envelope::decode_header(header)?;
    Ok(Envelope::LEN as u64 + u64::from(directory_len))
}

impl DataDirectory {
    /// Reads header and directory; the bodies need not be there.
    ///
    /// # Errors
    /// The bytes are short, damaged, newer than this broker, or no data object.
    pub fn decode(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let (header, _, object_len) = Envelope::decode_header(bytes)?;
        let kind = match header.kind {
            ObjectKind::SetObject => ObjectKind::SetObject,
            _ => ObjectKind::Segment,
        };
        let (envelope, directory) = Envelope::decode(bytes, kind, DATA_VERSION)?;
        let mut from = Reader::new(&directory, "data directory");
        let count = from.count(RUN_LEN)?;
        let mut runs: Vec<Run> = Vec::with_capacity(count);
        let mut position = Envelope::LEN as u64 + directory.len() as u64;
        for _ in 0..count {
            let run = Run::read(&mut from)?;
            if run.range.start != position || run.footer.start != run.range.end {
                return Err(from.malformed("runs do not follow each other"));
            }
            if run.end_offset <= run.base_offset {
                return Err(from.malformed("run without offsets"));
            }
            let order = |a: &Run| (a.partition, a.base_offset);
            if runs
                .last()
                .is_some_and(|before| order(before) >= order(&run))
            {
                return Err(from.malformed("runs are not sorted"));
            }
            position = run.footer.end;
            runs.push(run);
        }
        if position != object_len {
            return Err(from.malformed("runs do not end with the object"));
        }
        from.finish()?;
        Ok(Self {
            envelope,
            object_len,
            runs,
        })
    }
}

/// One entry of a run's sparse index: whole batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the first batch.
    pub base_offset: Offset,
    /// Where it begins, from the start of the run.
    pub position: u32,
    /// CRC32C of its bytes.
    pub crc: u32,
    /// Largest record timestamp in it, Unix milliseconds.
    pub max_timestamp: i64,
}

/// A transaction that was aborted; its data is hidden from read-committed readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Who aborted it.
    pub producer_id: ProducerId,
    /// First offset of the transaction.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub last_offset: Offset,
}

/// What a run's footer holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// The sparse index, ascending.
    pub chunks: Vec<Chunk>,
    /// Aborted transactions whose marker lies in the run, ascending by marker.
    pub aborted: Vec<AbortedTransaction>,
}

impl Footer {
    /// The footer as stored.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let len = 8 + self.chunks.len() * CHUNK_LEN + self.aborted.len() * ABORTED_LEN;
        let mut out = Writer::with_capacity(len);
        out.count(self.chunks.len());
        for chunk in &self.chunks {
            out.offset(chunk.base_offset);
            out.u32(chunk.position);
            out.u32(chunk.crc);
            out.i64(chunk.max_timestamp);
        }
        out.count(self.aborted.len());
        for aborted in &self.aborted {
            out.i64(aborted.producer_id.0);
            out.offset(aborted.first_offset);
            out.offset(aborted.last_offset);
        }
        out.finish()
    }

    /// Reads a footer of a run of `run_len` bytes.
    ///
    /// # Errors
    /// The bytes do not match `crc`, or are no footer of such a run.
    pub fn decode(bytes: &[u8], crc: u32, run_len: u64) -> Result<Self, EnvelopeError> {
        if crc32c::crc32c(bytes) != crc {
            return Err(EnvelopeError::Checksum { part: "footer" });
        }
        let mut from = Reader::new(bytes, "footer");
        let count = from.count(CHUNK_LEN)?;
        let mut chunks: Vec<Chunk> = Vec::with_capacity(count);
        for _ in 0..count {
            let chunk = Chunk {
                base_offset: from.offset()?,
                position: from.u32()?,
                crc: from.u32()?,
                max_timestamp: from.i64()?,
            };
            let good = match chunks.last() {
                None => chunk.position == 0,
                Some(before) => {
                    chunk.position > before.position && chunk.base_offset > before.base_offset
                }
            };
            if !good || u64::from(chunk.position) >= run_len {
                return Err(from.malformed("chunks out of order"));
            }
            chunks.push(chunk);
        }
        if chunks.is_empty() != (run_len == 0) {
            return Err(from.malformed("chunks do not cover the run"));
        }
        let count = from.count(ABORTED_LEN)?;
        let mut aborted = Vec::with_capacity(count);
        for _ in 0..count {
            aborted.push(AbortedTransaction {
                producer_id: ProducerId(from.i64()?),
                first_offset: from.offset()?,
                last_offset: from.offset()?,
            });
        }
        from.finish()?;
        Ok(Self { chunks, aborted })
    }

    /// The last chunk that begins at or before `offset`; the first one if none does.
    #[must_use]
    pub fn chunk_of(&self, offset: Offset) -> usize {
        let after = self
            .chunks
            .partition_point(|chunk| chunk.base_offset <= offset);
        after.saturating_sub(1)
    }

    /// Bytes of chunk `index` within a run of `run_len` bytes.
    #[must_use]
    pub fn chunk_range(&self, index: usize, run_len: u64) -> Range<u64> {
        let at = |i: usize| {
            self.chunks
                .get(i)
                .map_or(run_len, |c| u64::from(c.position))
        };
        at(index)..at(index + 1)
    }
}

/// What the builder must know of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchInfo {
    /// First offset.
    pub base_offset: Offset,
    /// CRC32C of all its bytes as stored.
    pub crc: u32,
    /// Largest record timestamp.
    pub max_timestamp: i64,
}

#[derive(Debug)]
struct OpenRun {
    run: Run,
    footer: Footer,
    len: u64,
    chunk_len: u64,
}

/// Builds a segment or a set object out of slices, none of which is copied.
#[derive(Debug, Default)]
pub struct DataBuilder {
    done: Vec<Run>,
    open: Option<OpenRun>,
    bodies: Vec<Bytes>,
    len: u64,
}

/// A data object ready to be stored.
#[derive(Debug)]
pub struct BuiltObject {
    /// Its name.
    pub id: DataObjectId,
    /// All its bytes.
    pub payload: Payload,
    /// Its runs.
    pub extents: Vec<(PartitionId, Extent)>,
}

impl DataBuilder {
    /// An empty object.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of batches and footers so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len + self.open.as_ref().map_or(0, |open| open.len)
    }

    /// True if there is no run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.open.is_none()
    }

    /// Begins the run of `partition` that covers `offsets`. Runs come sorted by (partition,
    /// offset).
    pub fn begin(&mut self, partition: PartitionId, offsets: Range<Offset>) {
        self.end();
        let run = Run {
            partition,
            base_offset: offsets.start,
            end_offset: offsets.end,
            range: 0..0,
            footer: 0..0,
            max_timestamp: i64::MIN,
            max_timestamp_offset: offsets.start,
            crc: 0,
            footer_crc: 0,
        };
        self.open = Some(OpenRun {
            run,
            footer: Footer::default(),
            len: 0,
            chunk_len: 0,
        });
    }

    /// Appends a batch to the run that was begun last; `slices` in order.
    pub fn push(&mut self, info: BatchInfo, slices: impl IntoIterator<Item = Bytes>) {
        let Some(open) = &mut self.open else {
            debug_assert!(false, "a batch belongs to a run");
            return;
        };
        let mut size = 0u64;
        for slice in slices {
            size += slice.len() as u64;
            self.bodies.push(slice);
        }
        if open.chunk_len == 0 || open.chunk_len + size > CHUNK_BYTES {
            let position = u32::try_from(open.len).expect("runs are cut far below 4 GiB");
            open.footer.chunks.push(Chunk {
                base_offset: info.base_offset,
                position,
                crc: info.crc,
                max_timestamp: info.max_timestamp,
            });
            open.chunk_len = size;
        } else if let Some(chunk) = open.footer.chunks.last_mut() {
            chunk.crc = combine(chunk.crc, info.crc, size);
            chunk.max_timestamp = chunk.max_timestamp.max(info.max_timestamp);
            open.chunk_len += size;
        }
        let run = &mut open.run;
        if info.max_timestamp > run.max_timestamp {
            run.max_timestamp = info.max_timestamp;
            run.max_timestamp_offset = info.base_offset;
        }
        run.crc = if open.len == 0 {
            info.crc
        } else {
            combine(run.crc, info.crc, size)
        };
        open.len += size;
    }

    fn end(&mut self) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        let footer = open.footer.encode();
        let (start, end) = (self.len, self.len + open.len);
        open.run.range = start..end;
        open.run.footer = end..end + footer.len() as u64;
        open.run.footer_crc = crc32c::crc32c(&footer);
        self.len = open.run.footer.end;
        self.bodies.push(footer);
        self.done.push(open.run);
    }

    /// Ends the object.
    #[must_use]
    pub fn finish(mut self, id: DataObjectId, put_id: PutId, cluster_id: [u8; 16]) -> BuiltObject {
        self.end();
        let directory_len = 4 + self.done.len() * RUN_LEN;
        let base = (Envelope::LEN + directory_len) as u64;
        let mut directory = Writer::with_capacity(directory_len);
        directory.count(self.done.len());
        let shift = |range: &Range<u64>| range.start + base..range.end + base;
        let mut extents = Vec::with_capacity(self.done.len());
        let object_len = base + self.len;
        let first = self.done.first().map(|run| run.partition);
        let single = self.done.iter().all(|run| Some(run.partition) == first);
        for run in &mut self.done {
            run.range = shift(&run.range);
            run.footer = shift(&run.footer);
            run.write(&mut directory);
            extents.push((run.partition, run.extent(id, object_len)));
        }
        let kind = if single {
            ObjectKind::Segment
        } else {
            ObjectKind::SetObject
        };
        let envelope = envelope(kind, DATA_VERSION, put_id, cluster_id, id.writer);
        let mut payload = Payload::new();
        payload.push(envelope.encode(&directory.finish(), self.len));
        for slice in self.bodies {
            payload.push(slice);
        }
        BuiltObject {
            id,
            payload,
            extents,
        }
    }
}

/// The header of an object that a writer of this build stores.
#[must_use]
pub fn envelope(
    kind: ObjectKind,
    version: u8,
    put_id: PutId,
    cluster_id: [u8; 16],
    writer: WriterId,
) -> Envelope {
    Envelope {
        kind,
        version,
        must_understand: 0,
        may_ignore: 0,
        put_id,
        cluster_id,
        writer: writer.0,
    }
}

/// Fuzz entry: decodes `bytes` as a data object's header and directory, and as a footer.
pub fn fuzz(bytes: &[u8]) {
    let _ = DataDirectory::decode(&Bytes::copy_from_slice(bytes));
    let _ = Footer::decode(bytes, crc32c::crc32c(bytes), bytes.len() as u64);
}
