//! What is appended.

use tidemill_wire::{
    batch::ValidBatch,
    ids::{LeaderEpoch, Offset, PartitionId},
};

use crate::{
    limits::Latency,
    wal::ticket::{CommitTicket, Committed},
};

/// The atomic unit: all parts become durable and visible in one step, or none.
#[derive(Clone, Debug)]
pub struct Entry {
    /// At most one for each partition, at least one.
    pub parts: Vec<Part>,
    /// How long it may wait for company.
    pub latency: Latency,
}

/// What an entry does to one partition.
#[derive(Clone, Debug)]
pub struct Part {
    /// The partition.
    pub partition: PartitionId,
    /// The leader epoch the caller believes in; `None` takes the present one.
    pub leader_epoch: Option<LeaderEpoch>,
    /// What is done.
    pub body: PartBody,
}

/// The kinds of parts.
#[derive(Clone, Debug)]
pub enum PartBody {
    /// Appends a batch.
    Records(ValidBatch),
    /// Moves the log start up to this offset, at most the high watermark; lower is no change.
    LogStart(Offset),
}

impl Entry {
    /// An entry of one batch.
    #[must_use]
    pub fn records(partition: PartitionId, batch: ValidBatch, latency: Latency) -> Self {
        Self::of(partition, PartBody::Records(batch), latency)
    }

    /// An entry that moves a log start.
    #[must_use]
    pub fn log_start(partition: PartitionId, offset: Offset, latency: Latency) -> Self {
        Self::of(partition, PartBody::LogStart(offset), latency)
    }

    fn of(partition: PartitionId, body: PartBody, latency: Latency) -> Self {
        Self {
            parts: vec![Part {
                partition,
                leader_epoch: None,
                body,
            }],
            latency,
        }
    }

    /// Bytes of all batches.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let size = |part: &Part| match &part.body {
            PartBody::Records(batch) => batch.bytes.len() as u64,
            PartBody::LogStart(_) => 0,
        };
        self.parts.iter().map(size).sum()
    }
}

/// What became of a part.
#[derive(Clone, Debug)]
pub enum Appended {
    /// It was taken and waits for its WAL object.
    New(CommitTicket),
    /// The same batch is pending: its ticket (R5).
    DuplicatePending(CommitTicket),
    /// The same batch was committed before (R5).
    DuplicateCommitted(Committed),
}

impl Appended {
    /// Waits for the commit; returns at once for a batch committed before.
    ///
    /// # Errors
    /// As [`CommitTicket::wait`].
    pub async fn wait(&self) -> Result<Committed, crate::error::AppendFailed> {
        match self {
            Self::New(ticket) | Self::DuplicatePending(ticket) => ticket.wait().await,
            Self::DuplicateCommitted(committed) => Ok(*committed),
        }
    }
}
