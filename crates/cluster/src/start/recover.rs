//! The state of the partitions that are taken over: checkpoints, then WALs, tenure by tenure.

use std::{collections::BTreeMap, fmt, sync::Arc};

use tidemill_log::{
    ckpt::{ChainError, ChainState, read_chain},
    recover::{Recovered, RecoveredPartition, ReplayError, SealedWal, replay},
    roll::Leftovers,
};
use tidemill_wire::ids::{PartitionId, WriterId};

use super::StartOptions;
use crate::{
    cluster::Cluster,
    image::{Image, PartitionState, Topic},
    seal::Sealed,
};

/// Sealed writers whose leftovers a directory's next broker looks for once more: those of the last
/// minutes, in which a file system has written back at last.
const CLEANED_AGAIN: usize = 8;

/// The state of the partitions could not be read.
#[derive(Debug)]
pub enum RecoverError {
    /// A checkpoint log.
    Chain(ChainError),
    /// A WAL.
    Replay(ReplayError),
    /// A writer that is sealed by the metadata has no closing checkpoint, or another one.
    NotClosed(WriterId),
    /// A checkpoint should hold a partition that its writer led, and does not.
    Incomplete {
        /// The partition.
        partition: PartitionId,
        /// The writer.
        writer: WriterId,
    },
    /// Another broker has taken over meanwhile.
    Superseded,
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chain(error) => error.fmt(f),
            Self::Replay(error) => error.fmt(f),
            Self::NotClosed(writer) => {
                write!(
                    f,
                    "checkpoint log of writer {writer} is not closed as recorded"
                )
            }
            Self::Incomplete { partition, writer } => {
                write!(
                    f,
                    "checkpoints of writer {writer} lack partition `{partition}`"
                )
            }
            Self::Superseded => f.write_str("another broker has taken over"),
        }
    }
}

impl std::error::Error for RecoverError {}

impl From<ChainError> for RecoverError {
    fn from(error: ChainError) -> Self {
        Self::Chain(error)
    }
}

/// A partition to take over.
struct Heir<'a> {
    topic: &'a Topic,
    state: &'a PartitionState,
    /// Writers before this one, newest first.
    before: Vec<WriterId>,
}

/// Where a partition's replay starts.
enum Base {
    /// The checkpoint log of this writer holds it.
    Checkpoint(WriterId, Box<RecoveredPartition>),
    /// It was created by this writer, and no checkpoint holds it.
    Created(WriterId),
}

/// Reads what the writers before `me` have left.
pub(super) async fn recover(
    options: &StartOptions,
    cluster: &Arc<Cluster>,
    image: &Image,
    sealed: &[Sealed],
) -> Result<Recovered, RecoverError> {
    let recovered = recover_once(options, cluster, image, sealed).await;
    let Err(error) = recovered else {
        return recovered;
    };
    // What is missing has been deleted by whoever has taken over since; else it is loss.
    let superseded = match cluster.refresh().await {
        Ok(image) => !image.may_write(cluster.writer()),
        Err(_) => false,
    };
    Err(if superseded {
        RecoverError::Superseded
    } else {
        error
    })
}

async fn recover_once(
    options: &StartOptions,
    cluster: &Arc<Cluster>,
    image: &Image,
    sealed: &[Sealed],
) -> Result<Recovered, RecoverError> {
    let me = cluster.writer();
    let heirs = heirs(image, me);
    let store = options.store.clone();
    let mut chains: BTreeMap<WriterId, ChainState> = BTreeMap::new();
    let mut bases: BTreeMap<PartitionId, Base> = BTreeMap::new();
    // Newest writers first, down to one that published a checkpoint: it holds all that was there.
    let mut is_complete = false;
    let mut leftovers = Leftovers {
        cleanup: sealed.iter().map(|sealed| sealed.writer).collect(),
        ..Leftovers::default()
    };
    let sealed_writers = image.writers().filter(|w| w.sealed.is_some() && w.id < me);
    let writers: Vec<WriterId> = sealed_writers.map(|w| w.id).collect();
    if store.is_local() {
        // Nobody syncs a deletion, so a power failure may have brought back what was cleaned up.
        let recent = writers.iter().rev().take(CLEANED_AGAIN);
        leftovers.cleanup.extend(recent);
    }
    for writer in writers.into_iter().rev() {
        let open = |(id, heir): &(&PartitionId, &Heir<'_>)| {
            !bases.contains_key(id) && heir.before.contains(&writer)
        };
        let open: Vec<_> = heirs.iter().filter(open).collect();
        if is_complete && open.is_empty() {
            continue;
        }
        let mut chain = read_chain(&store, writer).await?;
        check_closed(image, writer, &chain)?;
        if !is_complete {
            is_complete = leftovers.add(writer, &chain, |id| image.partition(id).is_some());
        }
        for (id, heir) in open {
            if let Some(base) = base_of(*id, heir, writer, &mut chain)? {
                bases.insert(*id, base);
            }
        }
        chains.insert(writer, chain);
    }
    let mut partitions = replay_all(options, cluster, &chains, bases).await?;
    for (id, heir) in &heirs {
        if let Some(recovered) = partitions.get_mut(id) {
            recovered.head.leader_epoch = heir.state.epoch;
            recovered.config = (options.settings)(image, heir.topic);
        }
    }
    Ok(Recovered {
        partitions: partitions.into_values().collect(),
        leftovers,
    })
}

