//! A backend whose requests take as long as a hook says.

use std::{fmt, ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use tidemill_runtime::Runtime;

use super::{Operation, S3Latency, S3Request};
use crate::{
    backend::{Backend, ObjectMeta, Payload, PutAnswer},
    error::StoreError,
};

type Hook = Arc<dyn Fn(&S3Request<'_>) -> S3Latency + Send + Sync>;

/// Wraps a backend with delays, as the S3 server in process has them, without its sockets: for
/// simulated time. A request is carried out in the middle of its delay, and one whose caller is
/// gone before that is not.
#[derive(Clone)]
pub struct DelayedBackend {
    below: Arc<dyn Backend>,
    runtime: Runtime,
    hook: Hook,
}

impl fmt::Debug for DelayedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DelayedBackend").field(&self.below).finish()
    }
}

impl DelayedBackend {
    /// Delays each request of `below` as `hook` says. It is not local, whatever `below` is.
    pub fn new(
        below: Arc<dyn Backend>,
        runtime: Runtime,
        hook: impl Fn(&S3Request<'_>) -> S3Latency + Send + Sync + 'static,
    ) -> Self {
        Self {
            below,
            runtime,
            hook: Arc::new(hook),
        }
    }

    fn latency(&self, operation: Operation, key: &str, bytes: u64) -> S3Latency {
        (self.hook)(&S3Request {
            operation,
            key,
            bytes,
        })
    }

    async fn delayed<T>(&self, latency: S3Latency, request: impl Future<Output = T>) -> T {
        let clock = &self.runtime.clock;
        let start = clock.monotonic();
        clock
            .sleep_until(start + (latency.first_byte + latency.transfer) / 2)
            .await;
        let answer = request.await;
        clock
            .sleep_until(start + latency.first_byte + latency.transfer)
            .await;
        answer
    }

    async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, StoreError> {
        let answer = match range {
            Some(range) => self.below.get_range(key, range).await,
            None => self.below.get(key).await,
        };
        let bytes = answer.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let latency = self.latency(Operation::Get, key, bytes);
        self.delayed(latency, async { answer }).await
    }
}

#[async_trait]
impl Backend for DelayedBackend {
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        let latency = self.latency(Operation::Put, key, body.len());
        self.delayed(latency, self.below.put_if_absent(key, body))
            .await
    }

    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.read(key, None).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.read(key, Some(range)).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let latency = self.latency(Operation::Head, key, 0);
        self.delayed(latency, self.below.head(key)).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let latency = self.latency(Operation::Delete, key, 0);
        self.delayed(latency, self.below.delete(key)).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        let latency = self.latency(Operation::List, prefix, 0);
        self.delayed(latency, self.below.list(prefix, start_after, limit))
            .await
    }

    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        let latency = self.latency(Operation::Copy, to, 0);
        self.delayed(latency, self.below.copy_if_absent(from, to))
            .await
    }

    fn is_local(&self) -> bool {
        false
    }

    fn lists_at_once(&self) -> bool {
        self.below.lists_at_once()
    }

    fn describe(&self) -> String {
        format!("{} with delays", self.below.describe())
    }
}
