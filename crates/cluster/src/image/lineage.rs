//! Who led a partition, tenure by tenure.
//!
//! Every restart gives all partitions a new tenure. Partitions with one history share it, so that
//! ten thousand of them and a thousand restarts cost a thousand nodes.

use std::sync::Arc;

use tidemill_wire::ids::{LeaderEpoch, WriterId};

/// A writer's time as leader of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// The leader epoch.
    pub epoch: LeaderEpoch,
    /// The leader.
    pub writer: WriterId,
    /// The lowest number of its WAL that may hold an entry of the partition.
    pub first_wal: u64,
    /// The highest such number, where the leader released the partition; otherwise the end of its
    /// WAL, which a sealed writer's [`crate::format::ClosedWal`] tells.
    pub last_wal: Option<u64>,
}

/// A tenure and those before it.
#[derive(Clone, Debug)]
pub struct Lineage {
    /// The leader.
    pub writer: WriterId,
    /// The lowest number of its WAL that may hold an entry of the partition.
    pub first_wal: u64,
    /// See [`Tenure::last_wal`].
    pub last_wal: Option<u64>,
    /// This tenure's epoch less the one before; 0 for the first.
    pub epoch_step: i32,
    /// The tenure before.
    pub(crate) previous: Option<Arc<Lineage>>,
}

impl Lineage {
    /// A first tenure.
    #[must_use]
    pub fn first(writer: WriterId, first_wal: u64) -> Arc<Self> {
        Arc::new(Self {
            writer,
            first_wal,
            last_wal: None,
            epoch_step: 0,
            previous: None,
        })
    }

    /// The tenure after `previous`.
    #[must_use]
    pub fn after(
        previous: &Arc<Self>,
        writer: WriterId,
        first_wal: u64,
        epoch_step: i32,
    ) -> Arc<Self> {
        Arc::new(Self {
            writer,
            first_wal,
            last_wal: None,
            epoch_step,
            previous: Some(Arc::clone(previous)),
        })
    }

    /// The tenure before.
    #[must_use]
    pub fn previous(&self) -> Option<&Arc<Self>> {
        self.previous.as_ref()
    }

    /// All tenures, newest first, given the epoch of this one.
    pub fn tenures(self: &Arc<Self>, epoch: LeaderEpoch) -> impl Iterator<Item = Tenure> {
        let mut at = Some((self, epoch));
        std::iter::from_fn(move || {
            let (node, epoch) = at?;
            let before = LeaderEpoch(epoch.0.saturating_sub(node.epoch_step));
            at = node.previous.as_ref().map(|previous| (previous, before));
            Some(Tenure {
                epoch,
                writer: node.writer,
                first_wal: node.first_wal,
                last_wal: node.last_wal,
            })
        })
    }
}

impl Drop for Lineage {
    /// Link by link: a long history must not recurse.
    fn drop(&mut self) {
        let mut previous = self.previous.take();
        while let Some(mut node) = previous.and_then(Arc::into_inner) {
            previous = node.previous.take();
        }
    }
}
