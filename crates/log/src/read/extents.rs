//! Reads of extents.

use std::sync::Arc;

use bytes::Bytes;
use tidemill_wire::{
    FileSlice, Slice,
    batch::{BatchHeader, HEADER_BYTES},
    ids::Offset,
};

use super::{
    ExtentRead, ReadError, ReadSlice, Reader, Slices,
    fetch::{Block, in_memory},
    file::{Effort, FILE_MIN_BYTES, Found, Index, Wanted},
};
use crate::{
    extents::{ExtentList, first_above},
    format::data::Footer,
    keys,
    types::Extent,
};

/// A batch's place in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) header: BatchHeader,
}

/// The batch at `at`; `None` at the end of the block.
pub(super) fn batch_at(block: &Bytes, at: usize) -> Option<Result<Place, String>> {
    let rest = block.get(at..)?;
    if rest.is_empty() {
        return None;
    }
    let head = rest.get(..HEADER_BYTES).unwrap_or(rest);
    let place = match BatchHeader::parse(head) {
        Ok(header) if header.size_bytes() <= rest.len() => Ok(Place {
            start: at,
            end: at + header.size_bytes(),
            header,
        }),
        Ok(header) => Err(format!("batch at {} is cut", header.base_offset)),
        Err(error) => Err(error.to_string()),
    };
    Some(place)
}

/// What is left of a request.
struct Taking<S> {
    cursor: Offset,
    end: Offset,
    budget: usize,
    /// The next batch is taken whatever its size.
    first: bool,
    out: Slices<S>,
    full: bool,
}

/// A block and where it comes from.
struct Loaded<'a> {
    extent: &'a Extent,
    footer: &'a Footer,
    block: Block,
    bytes: Bytes,
}

impl Loaded<'_> {
    fn corrupt(&self, what: String) -> ReadError {
        ReadError::Corrupt {
            key: keys::data_key(self.extent.object),
            what,
        }
    }

    /// Where chunk `index` begins in the block; the block's length for the one after its last.
    fn chunk_start(&self, index: usize) -> usize {
        let range = self.footer.chunk_range(index, self.extent.size_bytes());
        in_memory(range.start.saturating_sub(self.block.range.start)).min(self.bytes.len())
    }

    /// The first batch at or after `from` that reaches `cursor`.
    fn seek(&self, from: usize, cursor: Offset) -> Result<Option<Place>, ReadError> {
        let mut at = from;
        while let Some(place) = batch_at(&self.bytes, at) {
            let place = place.map_err(|what| self.corrupt(what))?;
            if place.header.last_offset() >= cursor {
                return Ok(Some(place));
            }
            at = place.end;
        }
        Ok(None)
    }

    /// First offset that is not in the block.
    fn next_offset(&self) -> Offset {
        let next = self.footer.chunks.get(self.block.chunks.end);
        next.map_or(self.extent.end_offset, |chunk| chunk.base_offset)
    }
}

impl<S: From<Bytes>> Taking<S> {
    /// Takes what is wanted of a block, as one slice. Only the heads of batches near the seams are
    /// looked at: chunk boundaries say the rest.
    fn take(&mut self, from: &Loaded<'_>) -> Result<(), ReadError> {
        let chunk = from
            .footer
            .chunk_of(self.cursor)
            .max(from.block.chunks.start);
        let start = from.chunk_start(chunk);
        let Some(first) = from.seek(start, self.cursor)? else {
            self.cursor = from.next_offset().max(self.cursor);
            return Ok(());
        };
        if first.header.base_offset >= self.end {
            self.full = true;
            return Ok(());
        }
        let start = first.start;
        let mut end = start;
        let mut cursor = self.cursor;
        // Whole chunks as far as budget and end allow.
        let fits = |at: usize, self_: &Self| at - start <= self_.budget;
        for index in (chunk..from.block.chunks.end).rev() {
            let (at, next) = (from.chunk_start(index + 1), index + 1);
            let offset = from.footer.chunks.get(next).map(|chunk| chunk.base_offset);
            let offset = offset.unwrap_or(from.extent.end_offset);
            if at > start && fits(at, self) && offset <= self.end {
                (end, cursor) = (at, offset);
                break;
            }
        }
        while let Some(place) = batch_at(&from.bytes, end) {
            let place = place.map_err(|what| from.corrupt(what))?;
            let wanted = self.first && end == start;
            let ends = place.header.base_offset >= self.end;
            if ends || !(wanted || fits(place.end, self)) {
                self.full = true;
                break;
            }
            (end, cursor) = (place.end, place.header.next_offset());
        }
        if end > start {
            self.out.slices.push(from.bytes.slice(start..end).into());
            self.out.size += end - start;
            self.budget = self.budget.saturating_sub(end - start);
            self.first = false;
            self.cursor = cursor;
            self.full |= self.budget == 0;
        }
        Ok(())
    }
}

