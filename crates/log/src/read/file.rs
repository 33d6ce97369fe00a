//! Batches sent out of a local file: checked where they lie, and handed on as a part of the file.
//!
//! The page cache is the one copy in memory. What is checked goes through one small buffer that
//! stays in the processor's cache, so a byte costs its checksum and no trip through fresh memory.
//! What one group has read, others read soon after: a chunk that was checked a moment ago is not
//! checked again.

use std::{
    io,
    ops::{Deref, Range},
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_store::ObjectFile;
use tidemill_wire::{
    batch::{BatchHeader, HEADER_BYTES},
    codec::{FileSlice, PayloadFile, Slice},
    ids::Offset,
};

use super::{ReadError, ReadRequest, ReadResult, Reader, fetch::in_memory};
use crate::{
    format::data::{CHUNK_BYTES, Footer},
    keys,
    partition::Partition,
    types::Extent,
};

/// Bytes checked at once: two chunks, so that a common batch fits, and a fraction of what a core's
/// second-level cache holds.
const BUFFER_BYTES: usize = 128 << 10;
/// Buffers kept; checks run no more than that many at once.
pub(super) const CHECKS: usize = 4;
/// Fewer bytes are copied: the calls that send a part of a file cost more than their copy.
pub(super) const FILE_MIN_BYTES: usize = 16 << 10;

/// How long a checked chunk counts as checked: its pages are the same ones, most likely. Clients
/// check the records' own CRC besides.
const CHECKED_FOR: Duration = Duration::from_secs(60);

/// A footer, and when the chunks it names were checked last in their file.
#[derive(Debug)]
pub(super) struct Index {
    footer: Footer,
    /// Seconds of the reader's life, from 1 on; 0 is never.
    checked: Box<[AtomicU32]>,
}

impl From<Footer> for Index {
    fn from(footer: Footer) -> Self {
        let checked = footer.chunks.iter().map(|_| AtomicU32::new(0)).collect();
        Self { footer, checked }
    }
}

impl Deref for Index {
    type Target = Footer;

    fn deref(&self) -> &Footer {
        &self.footer
    }
}

/// What a read may hand out.
pub trait ReadSlice: From<Bytes> + Send + 'static {
    /// Makes one of a part of a file; `None` if only memory will do.
    const FROM_FILE: Option<fn(FileSlice) -> Self>;
}

impl ReadSlice for Bytes {
    const FROM_FILE: Option<fn(FileSlice) -> Self> = None;
}

impl ReadSlice for Slice {
    const FROM_FILE: Option<fn(FileSlice) -> Self> = Some(Self::File);
}

/// What is wanted of an extent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) cursor: Offset,
    pub(super) end: Offset,
    pub(super) budget: usize,
    /// The first batch is taken whatever its size.
    pub(super) first: bool,
}

/// What may be done to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// Files are opened and chunks are checked; may block.
    Check,
    /// Only open files and chunks that were checked a moment ago; never blocks.
    Ready,
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    /// Whole batches, if any fits.
    pub(super) slice: Option<Slice>,
    pub(super) cursor: Offset,
    /// Nothing more fits, or the end is reached.
    pub(super) full: bool,
}

/// Buffers for checking; the one given back last is taken first, as it is in the cache.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn take(&self) -> Vec<u8> {
        let kept = self.0.lock().pop();
        kept.unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    fn keep(&self, buffer: Vec<u8>) {
        let mut kept = self.0.lock();
        if kept.len() < CHECKS {
            kept.push(buffer);
        }
    }
}

/// An object's file as the wire sends it.
#[derive(Debug)]
struct Sendable(ObjectFile);

impl PayloadFile for Sendable {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(into, offset)
    }
}

/// A batch's place in its run.
#[derive(Clone, Copy)]
struct Head {
    start: u64,
    end: u64,
    header: BatchHeader,
}

/// Why the file cannot be used; the ordinary read then says what is wrong, if anything is.
struct Unusable;

/// One extent being checked.
struct Check<'a> {
    file: &'a ObjectFile,
    extent: &'a Extent,
    footer: &'a Index,
    effort: Effort,
    buffer: &'a mut [u8],
    /// As [`Index::checked`] counts.
    now: u32,
}

