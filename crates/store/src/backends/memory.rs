//! Objects in memory: for tests, simulation and `--data memory:`.

use std::{
    collections::BTreeMap,
    ops::{Bound, Range},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;
use tidemill_runtime::Clock;

use crate::{
    backend::{Backend, ObjectMeta, Payload, PutAnswer},
    error::{StoreError, StoreErrorKind},
};

#[derive(Clone, Debug)]
struct Object {
    bytes: Bytes,
    modified_ms: i64,
}

/// Objects in memory. Clones share them, so a "restarted" broker of a test finds what it wrote.
#[derive(Clone, Debug)]
pub struct Memory {
    objects: Arc<RwLock<BTreeMap<String, Object>>>,
    clock: Clock,
}

impl Memory {
    /// An empty store whose times of writing come from `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            objects: Arc::default(),
            clock,
        }
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.read().len()
    }

    /// True if there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.read().is_empty()
    }

    fn insert(&self, key: &str, bytes: Bytes) -> PutAnswer {
        let modified_ms = self.clock.now_ms();
        let mut objects = self.objects.write();
        if objects.contains_key(key) {
            return PutAnswer::Exists;
        }
        objects.insert(key.to_owned(), Object { bytes, modified_ms });
        PutAnswer::Created
    }

    fn find(&self, operation: &'static str, key: &str) -> Result<Object, StoreError> {
        self.objects.read().get(key).cloned().ok_or_else(|| {
            StoreError::new(StoreErrorKind::NotFound, operation, key, "no such object")
        })
    }
}

fn join(body: &Payload) -> Bytes {
    if let [only] = body.slices() {
        return only.clone();
    }
    let mut out = BytesMut::new();
    for slice in body.slices() {
        out.extend_from_slice(slice);
    }
    out.freeze()
}

#[async_trait]
impl Backend for Memory {
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        crate::key::check("put", key)?;
        Ok(self.insert(key, join(&body)))
    }

    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        Ok(self.find("get", key)?.bytes)
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let bytes = self.find("get", key)?.bytes;
        crate::key::check_range(key, &range, bytes.len() as u64)?;
        // In range of a buffer in memory, so it fits.
        let start = usize::try_from(range.start).unwrap_or(usize::MAX);
        let end = usize::try_from(range.end).unwrap_or(usize::MAX);
        Ok(bytes.slice(start..end))
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let object = self.find("head", key)?;
        Ok(ObjectMeta {
            key: key.to_owned(),
            size: object.bytes.len() as u64,
            modified_ms: object.modified_ms,
        })
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        crate::key::check("delete", key)?;
        self.objects.write().remove(key);
        Ok(())
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        let after = start_after.filter(|after| *after >= prefix);
        let from = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix),
        };
        let objects = self.objects.read();
        let found = objects
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(limit)
            .map(|(key, object)| ObjectMeta {
                key: key.clone(),
                size: object.bytes.len() as u64,
                modified_ms: object.modified_ms,
            })
            .collect();
        Ok(found)
    }

    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        crate::key::check("copy", to)?;
        let source = self.find("copy", from)?;
        Ok(self.insert(to, source.bytes))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "memory:".to_owned()
    }
}
