//! Reads of a partition: memory, WAL and extents as one log.

use std::sync::Arc;

use bytes::Bytes;
use tidemill_wire::{
    Slice,
    batch::TimestampHit,
    ids::{LeaderEpoch, Offset},
};

use super::{ExtentRead, ReadError, ReadSlice, Reader, file::Effort, search::Sought, wal::Caching};
use crate::{
    extents::ExtentList,
    format::data::AbortedTransaction,
    partition::{Partition, Tail},
    types::TailBatch,
};

/// A read that finds its objects gone looks them up again, so many times.
const LOOKUPS: u32 = 4;
/// Most bytes of one read from the WAL: what was evicted comes in pieces.
const WAL_READ_BYTES: u64 = 4 << 20;

/// Up to where a reader may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Up to the high watermark.
    #[default]
    Uncommitted,
    /// Up to the last stable offset.
    Committed,
}

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Where to begin; inside a batch gives the whole batch (K10).
    pub offset: Offset,
    /// Bytes at most; batches are never cut.
    pub max_bytes: usize,
    /// Up to where.
    pub isolation: Isolation,
    /// Return the first batch even if it is larger than `max_bytes` (K11).
    pub at_least_one: bool,
}

/// What was read, with the marks at that moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadResult<S = Bytes> {
    /// Whole batches in order; one slice may hold many, one batch may be several slices.
    pub slices: Vec<S>,
    /// Sum of the slices' lengths.
    pub size: usize,
    /// Where the next read goes on.
    pub next_offset: Offset,
    /// One past the last committed offset.
    pub high_watermark: Offset,
    /// Where read-committed readers stop.
    pub last_stable_offset: Offset,
    /// The first offset there is.
    pub log_start: Offset,
    /// Aborted transactions that overlap what was read; for read-committed readers only.
    pub aborted: Vec<AbortedTransaction>,
}

/// A record found by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp, Unix milliseconds.
    pub timestamp: i64,
    /// The leader epoch it was written in, if known.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// Where the batches at an offset are.
enum Source {
    /// Nothing at or above the offset is visible yet.
    Nothing,
    /// In memory.
    Memory(Vec<TailBatch>),
    /// In the WAL only.
    Wal(Vec<TailBatch>),
    /// In extents.
    Extents(Arc<ExtentList>),
}

fn pick(tail: &Tail, extents: &Arc<ExtentList>, request: &ReadRequest, end: Offset) -> Source {
    let in_tail = request.offset >= tail.rolled_below()
        || tail.start().is_some_and(|start| start <= request.offset);
    let mut batches = tail
        .from(request.offset)
        .take_while(|b| b.base_offset < end)
        .peekable();
    let Some(first) = batches.peek().filter(|_| in_tail) else {
        let rolled = request.offset < tail.rolled_below();
        return if rolled {
            Source::Extents(extents.clone())
        } else {
            Source::Nothing
        };
    };
    let memory = first.data.is_some();
    // A log start in the midst of a batch may be where the extents end: the batch is in none then.
    if !memory && first.last_offset < tail.rolled_below() {
        return Source::Extents(extents.clone());
    }
    let mut left = request.max_bytes as u64;
    if !memory {
        left = left.min(WAL_READ_BYTES);
    }
    let mut forced = request.at_least_one;
    let mut taken = Vec::new();
    for batch in batches.take_while(|batch| batch.data.is_some() == memory) {
        let size = u64::from(batch.size_bytes);
        if size > left && !forced {
            break;
        }
        forced = false;
        left = left.saturating_sub(size);
        taken.push(batch.clone());
    }
    if memory {
        Source::Memory(taken)
    } else {
        Source::Wal(taken)
    }
}

impl Partition {
    /// Checks the offset and says where its batches are, under one lock.
    fn locate<S>(
        &self,
        request: &ReadRequest,
    ) -> Result<(ReadResult<S>, Offset, Source), ReadError> {
        let state = self.lock();
        if state.stopped.is_some() {
            return Err(ReadError::Gone(self.id()));
        }
        let result = ReadResult {
            next_offset: request.offset,
            high_watermark: state.high_watermark,
            last_stable_offset: self.last_stable_offset(),
            log_start: state.log_start,
            slices: Vec::new(),
            size: 0,
            aborted: Vec::new(),
        };
        if request.offset < state.log_start || request.offset > state.high_watermark {
            return Err(ReadError::OutOfRange);
        }
        let end = match request.isolation {
            Isolation::Uncommitted => result.high_watermark,
            Isolation::Committed => result.last_stable_offset,
        };
        let source = if request.offset >= end {
            Source::Nothing
        } else {
            pick(&state.tail, &state.extents, request, end)
        };
        Ok((result, end, source))
    }

    /// Reads what is in memory; `None` if the store would have to be asked.
    ///
    /// # Errors
    /// [`ReadError::OutOfRange`] or [`ReadError::Gone`].
    pub fn try_read<S: ReadSlice>(
        &self,
        request: &ReadRequest,
    ) -> Result<Option<ReadResult<S>>, ReadError> {
        let (result, _, source) = self.locate(request)?;
        Ok(result.of_memory(&source))
    }

