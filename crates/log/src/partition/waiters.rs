//! Who is told when a partition moves on.

use std::{collections::BTreeMap, fmt, sync::Arc};

use tidemill_wire::ids::PartitionId;
use tokio::sync::Notify;

use super::Partition;

/// Is told that a partition moved on.
pub trait Waiter: Send + Sync {
    /// High watermark, log start or leadership of `partition` changed. Runs on the commit path,
    /// under no lock: it may note the fact and wake a task, never read or build an answer.
    fn progressed(&self, partition: PartitionId);
}

/// Wakes whoever awaits it.
#[derive(Debug, Default)]
pub struct NotifyWaiter(pub Notify);

impl Waiter for NotifyWaiter {
    fn progressed(&self, _partition: PartitionId) {
        self.0.notify_one();
    }
}

/// The waiters of one partition, in the order of their registration.
#[derive(Default)]
pub(crate) struct Waiters {
    next: u64,
    registered: BTreeMap<u64, Arc<dyn Waiter>>,
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiters({})", self.registered.len())
    }
}

impl Waiters {
    pub fn add(&mut self, waiter: Arc<dyn Waiter>) -> u64 {
        self.next += 1;
        self.registered.insert(self.next, waiter);
        self.next
    }

    pub fn all(&self) -> Vec<Arc<dyn Waiter>> {
        self.registered.values().cloned().collect()
    }
}

/// Ends a registration when dropped.
#[derive(Debug)]
pub struct WaiterGuard {
    partition: Arc<Partition>,
    id: u64,
}

impl WaiterGuard {
    pub(super) fn new(partition: Arc<Partition>, id: u64) -> Self {
        Self { partition, id }
    }

    /// The partition waited for.
    #[must_use]
    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        let waiter = self.partition.lock().waiters.registered.remove(&self.id);
        drop(waiter);
    }
}
