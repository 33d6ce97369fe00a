//! Search by timestamp, in batches and in extents (K16, K18).

use std::sync::Arc;

use bytes::Bytes;
use tidemill_wire::{
    batch::{
        BatchHeader, Compression, MAX_INFLATED_BYTES, RecordsError, TimestampHit,
        first_at_or_after, max_timestamp_record,
    },
    ids::Offset,
};

use super::{
    ReadError, Reader,
    extents::{Place, batch_at},
    fetch::Block,
};
use crate::{extents::ExtentList, keys, types::Extent};

/// What is looked for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    timestamp: i64,
    from: Offset,
    end: Offset,
}

/// What a search in one batch is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sought {
    /// The first record of this timestamp or a later one.
    FirstFrom(i64),
    /// The first record that has the greatest timestamp up to this one.
    GreatestUpTo(i64),
}

/// Records walked over where the request is served: a tenth of a millisecond.
const INLINE_RECORDS: i32 = 10_000;
/// Searches on threads of their own at once. As many as two cores: each may have to decompress a
/// whole batch, and more would only take turns.
pub(super) const SEARCHES: usize = 2;

impl Sought {
    fn search(self, batch: &[u8], from: Offset) -> Result<Option<TimestampHit>, RecordsError> {
        match self {
            Self::FirstFrom(time) => first_at_or_after(batch, time, from, MAX_INFLATED_BYTES),
            Self::GreatestUpTo(limit) => {
                max_timestamp_record(batch, limit, from, MAX_INFLATED_BYTES)
            }
        }
    }
}

/// Whether a search may take long: nobody else's request is to wait for it.
fn takes_long(batch: &[u8]) -> bool {
    BatchHeader::parse(batch).is_ok_and(|header| {
        let is_plain = header.attributes.compression() == Some(Compression::None);
        !is_plain || header.record_count > INLINE_RECORDS
    })
}

impl Reader {
    /// Searches one batch from offset `from` on.
    ///
    /// # Errors
    /// What is wrong with the batch.
    pub(super) async fn search_batch(
        &self,
        batch: Bytes,
        sought: Sought,
        from: Offset,
    ) -> Result<Option<TimestampHit>, String> {
        let found = if takes_long(&batch) {
            // Never closed; without a permit there would merely be more at once.
            let _permit = self.searches.acquire().await.ok();
            let work = move || sought.search(&batch, from);
            let searched = self.runtime.tasks.blocking("log-search", work).await;
            searched.map_err(|panic| panic.to_string())?
        } else {
            sought.search(&batch, from)
        };
        found.map_err(|error| error.to_string())
    }