/// What the checkpoints of `writer` say of a partition; none if an older writer's must be asked.
fn base_of(
    id: PartitionId,
    heir: &Heir<'_>,
    writer: WriterId,
    chain: &mut ChainState,
) -> Result<Option<Base>, RecoverError> {
    if let Some(state) = chain.partitions.remove(&id) {
        let mut recovered = RecoveredPartition::empty(id);
        recovered.head = state.head;
        recovered.extents = state.extents;
        return Ok(Some(Base::Checkpoint(writer, Box::new(recovered))));
    }
    if heir.before.last() == Some(&writer) {
        return Ok(Some(Base::Created(writer)));
    }
    let is_kept = |before: &WriterId| *before < writer && chain.cleanup.contains(before);
    let may_lack = chain.replay_from == 0 && heir.before.iter().any(is_kept);
    if chain.newest.is_some() && !may_lack {
        // Its first checkpoint held the whole state of all that it led. But for partitions whose
        // part of an earlier writer's WAL is damaged: then neither WAL was trimmed.
        let partition = id;
        return Err(RecoverError::Incomplete { partition, writer });
    }
    Ok(None)
}

fn heirs(image: &Image, me: WriterId) -> BTreeMap<PartitionId, Heir<'_>> {
    let mut heirs = BTreeMap::new();
    for topic in image.topics() {
        for (id, state) in topic.partitions().filter(|(_, state)| state.leader() == me) {
            let mut before: Vec<_> = state.tenures().map(|tenure| tenure.writer).collect();
            before.retain(|writer| *writer != me);
            let heir = Heir {
                topic,
                state,
                before,
            };
            heirs.insert(id, heir);
        }
    }
    heirs
}

/// The metadata and the checkpoint log must agree on how the log was closed.
fn check_closed(image: &Image, writer: WriterId, chain: &ChainState) -> Result<(), RecoverError> {
    let recorded = image.writer(writer).and_then(|state| state.sealed);
    let found = chain.closing.as_ref().map(|(number, _)| *number);
    match recorded {
        Some(recorded) if found == Some(recorded.checkpoint) => Ok(()),
        _ => Err(RecoverError::NotClosed(writer)),
    }
}

/// Replays the WALs, oldest writer first, each onto the partitions whose base is at or before it.
async fn replay_all(
    options: &StartOptions,
    cluster: &Arc<Cluster>,
    chains: &BTreeMap<WriterId, ChainState>,
    bases: BTreeMap<PartitionId, Base>,
) -> Result<BTreeMap<PartitionId, RecoveredPartition>, RecoverError> {
    let mut by_writer: BTreeMap<WriterId, Vec<RecoveredPartition>> = BTreeMap::new();
    for (id, base) in bases {
        let (writer, recovered) = match base {
            Base::Checkpoint(writer, recovered) => (writer, *recovered),
            Base::Created(writer) => (writer, RecoveredPartition::empty(id)),
        };
        by_writer.entry(writer).or_default().push(recovered);
    }
    let mut partitions = BTreeMap::new();
    for (writer, chain) in chains {
        for recovered in by_writer.remove(writer).unwrap_or_default() {
            partitions.insert(recovered.head.partition, recovered);
        }
        let Some((_, closing)) = &chain.closing else {
            return Err(RecoverError::NotClosed(*writer));
        };
        let wal = SealedWal {
            writer: *writer,
            replay_from: chain.replay_from,
            closing: closing.clone(),
        };
        let id = cluster.cluster_id();
        let stats = replay(&options.store, id, &wal, &mut partitions)
            .await
            .map_err(RecoverError::Replay)?;
        tracing::info!(%writer, ?stats, "replayed");
    }
    Ok(partitions)
}
