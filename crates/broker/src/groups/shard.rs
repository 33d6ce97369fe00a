//! The groups of one partition of `__consumer_offsets`, and their records.
//!
//! A record is appended under the queue's lock, so that the queue is in offset order; one task
//! takes the queue's front when it is durable and applies what follows from it (R1). The newest
//! record of each key is kept beside, which makes a snapshot the compacted partition: it is
//! appended when enough has been written since the last one, and what lies before it is trimmed.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tidemill_log::{Appended, Entry, Latency, Log};
use tidemill_runtime::{Instant, Runtime};
use tidemill_wire::{
    ErrorCode, Str,
    batch::{BatchBuilder, Compression, NewRecord, ValidBatch, ValidateOptions, validate},
    ids::PartitionId,
};
use tokio::sync::{Notify, oneshot, watch};

use super::{
    cell::Cell,
    machine::{Group, GroupLimits, StoreReason},
    record::OffsetValue,
    timers::Timers,
};

/// A snapshot is taken when so many bytes were appended since the last, and twice its size.
const SNAPSHOT_BYTES_MIN: u64 = 1 << 20;
/// Bytes of records in one batch of a snapshot.
const SNAPSHOT_BATCH_BYTES: usize = 1 << 20;

/// A record: a value, or none to delete the key.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Option<Bytes>,
}

/// What follows once a record is durable.
pub(crate) enum Then {
    /// The state machine hears of it.
    Stored {
        /// The group.
        cell: Arc<Mutex<Cell>>,
        /// What was stored.
        reason: StoreReason,
    },
    /// Offsets count from now on.
    Offsets {
        /// The group.
        cell: Arc<Mutex<Cell>>,
        /// The offsets.
        items: Vec<(Str, i32, OffsetValue)>,
        /// Whoever waits.
        done: oneshot::Sender<Result<(), ErrorCode>>,
    },
    /// Offsets are gone from now on: not before, or an earlier commit would bring them back.
    Forgotten {
        /// The group.
        cell: Arc<Mutex<Cell>>,
        /// The offsets.
        gone: Vec<(Str, i32)>,
        /// Whoever waits.
        done: oneshot::Sender<Result<(), ErrorCode>>,
    },
    /// Somebody waits, nothing changes.
    Tell(oneshot::Sender<Result<(), ErrorCode>>),
    /// A batch of a snapshot; after the last one the log may begin at the first.
    Snapshot {
        /// True for the first batch.
        is_first: bool,
        /// True for the last batch.
        is_last: bool,
    },
}

/// How far a shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its records are being read.
    Loading,
    /// It serves.
    Serving,
    /// Its records cannot be read, or it is led elsewhere.
    Failed,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Appended, Then)>,
    /// The newest record of each key.
    newest: BTreeMap<Bytes, Bytes>,
    newest_bytes: u64,
    since_snapshot: u64,
    is_snapshotting: bool,
    /// The log is gone.
    is_closed: bool,
}

/// The groups of one partition.
pub(crate) struct Shard {
    /// The partition.
    pub partition: PartitionId,
    /// The log.
    pub log: Arc<Log>,
    /// Clock, entropy, tasks.
    pub runtime: Runtime,
    /// Deadlines of its groups.
    pub timers: Timers,
    /// How far it is.
    pub phase: watch::Sender<Phase>,
    groups: RwLock<BTreeMap<String, Arc<Mutex<Cell>>>>,
    queue: Mutex<Queue>,
    pushed: Notify,
    origin: Instant,
}

impl Shard {
    /// A shard that has to be loaded.
    pub fn new(partition: PartitionId, log: Arc<Log>, runtime: Runtime) -> Arc<Self> {
        Arc::new(Self {
            partition,
            log,
            origin: runtime.clock.monotonic(),
            runtime,
            timers: Timers::default(),
            phase: watch::channel(Phase::Loading).0,
            groups: RwLock::default(),
            queue: Mutex::default(),
            pushed: Notify::new(),
        })
    }