    /// The first record in extents at or after offset `from` and below `end` whose timestamp is at
    /// least `timestamp`, timestamps in any order.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn first_at_or_after(
        self: &Arc<Self>,
        list: &ExtentList,
        timestamp: i64,
        from: Offset,
        end: Offset,
    ) -> Result<Option<TimestampHit>, ReadError> {
        let wanted = Wanted {
            timestamp,
            from,
            end,
        };
        for manifest in &list.manifests {
            if manifest.max_timestamp < timestamp || manifest.end_offset <= from {
                continue;
            }
            let extents = self.manifest(manifest).await?;
            if let Some(hit) = self.search(&extents, wanted).await? {
                return Ok(Some(hit));
            }
        }
        self.search(&list.recent, wanted).await
    }

    async fn search(
        self: &Arc<Self>,
        extents: &[Extent],
        wanted: Wanted,
    ) -> Result<Option<TimestampHit>, ReadError> {
        for extent in extents {
            if extent.max_timestamp < wanted.timestamp || extent.end_offset <= wanted.from {
                continue;
            }
            if extent.base_offset >= wanted.end {
                break;
            }
            if let Some(hit) = self.search_extent(extent, wanted).await? {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    async fn search_extent(
        self: &Arc<Self>,
        extent: &Extent,
        wanted: Wanted,
    ) -> Result<Option<TimestampHit>, ReadError> {
        let footer = self.footer(extent).await?;
        for index in footer.chunk_of(wanted.from)..footer.chunks.len() {
            let hopeful = footer.chunks.get(index);
            if hopeful.is_none_or(|chunk| chunk.max_timestamp < wanted.timestamp) {
                continue;
            }
            let Some(block) = Block::of(&footer, index, extent.size_bytes()) else {
                break;
            };
            let bytes = self.block(extent, &footer, &block).await?;
            let range = footer.chunk_range(index, extent.size_bytes());
            let start = usize::try_from(range.start - block.range.start).unwrap_or(usize::MAX);
            let end = usize::try_from(range.end - block.range.start).unwrap_or(usize::MAX);
            let chunk = bytes.slice(start.min(bytes.len())..end.min(bytes.len()));
            if let Some(hit) = self.search_batches(extent, &chunk, wanted).await? {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    /// Searches whole batches in order.
    async fn search_batches(
        &self,
        extent: &Extent,
        bytes: &Bytes,
        wanted: Wanted,
    ) -> Result<Option<TimestampHit>, ReadError> {
        let mut at = 0;
        while let Some(place) = batch_at(bytes, at) {
            let place = place.map_err(|what| corrupt(extent, what))?;
            at = place.end;
            if place.header.base_offset >= wanted.end {
                break;
            }
            let header = &place.header;
            if header.max_timestamp < wanted.timestamp || header.last_offset() < wanted.from {
                continue;
            }
            let batch = bytes.slice(place.start..place.end);
            let sought = Sought::FirstFrom(wanted.timestamp);
            let found = self.search_batch(batch, sought, wanted.from).await;
            if let Some(hit) = found.map_err(|what| corrupt(extent, what))? {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    /// The largest timestamp in extents at or after offset `from` with the offset of the first
    /// record that has it; `None` if there is no record.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn max_timestamp(
        self: &Arc<Self>,
        list: &ExtentList,
        from: Offset,
    ) -> Result<Option<TimestampHit>, ReadError> {
        let manifests = list
            .manifests
            .iter()
            .filter(|manifest| manifest.end_offset > from);
        let recent = list.recent.iter().filter(|extent| extent.end_offset > from);
        let bounds = manifests.map(|manifest| manifest.max_timestamp);
        let Some(mut bound) = bounds
            .chain(recent.map(|extent| extent.max_timestamp))
            .max()
        else {
            return Ok(None);
        };
        // A bound may stem from a record below `from`: then look for the next lower one.
        loop {
            if let Some(hit) = self
                .first_at_or_after(list, bound, from, Offset(i64::MAX))
                .await?
            {
                return Ok(Some(hit));
            }
            let Some(lower) = self.next_bound(list, from, bound).await? else {
                return Ok(None);
            };
            bound = lower;
        }
    }

    /// The largest chunk maximum below `bound` of chunks that reach `from`.
    async fn next_bound(
        self: &Arc<Self>,
        list: &ExtentList,
        from: Offset,
        bound: i64,
    ) -> Result<Option<i64>, ReadError> {
        let mut best = None;
        let mut offset = from;
        while let Some(extent) = self.extent_at(list, offset).await? {
            offset = extent.end_offset;
            if extent.max_timestamp < bound && extent.base_offset >= from {
                best = best.max(Some(extent.max_timestamp));
                continue;
            }
            let footer = self.footer(&extent).await?;
            let chunks = footer.chunks.iter().skip(footer.chunk_of(from));
            let lower = chunks
                .map(|chunk| chunk.max_timestamp)
                .filter(|max| *max < bound);
            best = best.max(lower.max());
            // The chunk that straddles `from` may hold smaller records only: its batches say.
            best = best.max(self.lower_in_first(&extent, from, bound).await?);
        }
        Ok(best)
    }

    async fn lower_in_first(
        self: &Arc<Self>,
        extent: &Extent,
        from: Offset,
        bound: i64,
    ) -> Result<Option<i64>, ReadError> {
        if extent.base_offset >= from {
            return Ok(None);
        }
        let footer = self.footer(extent).await?;
        let Some(block) = Block::of(&footer, footer.chunk_of(from), extent.size_bytes()) else {
            return Ok(None);
        };
        let bytes = self.block(extent, &footer, &block).await?;
        let mut best = None;
        let mut at = 0;
        while let Some(place) = batch_at(&bytes, at) {
            let place = place.map_err(|what| corrupt(extent, what))?;
            at = place.end;
            if place.header.last_offset() < from {
                continue;
            }
            let lower = self.best_below(&bytes, &place, from, bound).await;
            best = best.max(lower.map_err(|what| corrupt(extent, what))?);
        }
        Ok(best)
    }
}

impl Reader {
    /// The largest record timestamp below `bound` at or after `from` in one batch, if the batch
    /// straddles `from`; else its maximum, if that is below the bound.
    async fn best_below(
        &self,
        bytes: &Bytes,
        place: &Place,
        from: Offset,
        bound: i64,
    ) -> Result<Option<i64>, String> {
        if place.header.base_offset >= from {
            return Ok(Some(place.header.max_timestamp).filter(|max| *max < bound));
        }
        let Some(limit) = bound.checked_sub(1) else {
            return Ok(None);
        };
        let batch = bytes.slice(place.start..place.end);
        let sought = Sought::GreatestUpTo(limit);
        let hit = self.search_batch(batch, sought, from).await?;
        Ok(hit.map(|hit| hit.timestamp))
    }
}

fn corrupt(extent: &Extent, what: impl ToString) -> ReadError {
    ReadError::Corrupt {
        key: keys::data_key(extent.object),
        what: what.to_string(),
    }
}
