//! Reads of what is not in memory: extents, manifests and WAL spans, through one cache.

mod cache;
mod extents;
mod fetch;
mod file;
mod partition;
mod search;
mod wal;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tidemill_runtime::{Instant, Runtime};
use tidemill_store::{Store, StoreError, StoreErrorKind};
use tidemill_wire::ids::{Offset, PartitionId};
use tokio::sync::Semaphore;

use crate::format::data::AbortedTransaction;

pub use file::ReadSlice;
pub use partition::{Isolation, ReadRequest, ReadResult, TimestampOffset};
pub(crate) use wal::{BatchBytes, Caching};

/// Limits of cold reads. All settable.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Bytes of blocks, footers and manifests kept in memory.
    pub cache_bytes: u64,
    /// Requests to the store at once, so that cold reads never crowd out the WAL.
    pub permits: usize,
    /// Blocks loaded ahead of the front of a partition that is read in order.
    pub read_ahead_blocks: usize,
}

impl ReadOptions {
    /// Limits for a local directory: the page cache answers, so little is kept or read ahead.
    #[must_use]
    pub fn local() -> Self {
        Self {
            cache_bytes: 32 << 20,
            permits: 8,
            read_ahead_blocks: 2,
        }
    }

    /// Limits for a bucket: at 30 ms and 85 MB/s a GET, four blocks ahead keep 25 MB/s a partition.
    #[must_use]
    pub fn bucket() -> Self {
        Self {
            cache_bytes: 128 << 20,
            permits: 64,
            read_ahead_blocks: 4,
        }
    }
}

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The offset is below the log start or above the high watermark (K15).
    OutOfRange,
    /// What is stored does not match its checksums, twice.
    Corrupt {
        /// The object's key.
        key: String,
        /// What is wrong.
        what: String,
    },
    /// The store did not answer, or an object is missing.
    Store(StoreError),
    /// The partition was deleted, or the log closed, while it was read.
    Gone(PartitionId),
}

impl ReadError {
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Store(error) if error.kind == StoreErrorKind::NotFound)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => f.write_str("offset is out of range"),
            Self::Corrupt { key, what } => write!(f, "object `{key}` is corrupt: {what}"),
            Self::Store(error) => error.fmt(f),
            Self::Gone(partition) => write!(f, "partition `{partition}` is gone"),
        }
    }
}

impl std::error::Error for ReadError {}

/// What to read of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRead {
    /// Where to begin; inside a batch gives the whole batch (K10).
    pub offset: Offset,
    /// No batch that begins at or above this is returned (high watermark or last stable offset).
    pub end: Offset,
    /// Bytes at most; batches are never cut.
    pub max_bytes: usize,
    /// Return the first batch even if it is larger than `max_bytes` (K11).
    pub at_least_one: bool,
}

/// Whole batches in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slices<S = Bytes> {
    /// Their bytes; one slice may hold many batches.
    pub slices: Vec<S>,
    /// Sum of the slices' lengths.
    pub size: usize,
    /// Where the next read goes on; the offset asked for if nothing was found.
    pub next_offset: Offset,
    /// Aborted transactions that overlap what was read.
    pub aborted: Vec<AbortedTransaction>,
}

/// Reads extents, manifests and WAL spans from the store. One per log.
#[derive(Debug)]
pub struct Reader {
    store: Store,
    runtime: Runtime,
    options: ReadOptions,
    cache: Arc<cache::Cache>,
    permits: Arc<Semaphore>,
    /// Of checks of local files under way.
    checks: Semaphore,
    /// Of searches in batches under way.
    searches: Semaphore,
    buffers: file::Buffers,
    began: Instant,
    local: bool,
}

impl Reader {
    /// A reader with an empty cache.
    #[must_use]
    pub fn new(store: Store, runtime: Runtime, options: ReadOptions) -> Arc<Self> {
        Arc::new(Self {
            local: store.is_local(),
            cache: Arc::new(cache::Cache::new(options.cache_bytes)),
            permits: Arc::new(Semaphore::new(options.permits)),
            checks: Semaphore::new(file::CHECKS),
            searches: Semaphore::new(search::SEARCHES),
            buffers: file::Buffers::default(),
            began: runtime.clock.monotonic(),
            store,
            runtime,
            options,
        })
    }

    /// Bytes held by the cache.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.cache.bytes()
    }

    /// The store read from.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }
}
