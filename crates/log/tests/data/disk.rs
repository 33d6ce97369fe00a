//! A disk that may fill.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use tidemill_log::LogLimits;
use tidemill_store::{
    Backend, Memory, ObjectMeta, Payload, PutAnswer, Space, Store, StoreError, StoreErrorKind,
    StoreOptions,
};

use crate::harness::World;

pub const MIB: u64 = 1 << 20;
pub const DISK: u64 = 16 * MIB;
/// What the floor comes to on such a disk.
pub const FLOOR: u64 = DISK / 8;

/// Memory of a limited size.
#[derive(Debug)]
pub struct Disk {
    pub memory: Arc<Memory>,
    pub total: u64,
    /// What others have put there.
    pub foreign: AtomicU64,
    /// Writes that found no space.
    pub refused: AtomicU64,
    /// The least that was ever free.
    pub least: AtomicU64,
}

impl Disk {
    pub async fn free(&self) -> u64 {
        let all = self.memory.list("", None, usize::MAX).await.unwrap();
        let used: u64 = all.iter().map(|meta| meta.size).sum();
        let foreign = self.foreign.load(Ordering::Relaxed);
        self.total.saturating_sub(used + foreign)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Backend for Disk {
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        let free = self.free().await;
        if body.len() > free {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let kind = StoreErrorKind::Full;
            return Err(StoreError::new(kind, "put", key, "no space left"));
        }
        self.least.fetch_min(free - body.len(), Ordering::Relaxed);
        self.memory.put_if_absent(key, body).await
    }
    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.memory.get(key).await
    }
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.memory.get_range(key, range).await
    }
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.memory.head(key).await
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.memory.delete(key).await
    }
    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        self.memory.list(prefix, start_after, limit).await
    }
    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        self.memory.copy_if_absent(from, to).await
    }
    async fn space(&self) -> Result<Option<Space>, StoreError> {
        let (free, total) = (self.free().await, self.total);
        Ok(Some(Space { free, total }))
    }
    fn is_local(&self) -> bool {
        true
    }
    fn describe(&self) -> String {
        "disk:".to_owned()
    }
}

pub fn with_disk(world: &mut World, total: u64) -> Arc<Disk> {
    let disk = Arc::new(Disk {
        memory: world.memory.clone(),
        total,
        foreign: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        least: AtomicU64::new(u64::MAX),
    });
    let options = StoreOptions::default();
    world.store = Store::new(disk.clone(), world.runtime.clone(), options);
    disk
}

/// Limits of a broker that would roll far later than such a disk is full.
pub fn limits() -> LogLimits {
    LogLimits {
        free_bytes_min: 64 * MIB,
        ..LogLimits::local()
    }
}
