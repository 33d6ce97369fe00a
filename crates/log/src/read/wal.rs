//! Reads of batches whose only copy is in the WAL.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tidemill_store::NumberedLog;
use tidemill_wire::ids::WriterId;

use super::{
    ReadError, Reader,
    cache::{Key, Value},
    fetch::in_memory,
};
use crate::{
    keys,
    limits::BATCHES_IN_A_ROW,
    types::{TailBatch, WalPosition},
};

/// Ranges of one WAL object that lie no farther apart are read by one request: the bytes between
/// them cost less than a request.
const GAP_BYTES: u64 = 64 << 10;
/// Most bytes asked for in one request.
const REQUEST_BYTES_MAX: u64 = 4 << 20;
/// Requests of one call under way at once.
const CONCURRENCY: usize = 8;

/// A batch's bytes, slices in order.
pub type BatchBytes = Vec<Bytes>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Others will soon want the same.
    Keep,
    /// Read once (the roll).
    Pass,
}

/// One request: a range of a WAL object.
#[derive(Clone, Debug)]
struct Piece {
    position: WalPosition,
    range: Range<u64>,
}

impl Reader {
    /// The bytes of `batches`, from memory where they are there, else from the WAL, checked against
    /// their checksums.
    ///
    /// # Errors
    /// [`ReadError`]; a missing object means that the batch has moved into an extent.
    pub(crate) async fn batch_bytes(
        self: &Arc<Self>,
        batches: &[TailBatch],
        caching: Caching,
    ) -> Result<Vec<BatchBytes>, ReadError> {
        let pieces = plan(batches);
        let loads = pieces.into_iter().map(|piece| {
            let reader = self.clone();
            async move {
                let bytes = reader.wal_piece(&piece, caching).await?;
                Ok::<_, ReadError>(((piece.position, piece.range.start), bytes))
            }
        });
        let loaded: BTreeMap<_, _> = stream::iter(loads)
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await?;
        let mut out = Vec::with_capacity(batches.len());
        for batch in batches {
            out.push(match assemble(batch, &loaded) {
                Some(bytes) => bytes,
                None => vec![self.reread(batch).await?],
            });
            if out.len() % BATCHES_IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(out)
    }

    async fn wal_piece(
        self: &Arc<Self>,
        piece: &Piece,
        caching: Caching,
    ) -> Result<Bytes, ReadError> {
        let key = wal_key(self, piece.position);
        if caching == Caching::Pass {
            return self.get_range(&key, piece.range.clone()).await;
        }
        let load = || {
            let (reader, range) = (self.clone(), piece.range.clone());
            async move { reader.get_range(&key, range).await.map(Value::Bytes) }
        };
        let cache_key = Key::Wal(piece.position, piece.range.start, piece.range.end);
        match self
            .cache
            .get_or_load(&self.runtime, cache_key, load)
            .await?
        {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Ok(Bytes::new()),
        }
    }

    /// Reads one batch again, past the cache, after its checksum did not match.
    async fn reread(self: &Arc<Self>, batch: &TailBatch) -> Result<Bytes, ReadError> {
        let mut bytes = bytes::BytesMut::with_capacity(batch.size_bytes as usize);
        let mut last_key = String::new();
        for span in &batch.spans {
            last_key = wal_key(self, span.position);
            bytes.extend_from_slice(&self.get_range(&last_key, span.range.clone()).await?);
        }
        if crc32c::crc32c(&bytes) == batch.crc {
            return Ok(bytes.freeze());
        }
        let what = format!(
            "checksum of the batch at {} does not match",
            batch.base_offset
        );
        Err(ReadError::Corrupt {
            key: last_key,
            what,
        })
    }
}

pub(super) fn wal_key(reader: &Reader, position: WalPosition) -> String {
    wal_log(reader, position.writer).key(position.number)
}

fn wal_log(reader: &Reader, writer: WriterId) -> NumberedLog {
    NumberedLog::new(reader.store.clone(), keys::wal_prefix(writer))
}

/// The requests that give all spans of batches without bytes, ascending.
fn plan(batches: &[TailBatch]) -> Vec<Piece> {
    let missing = batches.iter().filter(|batch| batch.data.is_none());
    let mut spans: Vec<_> = missing.flat_map(|batch| &batch.spans).collect();
    spans.sort_by_key(|span| (span.position, span.range.start));
    let mut pieces: Vec<Piece> = Vec::new();
    for span in spans {
        if let Some(last) = pieces.last_mut()
            && last.position == span.position
            && span.range.start <= last.range.end + GAP_BYTES
            && span.range.end - last.range.start <= REQUEST_BYTES_MAX
        {
            last.range.end = last.range.end.max(span.range.end);
            continue;
        }
        pieces.push(Piece {
            position: span.position,
            range: span.range.clone(),
        });
    }
    pieces
}

/// A batch's bytes out of what was read; `None` if they do not match its checksum.
fn assemble(batch: &TailBatch, loaded: &BTreeMap<(WalPosition, u64), Bytes>) -> Option<BatchBytes> {
    if let Some(data) = &batch.data {
        let slices = [&data.head, &data.rest];
        return Some(
            slices
                .into_iter()
                .filter(|s| !s.is_empty())
                .cloned()
                .collect(),
        );
    }
    let mut out = Vec::with_capacity(batch.spans.len());
    let mut crc = 0;
    for span in &batch.spans {
        let upto = (span.position, span.range.start);
        let ((position, start), bytes) = loaded.range(..=upto).next_back()?;
        if *position != span.position {
            return None;
        }
        let range = in_memory(span.range.start - start)..in_memory(span.range.end - start);
        if range.end > bytes.len() {
            return None;
        }
        let slice = bytes.slice(range);
        crc = crc32c::crc32c_append(crc, &slice);
        out.push(slice);
    }
    (crc == batch.crc).then_some(out)
}
