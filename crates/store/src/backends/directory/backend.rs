//! The directory as a backend: what blocks runs on threads of its own.

use std::{ops::Range, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;

use super::{Directory, Inner, OpenFile, fs::Space, io_error};
use crate::{
    backend::{Backend, ObjectMeta, Payload, PutAnswer},
    error::{StoreError, StoreErrorKind},
};

impl Directory {
    /// Creates files for the next writes, beside what waits for this one.
    fn prepare(&self, dir: PathBuf) {
        let Some(pause) = self.inner.fs.wants_spares(&dir) else {
            return;
        };
        let (clock, fs) = (self.runtime.clock.clone(), self.inner.fs.clone());
        let tasks = self.runtime.tasks.clone();
        let make = async move {
            if !pause.is_zero() {
                clock.sleep(pause).await;
            }
            // A panic is logged where it is met.
            let _ = tasks
                .blocking("store-spares", move || fs.make_spares(&dir))
                .await;
        };
        drop(self.runtime.tasks.spawn("store-spares", make));
    }

    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        key: &str,
        work: impl FnOnce(&Inner, &str) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        let owned = key.to_owned();
        let run = self
            .runtime
            .tasks
            .blocking("store-file", move || work(&inner, &owned))
            .await;
        run.unwrap_or_else(|panic| {
            let message = panic.to_string();
            Err(StoreError::new(
                StoreErrorKind::Unknown,
                operation,
                key,
                message,
            ))
        })
    }
}

#[async_trait]
impl Backend for Directory {
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        let dir = self.inner.wal_dir(key);
        let answer = if self.inner.writes_at_once(key, dir.as_deref(), &body) {
            self.inner.put(key, &body)
        } else {
            self.blocking("put", key, move |inner, key| inner.put(key, &body))
                .await
        };
        if let Some(dir) = dir {
            self.prepare(dir);
        }
        answer
    }

    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.blocking("get", key, |inner, key| inner.read(key, None))
            .await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.blocking("get", key, |inner, key| inner.read(key, Some(range)))
            .await
    }

    fn open(&self, key: &str) -> Option<(Arc<OpenFile>, u64)> {
        self.inner.lend(key)
    }

    fn opened(&self, key: &str) -> Option<(Arc<OpenFile>, u64)> {
        let (file, len) = self.inner.handles.get(key)?;
        Some((file.shared()?, len))
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.blocking("head", key, Inner::head).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.blocking("delete", key, Inner::delete).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        let after = start_after.map(str::to_owned);
        let work = move |inner: &Inner, prefix: &str| inner.list(prefix, after.as_deref(), limit);
        self.blocking("list", prefix, work).await
    }

    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        let from = from.to_owned();
        self.blocking("copy", to, move |inner, to| inner.copy(&from, to))
            .await
    }

    async fn space(&self) -> Result<Option<Space>, StoreError> {
        self.blocking("space", "", |inner, _| {
            let space = inner.fs.space(&inner.root);
            space
                .map(Some)
                .map_err(|error| io_error("space", "", &error))
        })
        .await
    }

    fn may_tear(&self) -> bool {
        !self.inner.is_synced()
    }

    async fn set_aside(&self, key: &str) -> Result<bool, StoreError> {
        self.blocking("set aside", key, Inner::set_aside).await
    }

    fn links(&self) -> bool {
        true
    }

    fn is_local(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("file:{}", self.inner.root.display())
    }
}
