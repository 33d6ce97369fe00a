//! Pieces of objects, verified, through the cache.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::{
    ReadError, Reader,
    cache::{Key, Loaded, Value},
    file::Index,
};
use crate::{
    format::{
        data::{self, DataDirectory, Footer},
        manifest,
    },
    keys,
    types::{DataObjectId, Extent, ManifestRef},
};

/// Batches are cached in blocks of about this size, and set objects are read in aligned windows of
/// it: one GET of it costs little more than its base delay.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;
/// Runs up to this size are read through windows that they share with their neighbours in the
/// object.
const SMALL_RUN_BYTES: u64 = 256 << 10;
/// Header and directory of a small data object fit in here.
const DIRECTORY_GUESS_BYTES: u64 = 16 << 10;

/// Consecutive chunks of one run: a unit of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Indices of its chunks.
    pub(super) chunks: Range<usize>,
    /// Bytes within the run.
    pub(super) range: Range<u64>,
}

impl Block {
    /// The block that holds chunk `chunk`: the chunks that begin in the same [`BLOCK_BYTES`].
    pub(super) fn of(footer: &Footer, chunk: usize, run_len: u64) -> Option<Self> {
        let number = |position: u32| u64::from(position) / BLOCK_BYTES;
        let wanted = number(footer.chunks.get(chunk)?.position);
        let start = footer
            .chunks
            .partition_point(|chunk| number(chunk.position) < wanted);
        let end = footer
            .chunks
            .partition_point(|chunk| number(chunk.position) <= wanted);
        let range =
            footer.chunk_range(start, run_len).start..footer.chunk_range(end, run_len).start;
        Some(Self {
            chunks: start..end,
            range,
        })
    }
}

fn corrupt(object: DataObjectId, what: impl ToString) -> ReadError {
    ReadError::Corrupt {
        key: keys::data_key(object),
        what: what.to_string(),
    }
}

impl Reader {
    /// The footer of an extent.
    pub(super) async fn footer(self: &Arc<Self>, extent: &Extent) -> Result<Arc<Index>, ReadError> {
        let key = Key::Footer(extent.object, extent.footer.start);
        let load = || self.load_footer(extent);
        match self.cache.get_or_load(&self.runtime, key, load).await? {
            Value::Footer(footer) => Ok(footer),
            _ => Err(corrupt(extent.object, "footer expected")),
        }
    }

    /// The footer of an extent if it is in memory.
    pub(super) fn footer_ready(&self, extent: &Extent) -> Option<Arc<Index>> {
        match self
            .cache
            .ready(Key::Footer(extent.object, extent.footer.start))
        {
            Some(Value::Footer(footer)) => Some(footer),
            _ => None,
        }
    }

    /// A block of an extent: whole batches whose checksums were verified when it was loaded.
    pub(super) async fn block(
        self: &Arc<Self>,
        extent: &Extent,
        footer: &Arc<Index>,
        block: &Block,
    ) -> Result<Bytes, ReadError> {
        let key = Key::Block(extent.object, extent.range.start + block.range.start);
        let load = || self.load_block(extent, footer, block);
        match self.cache.get_or_load(&self.runtime, key, load).await? {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(corrupt(extent.object, "block expected")),
        }
    }

    /// Starts loading a block that will be read soon.
    pub(super) fn prefetch(self: &Arc<Self>, extent: &Extent, footer: &Arc<Index>, block: &Block) {
        let key = Key::Block(extent.object, extent.range.start + block.range.start);
        let load = || self.load_block(extent, footer, block);
        let _ = self.cache.begin(&self.runtime, key, load);
    }

    /// Starts loading an extent's footer.
    pub(super) fn prefetch_first(self: &Arc<Self>, extent: &Extent) {
        let key = Key::Footer(extent.object, extent.footer.start);
        let _ = self
            .cache
            .begin(&self.runtime, key, || self.load_footer(extent));
    }