    /// Monotonic milliseconds, the state machines' time.
    pub fn now_ms(&self) -> i64 {
        let since = self
            .runtime
            .clock
            .monotonic()
            .saturating_duration_since(self.origin);
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// The instant at which [`Shard::now_ms`] is `at_ms`.
    pub fn instant(&self, at_ms: i64) -> Instant {
        self.origin + std::time::Duration::from_millis(u64::try_from(at_ms).unwrap_or(0))
    }

    /// A group that exists.
    pub fn group(&self, id: &str) -> Option<Arc<Mutex<Cell>>> {
        self.groups.read().get(id).cloned()
    }

    /// A group, made if need be.
    pub fn group_or_new(&self, id: &str) -> Arc<Mutex<Cell>> {
        if let Some(cell) = self.group(id) {
            return cell;
        }
        let now_ms = self.runtime.clock.now_ms();
        let new = || Cell::new(Group::new(id), BTreeMap::new(), now_ms);
        self.groups
            .write()
            .entry(id.to_owned())
            .or_insert_with(new)
            .clone()
    }

    /// All groups, ordered by id.
    pub fn all(&self) -> Vec<Arc<Mutex<Cell>>> {
        self.groups.read().values().cloned().collect()
    }

    /// Takes a group in, while loading.
    pub fn put(&self, id: String, cell: Arc<Mutex<Cell>>) {
        self.groups.write().insert(id, cell);
    }

    /// Takes a group out.
    pub fn remove(&self, id: &str) {
        self.groups.write().remove(id);
    }

    /// Notes a record found while loading.
    pub fn found(&self, key: Bytes, value: Option<Bytes>) {
        self.queue.lock().note(key, value);
    }

    /// Appends records as one atomic batch; `then` follows when they are durable.
    ///
    /// # Errors
    /// They cannot be appended: the partition is led elsewhere, or the log is closed.
    pub fn append(&self, changes: Vec<Change>, then: Then) -> Result<(), ErrorCode> {
        let batch = build(&changes, self.runtime.clock.now_ms())?;
        let mut queue = self.queue.lock();
        if queue.is_closed {
            // Nobody takes from it any more: whoever waited would wait for ever.
            return Err(ErrorCode::NOT_COORDINATOR);
        }
        let appended = self.push(batch)?;
        queue.waiting.push_back((appended, then));
        for change in changes {
            queue.note(change.key, change.value);
        }
        self.snapshot_if_due(&mut queue);
        drop(queue);
        self.pushed.notify_one();
        Ok(())
    }

    fn push(&self, batch: ValidBatch) -> Result<Appended, ErrorCode> {
        let entry = Entry::records(self.partition, batch, Latency::Low);
        let appended = self.log.append(entry).map_err(|error| {
            tracing::warn!(partition = %self.partition, %error, "group record refused");
            ErrorCode::NOT_COORDINATOR
        })?;
        appended
            .into_iter()
            .next()
            .ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)
    }

    fn snapshot_if_due(&self, queue: &mut Queue) {
        let enough = SNAPSHOT_BYTES_MIN.max(queue.newest_bytes * 2);
        if queue.is_snapshotting || queue.since_snapshot < enough {
            return;
        }
        let batches = queue.batches();
        let last = batches.len().saturating_sub(1);
        let now_ms = self.runtime.clock.now_ms();
        for (index, changes) in batches.iter().enumerate() {
            let appended = build(changes, now_ms).and_then(|batch| self.push(batch));
            let Ok(appended) = appended else { return };
            let then = Then::Snapshot {
                is_first: index == 0,
                is_last: index == last,
            };
            queue.waiting.push_back((appended, then));
            queue.is_snapshotting = true;
        }
        queue.since_snapshot = 0;
    }

    /// Applies records as they become durable. Ends when the log does.
    pub async fn apply(self: Arc<Self>, limits: Arc<GroupLimits>) {
        let mut snapshot_start = None;
        loop {
            let front = self.queue.lock().waiting.pop_front();
            let Some((appended, then)) = front else {
                self.pushed.notified().await;
                continue;
            };
            let committed = appended.wait().await.ok();
            if let (Then::Snapshot { is_first, is_last }, Some(committed)) = (&then, committed) {
                if *is_first {
                    snapshot_start = Some(committed.base_offset);
                }
                if *is_last {
                    self.trim_below(snapshot_start.take());
                }
            }
            self.follow(then, committed.is_some(), &limits);
            if committed.is_none() {
                self.fail(&limits);
                return;
            }
        }
    }

