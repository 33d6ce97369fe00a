//! The operations a store must offer.

use std::{fmt::Debug, ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    backends::directory::{OpenFile, fs::Space},
    error::StoreError,
};

/// An object's body as slices, in order; handed to the store without being joined.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    slices: Vec<Bytes>,
    len: u64,
}

impl Payload {
    /// An empty payload.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a slice; empty ones are left out.
    pub fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.len += slice.len() as u64;
            self.slices.push(slice);
        }
    }

    /// The slices in order.
    #[must_use]
    pub fn slices(&self) -> &[Bytes] {
        &self.slices
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        let mut payload = Self::new();
        payload.push(bytes);
        payload
    }
}

impl FromIterator<Bytes> for Payload {
    fn from_iter<I: IntoIterator<Item = Bytes>>(slices: I) -> Self {
        let mut payload = Self::new();
        for slice in slices {
            payload.push(slice);
        }
        payload
    }
}

/// What a listing says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// The key below the store's root.
    pub key: String,
    /// Length in bytes.
    pub size: u64,
    /// When it was last written, Unix milliseconds by the store's clock. For reports only (R6).
    pub modified_ms: i64,
}

/// The answer to a put-if-absent that reached the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutAnswer {
    /// This call created the object.
    Created,
    /// The store says that the key is taken, or that a conflicting request is under way (409).
    /// Not a proof that an object exists, and it may be our own (R2).
    Exists,
}

/// A store. One call is one request: implementations neither retry nor hedge, and every one of them
/// passes the conformance suite.
///
/// Keys are relative to the root the backend was opened with, `/`-separated, without leading slash.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// Creates `key` with `body` unless it exists. Durable when it returns [`PutAnswer::Created`].
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError>;

    /// Reads the whole object.
    async fn get(&self, key: &str) -> Result<Bytes, StoreError>;

    /// Reads `range` (bytes). A range that ends beyond the object is an error.
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError>;

    /// The object as an open file, and its length, where objects are files of this machine and not
    /// too many of them are open; `None` is no failure, and [`Backend::get_range`] is to be asked.
    /// May block.
    fn open(&self, key: &str) -> Option<(Arc<OpenFile>, u64)> {
        let _ = key;
        None
    }

    /// The same if the file is open already. Does not block.
    fn opened(&self, key: &str) -> Option<(Arc<OpenFile>, u64)> {
        let _ = key;
        None
    }

    /// Size and time of an object.
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError>;

    /// Deletes an object; one that does not exist is success.
    async fn delete(&self, key: &str) -> Result<(), StoreError>;

    /// Objects whose key starts with `prefix` (a folder, ending in `/`, or empty) and is greater
    /// than
    /// `start_after`, in ascending order, at most `limit`. Fewer than `limit` means the end.
    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError>;

    /// Copies `from` to `to` on the store's side unless `to` exists. Byte for byte, put id
    /// included.
    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError>;

    /// Free and total space; `None` where there is no such limit.
    async fn space(&self) -> Result<Option<Space>, StoreError> {
        Ok(None)
    }

    /// True if a crash may leave an object that was never whole, and may lose acknowledged ones: a
    /// directory under `local.sync = os`.
    fn may_tear(&self) -> bool {
        false
    }

    /// Moves a torn object out of the way, to where no key reaches it; true if this store can and
    /// there was one. Only for stores that [may tear](Backend::may_tear).
    async fn set_aside(&self, key: &str) -> Result<bool, StoreError> {
        let _ = key;
        Ok(false)
    }

    /// True if what a listing shows from a key on stood there at one moment, as far as a page goes.
    /// False where listings have no order (S3 Express): all pages are needed, and what is written
    /// meanwhile may be missed while what is older is already gone.
    fn lists_at_once(&self) -> bool {
        true
    }

    /// True if a copy is one more name of the same file and takes no space of its own: a directory.
    fn links(&self) -> bool {
        false
    }

    /// True if the store is a local directory or memory: requests cost no money and no round trip.
    fn is_local(&self) -> bool;

    /// A name for logs and errors, such as `file:/data` or `s3://bucket/prefix`; no secrets.
    fn describe(&self) -> String;
}