    /// The same, or what lies in open local files that were checked a moment ago, as parts of them.
    /// Does not block, so that all who follow a reader closely are answered without a change of
    /// threads.
    ///
    /// # Errors
    /// [`ReadError::OutOfRange`] or [`ReadError::Gone`].
    pub fn try_read_to_send(
        &self,
        request: &ReadRequest,
    ) -> Result<Option<ReadResult<Slice>>, ReadError> {
        let (result, end, source) = self.locate(request)?;
        if let Source::Extents(list) = &source {
            return Ok(self.of_files(result, list, request, end, Effort::Ready));
        }
        Ok(result.of_memory(&source))
    }

    /// Reads whole batches from wherever they are. An empty result means that nothing at or above
    /// the offset is visible, or that the first batch exceeds `max_bytes`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read(&self, request: ReadRequest) -> Result<ReadResult, ReadError> {
        self.read_as(request).await
    }

    /// The same, what lies in local files as parts of them where that costs less, checked all the
    /// same: for answers that go to a socket.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_to_send(&self, request: ReadRequest) -> Result<ReadResult<Slice>, ReadError> {
        self.read_as(request).await
    }

    async fn read_as<S: ReadSlice>(
        &self,
        request: ReadRequest,
    ) -> Result<ReadResult<S>, ReadError> {
        let mut request = request;
        let mut lookups = 0;
        loop {
            if let Some(result) = self.try_read(&request)? {
                return Ok(result);
            }
            match self.read_cold(&request).await {
                Ok(Cold::Found(result)) => return Ok(result),
                Ok(Cold::Gap(next)) => request.offset = next,
                // Rolled, merged or trimmed meanwhile: the newest state says where it is now.
                Err(error) if error.is_missing() && lookups < LOOKUPS => lookups += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn read_cold<S: ReadSlice>(&self, request: &ReadRequest) -> Result<Cold<S>, ReadError> {
        let (mut result, end, source) = self.locate(request)?;
        match source {
            Source::Nothing | Source::Memory(_) => Ok(Cold::Gap(request.offset)),
            Source::Wal(batches) => {
                let bytes = self.reader().batch_bytes(&batches, Caching::Keep).await?;
                for (batch, slices) in batches.iter().zip(bytes) {
                    result.take(batch, slices);
                }
                Ok(Cold::Found(result))
            }
            Source::Extents(list) => {
                let extent_read = ExtentRead {
                    offset: request.offset,
                    end,
                    max_bytes: request.max_bytes,
                    at_least_one: request.at_least_one,
                };
                let read = self.reader().read_extents_as(&list, extent_read).await?;
                if read.slices.is_empty() && read.next_offset > request.offset {
                    return Ok(Cold::Gap(read.next_offset));
                }
                // Extents end where the list ends, and all of it was a gap.
                if read.slices.is_empty() && list.end_offset() <= request.offset {
                    return Ok(Cold::Gap(self.rolled_below().max(request.offset)));
                }
                result.slices = read.slices;
                result.size = read.size;
                result.next_offset = read.next_offset;
                result.aborted = read.aborted;
                Ok(Cold::Found(result))
            }
        }
    }

    /// Reads what lies in local files as parts of them; `None` if anything else is needed. May
    /// block.
    pub(super) fn read_file(
        &self,
        request: &ReadRequest,
    ) -> Result<Option<ReadResult<Slice>>, ReadError> {
        let (result, end, source) = self.locate(request)?;
        let Source::Extents(list) = source else {
            return Ok(None);
        };
        Ok(self.of_files(result, &list, request, end, Effort::Check))
    }

    /// What is wanted of extents, as parts of their files.
    fn of_files(
        &self,
        mut result: ReadResult<Slice>,
        list: &ExtentList,
        request: &ReadRequest,
        end: Offset,
        effort: Effort,
    ) -> Option<ReadResult<Slice>> {
        let extent_read = ExtentRead {
            offset: request.offset,
            end,
            max_bytes: request.max_bytes,
            at_least_one: request.at_least_one,
        };
        let read = self.reader().read_extent_files(list, &extent_read, effort);
        if read.slices.is_empty() {
            return None;
        }
        // Rather most of an answer a little later than a fraction of it at once.
        let is_most = read.size >= request.max_bytes / 2 || read.next_offset >= end;
        if effort == Effort::Ready && !is_most {
            return None;
        }
        result.slices = read.slices;
        result.size = read.size;
        result.next_offset = read.next_offset;
        result.aborted = read.aborted;
        Some(result)
    }

    fn rolled_below(&self) -> Offset {
        self.lock().tail.rolled_below()
    }

    /// The first record whose timestamp is at least `timestamp`, timestamps in any order (K16).
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn offset_for_timestamp(
        &self,
        timestamp: i64,
        isolation: Isolation,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let mut lookups = 0;
        loop {
            match self.search(timestamp, isolation).await {
                Err(error) if error.is_missing() && lookups < LOOKUPS => lookups += 1,
                other => return Ok(other?.map(|hit| self.with_epoch(hit))),
            }
        }
    }

    async fn search(
        &self,
        timestamp: i64,
        isolation: Isolation,
    ) -> Result<Option<TimestampHit>, ReadError> {
        let view = self.view(isolation, |batch| batch.max_timestamp >= timestamp)?;
        let list = &view.extents;
        let found = self
            .reader()
            .first_at_or_after(list, timestamp, view.from, view.end)
            .await?;
        if found.is_some() {
            return Ok(found);
        }
        for batch in view.batches {
            let sought = Sought::FirstFrom(timestamp);
            let hit = search_batch(self.reader(), &batch, sought, view.from).await?;
            if hit.is_some() {
                return Ok(hit);
            }
        }
        Ok(None)
    }

    /// The largest timestamp, and the first record that has it (K18); `None` without records.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn max_timestamp(&self) -> Result<Option<TimestampOffset>, ReadError> {
        let mut lookups = 0;
        loop {
            match self.search_max().await {
                Err(error) if error.is_missing() && lookups < LOOKUPS => lookups += 1,
                other => return Ok(other?.map(|hit| self.with_epoch(hit))),
            }
        }
    }

    async fn search_max(&self) -> Result<Option<TimestampHit>, ReadError> {
        let view = self.view(Isolation::Uncommitted, |_| true)?;
        let mut best = self
            .reader()
            .max_timestamp(&view.extents, view.from)
            .await?;
        let mut batches = view.batches;
        // Highest first: the first record found decides, unless the log start cuts its batch.
        batches.sort_by_key(|batch| (std::cmp::Reverse(batch.max_timestamp), batch.base_offset));
        for batch in batches {
            let floor = best.map_or(i64::MIN, |hit| hit.timestamp.saturating_add(1));
            if batch.max_timestamp < floor {
                break;
            }
            let sought = Sought::GreatestUpTo(i64::MAX);
            let hit = search_batch(self.reader(), &batch, sought, view.from).await?;
            best = hit.filter(|hit| hit.timestamp >= floor).or(best);
        }
        Ok(best)
    }

    fn view(
        &self,
        isolation: Isolation,
        wanted: impl Fn(&TailBatch) -> bool,
    ) -> Result<View, ReadError> {
        let state = self.lock();
        if state.stopped.is_some() {
            return Err(ReadError::Gone(self.id()));
        }
        let end = match isolation {
            Isolation::Uncommitted => state.high_watermark,
            Isolation::Committed => self.last_stable_offset(),
        };
        let below = state
            .tail
            .unrolled()
            .take_while(|batch| batch.base_offset < end);
        Ok(View {
            from: state.log_start,
            end,
            extents: state.extents.clone(),
            batches: below.filter(|batch| wanted(batch)).cloned().collect(),
        })
    }

    fn with_epoch(&self, hit: TimestampHit) -> TimestampOffset {
        let state = self.lock();
        let epochs = &state.epochs.0;
        let after = epochs.partition_point(|(_, start)| *start <= hit.offset);
        let leader_epoch = after
            .checked_sub(1)
            .and_then(|i| epochs.get(i))
            .map(|(e, _)| *e);
        TimestampOffset {
            offset: hit.offset,
            timestamp: hit.timestamp,
            leader_epoch,
        }
    }
}

enum Cold<S> {
    Found(ReadResult<S>),
    /// Nothing is stored before this offset.
    Gap(Offset),
}

/// What a search looks through.
struct View {
    from: Offset,
    end: Offset,
    extents: Arc<ExtentList>,
    batches: Vec<TailBatch>,
}

async fn search_batch(
    reader: &Arc<Reader>,
    batch: &TailBatch,
    sought: Sought,
    from: Offset,
) -> Result<Option<TimestampHit>, ReadError> {
    let bytes = reader
        .batch_bytes(std::slice::from_ref(batch), Caching::Keep)
        .await?;
    let joined: Bytes = match bytes.first().map(Vec::as_slice) {
        Some([one]) => one.clone(),
        Some(slices) => slices.concat().into(),
        None => Bytes::new(),
    };
    let found = reader.search_batch(joined, sought, from).await;
    found.map_err(|what| {
        let key = batch
            .spans
            .first()
            .map(|span| super::wal::wal_key(reader, span.position));
        ReadError::Corrupt {
            key: key.unwrap_or_default(),
            what,
        }
    })
}

impl<S: From<Bytes>> ReadResult<S> {
    /// With what lies in memory; `None` if `source` is elsewhere.
    fn of_memory(mut self, source: &Source) -> Option<Self> {
        match source {
            Source::Nothing => Some(self),
            Source::Memory(batches) => {
                for batch in batches {
                    let data = batch.data.iter().flat_map(|data| [&data.head, &data.rest]);
                    self.take(batch, data.filter(|slice| !slice.is_empty()).cloned());
                }
                Some(self)
            }
            Source::Wal(_) | Source::Extents(_) => None,
        }
    }

    fn take(&mut self, batch: &TailBatch, slices: impl IntoIterator<Item = Bytes>) {
        for slice in slices {
            self.size += slice.len();
            self.slices.push(slice.into());
        }
        self.next_offset = batch.last_offset.plus(1);
    }
}