impl Check<'_> {
    fn range(&self, chunk: usize) -> Range<u64> {
        self.footer.chunk_range(chunk, self.extent.size_bytes())
    }

    /// Fills the buffer from `at` in the run, with `len` bytes.
    fn fill(&mut self, at: u64, len: usize) -> Result<(), Unusable> {
        if self.effort == Effort::Ready {
            return Err(Unusable);
        }
        let from = self.extent.range.start + at;
        let filled = self.file.read_exact_at(&mut self.buffer[..len], from);
        filled.map_err(|_| Unusable)
    }

    /// Checks a chunk's checksum. If it is no longer than the buffer it lies there afterwards; of a
    /// longer one, which is a single batch, the head is returned.
    fn chunk(&mut self, index: usize) -> Result<Option<Head>, Unusable> {
        let range = self.range(index);
        let mut head = None;
        let mut crc = 0;
        let mut at = range.start;
        while at < range.end {
            let len = in_memory(range.end - at).min(self.buffer.len());
            self.fill(at, len)?;
            if at == range.start && (len as u64) < range.end - at {
                head = Some(self.head(&range, 0)?);
            }
            crc = crc32c::crc32c_append(crc, &self.buffer[..len]);
            at += len as u64;
        }
        let is_one = head.is_none_or(|head| head.end == range.end);
        let is_right = self.footer.chunks.get(index).map(|chunk| chunk.crc) == Some(crc);
        if is_one && is_right {
            Ok(head)
        } else {
            Err(Unusable)
        }
    }

    /// Checks a chunk unless that was done a moment ago.
    fn fresh(&mut self, index: usize) -> Result<(), Unusable> {
        let checked = self.footer.checked.get(index).ok_or(Unusable)?;
        let at = checked.load(Ordering::Relaxed);
        if at > 0 && u64::from(self.now.saturating_sub(at)) < CHECKED_FOR.as_secs() {
            return Ok(());
        }
        self.chunk(index)?;
        checked.store(self.now, Ordering::Relaxed);
        Ok(())
    }

    /// The head of the batch at `at` of the buffer, which holds (the begin of) the chunk `range`.
    fn head(&self, range: &Range<u64>, at: usize) -> Result<Head, Unusable> {
        let rest = self.buffer.get(at..at + HEADER_BYTES).ok_or(Unusable)?;
        let header = BatchHeader::parse(rest).map_err(|_| Unusable)?;
        let start = range.start + at as u64;
        let end = start + header.size_bytes() as u64;
        if end > range.end {
            return Err(Unusable);
        }
        Ok(Head { start, end, header })
    }

    /// Checks a chunk and shows the heads of its batches in order until `each` wants no more.
    fn heads(&mut self, index: usize, mut each: impl FnMut(&Head) -> bool) -> Result<(), Unusable> {
        if let Some(only) = self.chunk(index)? {
            each(&only);
            return Ok(());
        }
        let range = self.range(index);
        let mut at = 0;
        while range.start + (at as u64) < range.end {
            let head = self.head(&range, at)?;
            if !each(&head) {
                break;
            }
            at = in_memory(head.end - range.start);
        }
        Ok(())
    }

    /// The bytes of the run that are wanted, checked.
    fn take(&mut self, wanted: Wanted) -> Result<(Range<u64>, Offset, bool), Unusable> {
        let chunks = self.footer.chunks.len();
        let mut index = self.footer.chunk_of(wanted.cursor);
        let (mut start, mut end, mut cursor) = (None, 0, wanted.cursor);
        let mut full = false;
        while index < chunks && !full {
            let base = self.footer.chunks.get(index).map(|chunk| chunk.base_offset);
            let next = self.footer.chunks.get(index + 1);
            let next = next.map_or(self.extent.end_offset, |chunk| chunk.base_offset);
            let range = self.range(index);
            // Most chunks are wanted whole, and then their batches are nobody's business.
            let from = start.or_else(|| (base >= Some(wanted.cursor)).then_some(range.start));
            let fits = from.is_some_and(|from| range.end - from <= wanted.budget as u64);
            if fits && next <= wanted.end {
                self.fresh(index)?;
                (start, end, cursor) = (from, range.end, next);
                index += 1;
                continue;
            }
            // A part of a chunk is checked like all of it: most of the answer will do.
            let taken = start.map_or(0, |start| end - start);
            let is_one = start.is_some() && range.end - range.start > CHUNK_BYTES;
            if !fits && (is_one || taken > wanted.budget as u64 / 2) {
                full = true;
                break;
            }
            self.heads(index, |head| {
                if start.is_none() && head.header.last_offset() < wanted.cursor {
                    return true;
                }
                let from = start.unwrap_or(head.start);
                let fits = head.end - from <= wanted.budget as u64;
                let first = wanted.first && start.is_none();
                if head.header.base_offset >= wanted.end || !(fits || first) {
                    full = true;
                    return false;
                }
                start = Some(from);
                (end, cursor) = (head.end, head.header.next_offset());
                true
            })?;
            if !full {
                // What no batch holds up to the next chunk is a gap.
                cursor = cursor.max(next.min(wanted.end));
            }
            index += 1;
        }
        let start = start.unwrap_or(end);
        full |= end - start >= wanted.budget as u64;
        Ok((start..end, cursor, full))
    }
}