impl<S: From<Bytes>> Taking<S> {
    fn new(request: &ExtentRead) -> Self {
        Self {
            cursor: request.offset,
            end: request.end,
            budget: request.max_bytes,
            first: request.at_least_one,
            out: Slices {
                slices: Vec::new(),
                size: 0,
                next_offset: request.offset,
                aborted: Vec::new(),
            },
            full: request.max_bytes == 0 && !request.at_least_one,
        }
    }

    fn goes_on(&self) -> bool {
        !self.full && self.cursor < self.end
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            cursor: self.cursor,
            end: self.end,
            budget: self.budget,
            first: self.first,
        }
    }

    /// Takes a part of a file.
    fn found(&mut self, found: Found, from_file: fn(FileSlice) -> S) {
        let len = found.slice.as_ref().map_or(0, Slice::len);
        match found.slice {
            Some(Slice::File(file)) => self.out.slices.push(from_file(file)),
            Some(Slice::Memory(bytes)) => self.out.slices.push(bytes.into()),
            None => {}
        }
        self.out.size += len;
        self.budget = self.budget.saturating_sub(len);
        self.first &= len == 0;
        self.cursor = found.cursor;
        self.full |= found.full;
    }

    /// Notes the aborted transactions of an extent that end where is read now, or later.
    fn aborted(&mut self, footer: &Footer) {
        let cursor = self.cursor;
        let overlap = footer
            .aborted
            .iter()
            .filter(|aborted| aborted.last_offset >= cursor);
        self.out.aborted.extend(overlap);
    }
}

impl Reader {
    /// The extent that holds `offset`, or the first one above it.
    ///
    /// # Errors
    /// [`ReadError`], if a manifest has to be read.
    pub async fn extent_at(
        self: &Arc<Self>,
        list: &ExtentList,
        offset: Offset,
    ) -> Result<Option<Extent>, ReadError> {
        if let Some(manifest) = list.manifest_at(offset) {
            let extents = self.manifest(manifest).await?;
            if let Some(extent) = first_above(&extents, offset) {
                return Ok(Some(extent.clone()));
            }
        }
        Ok(list.recent_at(offset).cloned())
    }

    /// Whole batches from extents. Offsets in gaps move to the next batch; nothing is returned at
    /// or above the end of the extents.
    ///
    /// # Errors
    /// [`ReadError`]; if an object is missing, look it up in the newest list and try again.
    pub async fn read_extents(
        self: &Arc<Self>,
        list: &ExtentList,
        request: ExtentRead,
    ) -> Result<Slices, ReadError> {
        self.read_extents_as(list, request).await
    }

    /// The same in memory or as parts of files.
    pub(super) async fn read_extents_as<S: ReadSlice>(
        self: &Arc<Self>,
        list: &ExtentList,
        request: ExtentRead,
    ) -> Result<Slices<S>, ReadError> {
        let mut taking = Taking::new(&request);
        while taking.goes_on() {
            let Some(extent) = self.extent_at(list, taking.cursor).await? else {
                break;
            };
            taking.cursor = taking.cursor.max(extent.base_offset);
            self.take_extent(list, &extent, &mut taking).await?;
        }
        taking.out.next_offset = taking.cursor;
        Ok(taking.out)
    }