    fn trim_below(&self, start: Option<tidemill_wire::ids::Offset>) {
        self.queue.lock().is_snapshotting = false;
        let Some(start) = start else { return };
        let entry = Entry::log_start(self.partition, start, Latency::Economy);
        if let Err(error) = self.log.append(entry) {
            tracing::warn!(partition = %self.partition, %error, "group records not trimmed");
        }
    }

    fn follow(&self, then: Then, is_durable: bool, limits: &GroupLimits) {
        let result = if is_durable {
            Ok(())
        } else {
            Err(ErrorCode::NOT_COORDINATOR)
        };
        match then {
            Then::Stored { cell, reason } => {
                let mut cell = cell.lock();
                cell.stored(reason, is_durable, self, limits);
                cell.settle(self, limits);
            }
            Then::Offsets { cell, items, done } => {
                let mut cell = cell.lock();
                cell.committed(items, is_durable);
                cell.sweep(self);
                drop(cell);
                // The client may be gone; the commit stands all the same.
                let _ = done.send(result);
            }
            Then::Forgotten { cell, gone, done } => {
                if is_durable {
                    cell.lock().forget(&gone);
                }
                let _ = done.send(result);
            }
            Then::Tell(done) => {
                let _ = done.send(result);
            }
            Then::Snapshot { .. } => {}
        }
    }

    /// The log is gone: whoever waits must look for another coordinator.
    fn fail(&self, limits: &GroupLimits) {
        self.phase.send_replace(Phase::Failed);
        let waiting = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            std::mem::take(&mut queue.waiting)
        };
        for (_, then) in waiting {
            self.follow(then, false, limits);
        }
        for cell in self.all() {
            let mut cell = cell.lock();
            cell.machine.unload();
            cell.settle(self, limits);
        }
    }
}

impl Queue {
    fn note(&mut self, key: Bytes, value: Option<Bytes>) {
        let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
        self.since_snapshot += bytes as u64;
        let size = |key: &Bytes, value: &Bytes| (key.len() + value.len()) as u64;
        let old = match value {
            Some(value) => {
                self.newest_bytes += size(&key, &value);
                self.newest.insert(key.clone(), value)
            }
            None => self.newest.remove(&key),
        };
        if let Some(old) = old {
            self.newest_bytes -= size(&key, &old);
        }
    }

    fn batches(&self) -> Vec<Vec<Change>> {
        let mut batches: Vec<Vec<Change>> = Vec::new();
        let mut bytes = usize::MAX;
        for (key, value) in &self.newest {
            let size = key.len() + value.len();
            if bytes.saturating_add(size) > SNAPSHOT_BATCH_BYTES {
                batches.push(Vec::new());
                bytes = 0;
            }
            bytes += size;
            let change = Change {
                key: key.clone(),
                value: Some(value.clone()),
            };
            if let Some(batch) = batches.last_mut() {
                batch.push(change);
            }
        }
        batches
    }
}

fn build(changes: &[Change], now_ms: i64) -> Result<ValidBatch, ErrorCode> {
    let unusable = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "group records cannot be written");
        ErrorCode::UNKNOWN_SERVER_ERROR
    };
    let mut builder = BatchBuilder::new(Compression::None);
    for change in changes {
        let record = NewRecord {
            timestamp: now_ms,
            key: Some(&change.key),
            value: change.value.as_deref(),
            headers: &[],
        };
        builder.push(&record).map_err(|error| unusable(&error))?;
    }
    let bytes = builder.build().map_err(|error| unusable(&error))?;
    let options = ValidateOptions {
        max_message_bytes: u64::MAX,
        timestamp_after_max_ms: i64::MAX,
        now_ms,
        ..ValidateOptions::default()
    };
    validate(bytes, &options).map_err(|error| unusable(&error))
}
