//! The outcome of an entry, for all who wait for it.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use tidemill_wire::ids::Offset;
use tokio::sync::Notify;

use crate::{error::AppendFailed, partition::Partition};

const WAITING: u8 = 0;
const COMMITTED: u8 = 1;
const FENCED: u8 = 2;
const CLOSED: u8 = 3;

/// Shared by the entry and everybody who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    outcome: AtomicU8,
    changed: Notify,
}

impl Pending {
    /// Settles the outcome; only the first call counts.
    pub fn resolve(&self, outcome: Result<(), AppendFailed>) {
        let code = match outcome {
            Ok(()) => COMMITTED,
            Err(AppendFailed::Fenced) => FENCED,
            Err(AppendFailed::Closed) => CLOSED,
        };
        let waiting =
            self.outcome
                .compare_exchange(WAITING, code, Ordering::AcqRel, Ordering::Acquire);
        if waiting.is_ok() {
            self.changed.notify_waiters();
        }
    }

    fn outcome(&self) -> Option<Result<(), AppendFailed>> {
        match self.outcome.load(Ordering::Acquire) {
            WAITING => None,
            COMMITTED => Some(Ok(())),
            FENCED => Some(Err(AppendFailed::Fenced)),
            _ => Some(Err(AppendFailed::Closed)),
        }
    }

    async fn wait(&self) -> Result<(), AppendFailed> {
        loop {
            let changed = self.changed.notified();
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            changed.await;
        }
    }
}

/// A part of an entry that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Offset of the first record; for a new log start, that offset.
    pub base_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// The partition's log start offset, now.
    pub log_start: Offset,
    /// The append time of a topic with LogAppendTime, else -1 (Unix milliseconds).
    pub log_append_time: i64,
}

/// Stands for a part of an appended entry. Dropping it changes nothing: the entry will be
/// committed all the same (R4).
#[derive(Clone, Debug)]
pub struct CommitTicket {
    pub(crate) pending: Arc<Pending>,
    pub(crate) partition: Arc<Partition>,
    pub(crate) base_offset: Offset,
    pub(crate) last_offset: Offset,
    pub(crate) log_append_time: i64,
}

impl CommitTicket {
    fn committed(&self) -> Committed {
        Committed {
            base_offset: self.base_offset,
            last_offset: self.last_offset,
            log_start: self.partition.log_start(),
            log_append_time: self.log_append_time,
        }
    }

    /// Waits until the entry is durable and everything before it in its partitions is.
    ///
    /// # Errors
    /// The writer was fenced or closed first; a replay may still find the entry.
    pub async fn wait(&self) -> Result<Committed, AppendFailed> {
        self.pending.wait().await.map(|()| self.committed())
    }

    /// The outcome, if it is settled.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<Committed, AppendFailed>> {
        Some(self.pending.outcome()?.map(|()| self.committed()))
    }

    /// The offset assigned to the first record. Not to be told to anybody before the commit (R1).
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }
}