    /// What can be had of extents as parts of files without asking the store for anything else.
    /// Nothing at all means that [`Reader::read_extents_as`] has to be asked.
    pub(super) fn read_extent_files(
        self: &Arc<Self>,
        list: &ExtentList,
        request: &ExtentRead,
        effort: Effort,
    ) -> Slices<Slice> {
        let mut taking = Taking::new(request);
        while self.has_files() && taking.goes_on() && list.manifest_at(taking.cursor).is_none() {
            let Some(extent) = list.recent_at(taking.cursor) else {
                break;
            };
            let Some(footer) = self.footer_ready(extent) else {
                break;
            };
            if extent.size_bytes() < FILE_MIN_BYTES as u64 {
                break;
            }
            let wanted = Wanted {
                cursor: taking.cursor.max(extent.base_offset),
                ..taking.wanted()
            };
            let Some(found) = self.check(extent, &footer, wanted, effort) else {
                break;
            };
            taking.cursor = wanted.cursor;
            taking.aborted(&footer);
            taking.found(found, Slice::File);
            if let Some(following) = list.recent_at(extent.end_offset) {
                self.prefetch_first(following);
            }
        }
        taking.out.next_offset = taking.cursor;
        taking.out
    }

    async fn take_extent<S: ReadSlice>(
        self: &Arc<Self>,
        list: &ExtentList,
        extent: &Extent,
        taking: &mut Taking<S>,
    ) -> Result<(), ReadError> {
        let footer = self.footer(extent).await?;
        taking.aborted(&footer);
        if self.take_file(list, extent, &footer, taking).await {
            return Ok(());
        }
        while !taking.full && taking.cursor < extent.end_offset.min(taking.end) {
            let chunk = footer.chunk_of(taking.cursor);
            let Some(block) = Block::of(&footer, chunk, extent.size_bytes()) else {
                taking.cursor = extent.end_offset;
                break;
            };
            self.read_ahead(list, extent, &footer, &block);
            let bytes = self.block(extent, &footer, &block).await?;
            taking.take(&Loaded {
                extent,
                footer: &footer,
                block,
                bytes,
            })?;
        }
        Ok(())
    }

    /// Takes what is wanted of an extent as a part of its file; false if it has to be read.
    async fn take_file<S: ReadSlice>(
        self: &Arc<Self>,
        list: &ExtentList,
        extent: &Extent,
        footer: &Arc<Index>,
        taking: &mut Taking<S>,
    ) -> bool {
        let Some(from_file) = S::FROM_FILE else {
            return false;
        };
        if !self.has_files() || extent.size_bytes() < FILE_MIN_BYTES as u64 {
            return false;
        }
        let Some(found) = self.from_file(extent, footer, taking.wanted()).await else {
            return false;
        };
        let cursor = found.cursor;
        taking.found(found, from_file);
        if cursor >= extent.end_offset
            && let Some(following) = list.recent_at(extent.end_offset)
        {
            self.prefetch_first(following);
        }
        true
    }

    /// Starts loading what a reader in order needs next.
    fn read_ahead(
        self: &Arc<Self>,
        list: &ExtentList,
        extent: &Extent,
        footer: &Arc<Index>,
        block: &Block,
    ) {
        let mut next = block.chunks.end;
        for _ in 0..self.options.read_ahead_blocks {
            let Some(ahead) = Block::of(footer, next, extent.size_bytes()) else {
                break;
            };
            self.prefetch(extent, footer, &ahead);
            next = ahead.chunks.end;
        }
        if next < footer.chunks.len() {
            return;
        }
        // At the end of an extent: the next one's footer.
        if let Some(following) = list.recent_at(extent.end_offset) {
            self.prefetch_first(following);
        }
    }
}