impl Reader {
    /// Whole batches of an extent as a part of its file; `None` if it must be read into memory,
    /// be it that the store has no files or that a checksum does not match.
    pub(super) async fn from_file(
        self: &Arc<Self>,
        extent: &Extent,
        footer: &Arc<Index>,
        wanted: Wanted,
    ) -> Option<Found> {
        let (reader, extent, footer) = (self.clone(), extent.clone(), footer.clone());
        // The semaphore is never closed.
        let _permit = self.checks.acquire().await.ok();
        let work = move || reader.check(&extent, &footer, wanted, Effort::Check);
        let checked = self.runtime.tasks.blocking("log-check", work).await;
        checked.ok().flatten()
    }

    /// Seconds since the reader began, from 1 on.
    fn seconds(&self) -> u32 {
        let passed = self.runtime.clock.monotonic();
        let passed = passed.saturating_duration_since(self.began).as_secs();
        u32::try_from(passed).unwrap_or(u32::MAX).saturating_add(1)
    }

    pub(super) fn check(
        &self,
        extent: &Extent,
        footer: &Index,
        wanted: Wanted,
        effort: Effort,
    ) -> Option<Found> {
        let key = keys::data_key(extent.object);
        let file = match effort {
            Effort::Check => self.store.open(&key)?,
            Effort::Ready => self.store.opened(&key)?,
        };
        if file.len() != extent.object_len {
            return None;
        }
        let mut buffer = self.buffers.take();
        let taken = Check {
            file: &file,
            extent,
            footer,
            effort,
            buffer: &mut buffer,
            now: self.seconds(),
        }
        .take(wanted);
        self.buffers.keep(buffer);
        let (range, cursor, full) = taken.ok()?;
        let len = in_memory(range.end - range.start);
        let at = extent.range.start + range.start;
        let slice = FileSlice::new(Arc::new(Sendable(file)), at, len);
        let slice = match len {
            0 => None,
            len if len < FILE_MIN_BYTES && effort == Effort::Ready => return None,
            len if len < FILE_MIN_BYTES => Some(Slice::Memory(Slice::File(slice).to_bytes().ok()?)),
            _ => Some(Slice::File(slice)),
        };
        Some(Found {
            slice,
            cursor,
            full,
        })
    }

    /// Whether [`Reader::read_files`] may find anything.
    #[must_use]
    pub const fn has_files(&self) -> bool {
        self.local
    }

    /// Reads several partitions one behind the other as parts of files, on a thread that may block:
    /// one change of threads for all of them. `None` for each that [`Partition::read_to_send`] has
    /// to be asked for; none at all if the store has no files.
    pub async fn read_files(
        self: &Arc<Self>,
        wanted: Vec<(Arc<Partition>, ReadRequest)>,
    ) -> Vec<Option<Result<ReadResult<Slice>, ReadError>>> {
        if !self.has_files() {
            return Vec::new();
        }
        // The semaphore is never closed.
        let _permit = self.checks.acquire().await.ok();
        let work = move || {
            let results = wanted
                .iter()
                .map(|(partition, request)| partition.read_file(request));
            results.map(Result::transpose).collect()
        };
        let read = self.runtime.tasks.blocking("log-check", work).await;
        read.unwrap_or_default()
    }
}
