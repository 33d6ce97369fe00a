//! A bounded cache whose misses are loaded once, however many wait for them.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_runtime::Runtime;
use tidemill_store::{StoreError, StoreErrorKind};
use tokio::sync::watch;

use super::{ReadError, file::Index};
use crate::{
    format::data::DataDirectory,
    types::{DataObjectId, Extent, WalPosition},
};

/// What is cached. All of it is immutable, so nothing ever goes stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// The footer at a position of an object.
    Footer(DataObjectId, u64),
    /// Whole, verified batches from a position of an object.
    Block(DataObjectId, u64),
    /// An aligned piece of an object, as the store gave it.
    Window(DataObjectId, u64),
    /// The extent list at a position of an object.
    Manifest(DataObjectId, u64),
    /// An object's directory.
    Directory(DataObjectId),
    /// Bytes of a WAL object: position, start, end.
    Wal(WalPosition, u64, u64),
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Bytes(Bytes),
    Footer(Arc<Index>),
    Manifest(Arc<Vec<Extent>>),
    Directory(Arc<DataDirectory>),
}

impl Value {
    fn weight(&self) -> u64 {
        let len = match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Footer(footer) => {
                let checked = footer.chunks.len() * size_of::<u32>();
                size_of_val(footer.chunks.as_slice())
                    + size_of_val(footer.aborted.as_slice())
                    + checked
            }
            Self::Manifest(extents) => size_of_val(extents.as_slice()),
            Self::Directory(directory) => size_of_val(directory.runs.as_slice()),
        };
        len as u64 + ENTRY_OVERHEAD
    }
}

/// Bytes that an entry costs beside its value, about.
const ENTRY_OVERHEAD: u64 = 256;

pub(super) type Loaded = Result<Value, ReadError>;

#[derive(Debug)]
enum Slot {
    Ready {
        value: Value,
        weight: u64,
        tick: u64,
    },
    Loading(watch::Receiver<Option<Loaded>>),
}

#[derive(Debug, Default)]
struct Inner {
    slots: HashMap<Key, Slot>,
    /// Ready entries by the tick of their last use.
    order: BTreeMap<u64, Key>,
    tick: u64,
    bytes: u64,
}

#[derive(Debug)]
pub(super) struct Cache {
    inner: Mutex<Inner>,
    limit: u64,
}

impl Inner {
    fn get(&mut self, key: Key) -> Option<Value> {
        let next = self.tick + 1;
        let Some(Slot::Ready { value, tick, .. }) = self.slots.get_mut(&key) else {
            return None;
        };
        let value = value.clone();
        let before = std::mem::replace(tick, next);
        self.tick = next;
        self.order.remove(&before);
        self.order.insert(next, key);
        Some(value)
    }

    fn insert(&mut self, key: Key, value: Value, limit: u64) {
        self.tick += 1;
        let (tick, weight) = (self.tick, value.weight());
        self.slots.insert(
            key,
            Slot::Ready {
                value,
                weight,
                tick,
            },
        );
        self.order.insert(tick, key);
        self.bytes += weight;
        while self.bytes > limit {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            if let Some(Slot::Ready { weight, .. }) = self.slots.remove(&oldest) {
                self.bytes -= weight;
            }
        }
    }
}

/// A load under way; frees its slot if it never lands.
struct Flight {
    cache: Arc<Cache>,
    key: Key,
    landed: bool,
}

impl Flight {
    fn land(&mut self, loaded: &Loaded) {
        let mut inner = self.cache.inner.lock();
        match loaded {
            Ok(value) => inner.insert(self.key, value.clone(), self.cache.limit),
            Err(_) => drop(inner.slots.remove(&self.key)),
        }
        self.landed = true;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.landed {
            self.cache.inner.lock().slots.remove(&self.key);
        }
    }
}

impl Cache {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            inner: Mutex::default(),
            limit,
        }
    }

    /// The value, if it is there now.
    pub(super) fn ready(&self, key: Key) -> Option<Value> {
        self.inner.lock().get(key)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.inner.lock().bytes
    }

    /// The cached value, or what `load` gives. The load is a task of its own: no caller that gives
    /// up takes it away from the others.
    pub(super) async fn get_or_load<F>(
        self: &Arc<Self>,
        runtime: &Runtime,
        key: Key,
        load: impl FnOnce() -> F,
    ) -> Loaded
    where
        F: Future<Output = Loaded> + Send + 'static,
    {
        let mut receiver = match self.begin(runtime, key, load) {
            Ok(value) => return Ok(value),
            Err(receiver) => receiver,
        };
        match receiver.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(loaded)) => loaded.clone(),
            _ => Err(ReadError::Store(StoreError::new(
                StoreErrorKind::Unavailable,
                "get",
                "",
                "the load was given up",
            ))),
        }
    }

    /// Starts the load unless the value is there or under way.
    pub(super) fn begin<F>(
        self: &Arc<Self>,
        runtime: &Runtime,
        key: Key,
        load: impl FnOnce() -> F,
    ) -> Result<Value, watch::Receiver<Option<Loaded>>>
    where
        F: Future<Output = Loaded> + Send + 'static,
    {
        let mut inner = self.inner.lock();
        if let Some(value) = inner.get(key) {
            return Ok(value);
        }
        if let Some(Slot::Loading(receiver)) = inner.slots.get(&key) {
            return Err(receiver.clone());
        }
        let (sender, receiver) = watch::channel(None);
        inner.slots.insert(key, Slot::Loading(receiver.clone()));
        drop(inner);
        let mut flight = Flight {
            cache: self.clone(),
            key,
            landed: false,
        };
        let load = load();
        runtime.tasks.spawn("log-read", async move {
            let loaded = load.await;
            flight.land(&loaded);
            sender.send_replace(Some(loaded));
        });
        Err(receiver)
    }
}
