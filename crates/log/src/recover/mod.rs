//! What a log starts from.

mod replay;

use tidemill_wire::ids::PartitionId;

pub use self::replay::{ReplayError, ReplayStats, SealedWal, replay};

use crate::{
    extents::ExtentList,
    limits::PartitionConfig,
    roll::Leftovers,
    types::{PartitionHead, TailBatch},
};

/// A partition as checkpoints and replay give it.
#[derive(Clone, Debug)]
pub struct RecoveredPartition {
    /// The committed state. Whoever opens the log sets the new tenure's leader epoch in it.
    pub head: PartitionHead,
    /// Rolled data.
    pub extents: ExtentList,
    /// Committed batches above the extents, in offset order.
    pub tail: Vec<TailBatch>,
    /// Retention settings, from the metadata.
    pub config: PartitionConfig,
}

impl RecoveredPartition {
    /// A partition nothing was ever written to.
    #[must_use]
    pub fn empty(partition: PartitionId) -> Self {
        Self {
            head: PartitionHead {
                partition,
                leader_epoch: Default::default(),
                next_offset: Default::default(),
                log_start: Default::default(),
                epoch_starts: Vec::new(),
                producers: Vec::new(),
            },
            extents: ExtentList::default(),
            tail: Vec::new(),
            config: PartitionConfig::default(),
        }
    }
}

/// All partitions a writer is to lead, as they were left.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// In any order.
    pub partitions: Vec<RecoveredPartition>,
    /// What is left to clean up, for the roll.
    pub leftovers: Leftovers,
}