    fn load_footer(
        self: &Arc<Self>,
        extent: &Extent,
    ) -> impl Future<Output = Loaded> + Send + 'static {
        let (reader, extent) = (self.clone(), extent.clone());
        async move {
            let decode = |bytes: &Bytes| {
                Footer::decode(bytes, extent.footer_crc, extent.size_bytes())
                    .map(|footer| Value::Footer(Arc::new(footer.into())))
            };
            reader.twice(&extent, extent.footer.clone(), decode).await
        }
    }

    fn load_block(
        self: &Arc<Self>,
        extent: &Extent,
        footer: &Arc<Index>,
        block: &Block,
    ) -> impl Future<Output = Loaded> + Send + 'static {
        let (reader, extent) = (self.clone(), extent.clone());
        let (footer, block) = (footer.clone(), block.clone());
        async move {
            let start = extent.range.start;
            let range = start + block.range.start..start + block.range.end;
            let verify = |bytes: &Bytes| verify(&footer, &block, extent.size_bytes(), bytes);
            reader.twice(&extent, range, verify).await
        }
    }

    /// Reads a range and decodes it; if that fails, once more past every cache.
    async fn twice<E: ToString>(
        self: &Arc<Self>,
        extent: &Extent,
        range: Range<u64>,
        decode: impl Fn(&Bytes) -> Result<Value, E>,
    ) -> Loaded {
        let bytes = self.raw(extent, range.clone()).await?;
        if let Ok(value) = decode(&bytes) {
            return Ok(value);
        }
        let key = keys::data_key(extent.object);
        tracing::warn!(
            key,
            ?range,
            "object does not match its checksum, reading it again"
        );
        let bytes = self.get_range(&key, range).await?;
        decode(&bytes).map_err(|error| corrupt(extent.object, error))
    }

    /// Bytes of a data object. Small runs in buckets come out of windows they share with others.
    async fn raw(self: &Arc<Self>, extent: &Extent, range: Range<u64>) -> Result<Bytes, ReadError> {
        let small = extent.footer.end.saturating_sub(extent.range.start) <= SMALL_RUN_BYTES;
        if self.local || !small || range.is_empty() {
            return self.get_range(&keys::data_key(extent.object), range).await;
        }
        let mut joined: Option<BytesMut> = None;
        for index in range.start / BLOCK_BYTES..=(range.end - 1) / BLOCK_BYTES {
            let window = self.window(extent.object, extent.object_len, index).await?;
            let start = index * BLOCK_BYTES;
            let end = start + window.len() as u64;
            let piece = range.start.max(start)..range.end.min(end);
            if piece.start >= piece.end {
                return Err(corrupt(
                    extent.object,
                    "object is shorter than its extent says",
                ));
            }
            let piece = window.slice(in_memory(piece.start - start)..in_memory(piece.end - start));
            match &mut joined {
                None if piece.len() as u64 == range.end - range.start => return Ok(piece),
                None => joined = Some(BytesMut::from(&piece[..])),
                Some(joined) => joined.extend_from_slice(&piece),
            }
        }
        Ok(joined.unwrap_or_default().freeze())
    }

    async fn window(
        self: &Arc<Self>,
        object: DataObjectId,
        object_len: u64,
        index: u64,
    ) -> Result<Bytes, ReadError> {
        let load = || {
            let reader = self.clone();
            let range = index * BLOCK_BYTES..object_len.min((index + 1) * BLOCK_BYTES);
            async move {
                reader
                    .get_range(&keys::data_key(object), range)
                    .await
                    .map(Value::Bytes)
            }
        };
        match self
            .cache
            .get_or_load(&self.runtime, Key::Window(object, index), load)
            .await?
        {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(corrupt(object, "window expected")),
        }
    }

    /// A range of any object, within the permits of cold reads.
    pub(super) async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ReadError> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await.ok();
        let bytes = self
            .store
            .get_range(key, range.clone())
            .await
            .map_err(ReadError::Store)?;
        if bytes.len() as u64 != range.end - range.start {
            let what = format!("{} bytes of {range:?}", bytes.len());
            return Err(ReadError::Corrupt {
                key: key.to_owned(),
                what,
            });
        }
        Ok(bytes)
    }

    /// The extents of a manifest.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn manifest(
        self: &Arc<Self>,
        manifest: &ManifestRef,
    ) -> Result<Arc<Vec<Extent>>, ReadError> {
        let load = || {
            let (reader, manifest) = (self.clone(), manifest.clone());
            async move {
                let key = keys::data_key(manifest.object);
                let mut bytes = reader.get_range(&key, manifest.range.clone()).await?;
                if manifest::decode_list(&bytes, &manifest).is_err() {
                    bytes = reader.get_range(&key, manifest.range.clone()).await?;
                }
                let list = manifest::decode_list(&bytes, &manifest);
                let list = list.map_err(|error| corrupt(manifest.object, error))?;
                Ok(Value::Manifest(Arc::new(list)))
            }
        };
        let key = Key::Manifest(manifest.object, manifest.range.start);
        match self.cache.get_or_load(&self.runtime, key, load).await? {
            Value::Manifest(list) => Ok(list),
            _ => Err(corrupt(manifest.object, "manifest expected")),
        }
    }

    /// The directory of a data object.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn directory(
        self: &Arc<Self>,
        object: DataObjectId,
        object_len: u64,
    ) -> Result<Arc<DataDirectory>, ReadError> {
        let load = || {
            let reader = self.clone();
            async move {
                let directory = reader.load_directory(object, object_len).await?;
                Ok(Value::Directory(Arc::new(directory)))
            }
        };
        match self
            .cache
            .get_or_load(&self.runtime, Key::Directory(object), load)
            .await?
        {
            Value::Directory(directory) => Ok(directory),
            _ => Err(corrupt(object, "directory expected")),
        }
    }

    async fn load_directory(
        &self,
        object: DataObjectId,
        object_len: u64,
    ) -> Result<DataDirectory, ReadError> {
        let key = keys::data_key(object);
        let guess = object_len.min(DIRECTORY_GUESS_BYTES);
        let mut bytes = self.get_range(&key, 0..guess).await?;
        let end = data::directory_end(&bytes).map_err(|error| corrupt(object, error))?;
        if end > bytes.len() as u64 {
            bytes = self.get_range(&key, 0..end.min(object_len)).await?;
        }
        DataDirectory::decode(&bytes).map_err(|error| corrupt(object, error))
    }
}

/// An index into a slice that is in memory.
pub(super) fn in_memory(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

fn verify(
    footer: &Footer,
    block: &Block,
    run_len: u64,
    bytes: &Bytes,
) -> Result<Value, &'static str> {
    for index in block.chunks.clone() {
        let range = footer.chunk_range(index, run_len);
        let range =
            in_memory(range.start - block.range.start)..in_memory(range.end - block.range.start);
        let chunk = bytes.get(range).ok_or("block is short")?;
        if footer.chunks.get(index).map(|chunk| chunk.crc) != Some(crc32c::crc32c(chunk)) {
            return Err("checksum of batches does not match");
        }
    }
    Ok(Value::Bytes(bytes.clone()))
}
