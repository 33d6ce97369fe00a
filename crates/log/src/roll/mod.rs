//! The life of data after the WAL: rounds, merge, retention, deletion, trimming.
//!
//! One [`Roller`] per writer. A *round* moves committed batches below the WAL cut into segments and
//! set objects and publishes them with one checkpoint. Nothing is deleted or trimmed before a
//! checkpoint of this writer that lets it go has passed the look (R11), and then only after a
//! grace.
//!
//! A WAL object filled by one partition is not adopted by a server-side copy or hard link: it is so
//! small that merges would write it again, see ARCHITECTURE.md.

mod build;
mod change;
mod cleanup;
mod damage;
mod garbage;
mod merge;
mod publish;
mod retention;
mod room;
mod round;
mod task;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use tidemill_runtime::Instant;
use tidemill_store::{Store, StoreError};
use tidemill_wire::ids::{LeaderEpoch, Offset, PartitionId, WriterId};

use crate::{
    ckpt::{ChainError, ChainState, CheckpointLog, PublishError},
    extents::ExtentList,
    log::Log,
    read::ReadError,
    types::DataObjectId,
};

pub use task::{Roll, ShutdownError};

/// Limits of the roll. All settable.
#[derive(Clone, Debug)]
pub struct RollOptions {
    /// Unrolled bytes at which a round starts (`tidemill.roll.bytes`).
    pub bytes: u64,
    /// Age of the oldest unrolled batch at which a round starts (`tidemill.roll.interval.ms`).
    pub interval: Duration,
    /// A partition's run of so many bytes becomes a segment of its own.
    pub segment_bytes_min: u64,
    /// Bytes at which a segment or a merged run ends.
    pub segment_bytes_max: u64,
    /// Bytes at which a set object ends, held in memory while it is written.
    pub set_bytes_max: u64,
    /// What is trimmed or deleted stays so long after the checkpoint that lets it go: longer than
    /// any open fetch.
    pub grace: Duration,
    /// Pause between looks for data past its retention (`log.retention.check.interval.ms`).
    pub retention_interval: Duration,
    /// Extents of a partition beside its manifests at which a manifest is written.
    pub recent_max: usize,
    /// Neighbouring extents of a size class that are merged into one.
    pub merge_fan_in: usize,
    /// Data objects written at once.
    pub uploads: usize,
}

impl RollOptions {
    /// Limits for a local directory, where reads that miss look again at once and space is dear.
    #[must_use]
    pub fn local() -> Self {
        Self {
            grace: Duration::from_secs(5),
            uploads: 2,
            ..Self::bucket()
        }
    }

    /// Limits for a bucket.
    #[must_use]
    pub fn bucket() -> Self {
        Self {
            bytes: 256 << 20,
            interval: Duration::from_secs(600),
            segment_bytes_min: 8 << 20,
            segment_bytes_max: 64 << 20,
            set_bytes_max: 128 << 20,
            grace: Duration::from_secs(60),
            retention_interval: Duration::from_secs(300),
            recent_max: 64,
            merge_fan_in: 8,
            uploads: 4,
        }
    }
}

/// Writers in a row that ended before their first checkpoint, at which the next one does not wait
/// with its own: a broker that dies again and again would start later each time.
const HASTE_AFTER: usize = 2;

/// What a recovered chain leaves to clean up, for [`Roller::new`].
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// Sealed writers whose WAL, checkpoints and unlisted data are to go.
    pub cleanup: BTreeSet<WriterId>,
    /// Sealed writers that ended before their first checkpoint, so that each start replays them
    /// all.
    pub without_checkpoint: usize,
    /// Data objects that nobody lists, by the word of their writers' last checkpoints.
    pub garbage: BTreeSet<DataObjectId>,
    /// Partitions that checkpoints hold, but whose topics were deleted: their objects are freed.
    pub orphans: Vec<(PartitionId, ExtentList)>,
    /// What the partitions that were taken over list. Filled by the log: one that is dropped before
    /// the first checkpoint holds it leaves its objects behind.
    pub inherited: Vec<(PartitionId, Arc<ExtentList>)>,
}

impl Leftovers {
    /// Adds what the chain of a sealed writer leaves; `exists` says whether a partition's topic
    /// still does. Writers come newest first. Returns true if the writer's checkpoints speak for
    /// those before it, which then need not be added.
    pub fn add(
        &mut self,
        writer: WriterId,
        chain: &ChainState,
        exists: impl Fn(PartitionId) -> bool,
    ) -> bool {
        self.cleanup.insert(writer);
        if chain.newest.is_none() {
            self.without_checkpoint += 1;
            return false;
        }
        self.cleanup.extend(&chain.cleanup);
        self.garbage.extend(&chain.garbage);
        let gone = chain.partitions.iter().filter(|(id, _)| !exists(**id));
        self.orphans
            .extend(gone.map(|(id, state)| (*id, state.extents.clone())));
        true
    }
}

/// How far the roll has come with what is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollState {
    /// When it was looked at.
    pub at: Instant,
    /// True if the newest checkpoint holds no dropped partition and sealed writers are cleaned up
    /// after: what is left of dropped partitions waits in the list of garbage for its grace to
    /// pass.
    pub is_settled: bool,
}

/// What became of a partition that this writer does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its topic was deleted: it lists nothing.
    Deleted,
    /// Another writer leads it: it may list anything.
    Elsewhere,
}

/// Knows, from the metadata, about partitions this writer does not lead.
pub trait Ownership: fmt::Debug + Send + Sync {
    /// What became of `partition`.
    fn fate(&self, partition: PartitionId) -> Fate;
    /// True if this writer leads every partition that exists.
    fn is_sole_leader(&self) -> bool;
}

/// The ownership of a single broker: what it does not lead was deleted.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoleLeader;

impl Ownership for SoleLeader {
    fn fate(&self, _partition: PartitionId) -> Fate {
        Fate::Deleted
    }

    fn is_sole_leader(&self) -> bool {
        true
    }
}

/// Why a step of the roll failed. It is tried again, unless the writer is fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RollError {
    /// The writer was sealed or its checkpoint log closed: it must stop.
    Fenced,
    /// Data to be rolled or merged could not be read.
    Read(ReadError),
    /// The store refused, or did not answer in time.
    Store(StoreError),
    /// A checkpoint log is unreadable.
    Chain(ChainError),
    /// The roll's task ended.
    Stopped,
}

impl fmt::Display for RollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str("writer is fenced"),
            Self::Read(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Chain(error) => error.fmt(f),
            Self::Stopped => f.write_str("roll has stopped"),
        }
    }
}

impl std::error::Error for RollError {}

impl From<ReadError> for RollError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<StoreError> for RollError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ChainError> for RollError {
    fn from(error: ChainError) -> Self {
        Self::Chain(error)
    }
}

impl From<PublishError> for RollError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Closed => Self::Fenced,
            PublishError::Store(error) => Self::Store(error),
        }
    }
}

/// A partition as this writer's newest checkpoint has it.
#[derive(Clone, Debug)]
struct Known {
    leader_epoch: LeaderEpoch,
    next_offset: Offset,
    log_start: Offset,
    extents: Arc<ExtentList>,
}

/// WAL numbers that may go once the grace has passed.
#[derive(Clone, Copy, Debug)]
struct WalTrim {
    due: Instant,
    below: u64,
}

/// Rolls one writer's log. Its steps run one after another.
#[derive(Debug)]
pub struct Roller {
    log: Arc<Log>,
    /// Patient: only refusals end a request, and writes that find no space: this task makes room.
    store: Store,
    options: RollOptions,
    ownership: Arc<dyn Ownership>,
    ckpt: CheckpointLog,
    next_seq: u64,
    replay_from: u64,
    known: BTreeMap<PartitionId, Known>,
    /// A checkpoint whose outcome is open, and what is to happen when it counts.
    pending: Option<publish::Pending>,
    /// Objects written for a checkpoint that is not published yet.
    unpublished: BTreeSet<DataObjectId>,
    /// Objects that nobody lists; `None` until a checkpoint that says so counts.
    garbage: BTreeMap<DataObjectId, Option<Instant>>,
    /// Runs worth rewriting because little else of their set object is alive.
    sparse: BTreeSet<(PartitionId, Offset)>,
    wal_trims: VecDeque<WalTrim>,
    /// WAL numbers that are being trimmed, ascending.
    trimming: VecDeque<u64>,
    cleanup: BTreeSet<WriterId>,
    /// True if those before this writer ended one after the other without a checkpoint.
    is_in_haste: bool,
    /// True once writers of long ago were looked for.
    is_swept: bool,
    orphans: Vec<(PartitionId, ExtentList)>,
    /// Taken over, and in no checkpoint of this writer yet.
    inherited: Vec<(PartitionId, Arc<ExtentList>)>,
    /// Times of the newest record in each first extent that retention has left.
    first_newest: BTreeMap<PartitionId, i64>,
    left_out: BTreeMap<PartitionId, damage::LeftOut>,
    /// True if the last round found no space to move anything.
    is_cramped: bool,
    /// Nothing is moved before: the store has said that it is full.
    full_until: Option<Instant>,
}

impl Roller {
    /// A roller of a log whose writer has published no checkpoint yet.
    #[must_use]
    pub fn new(log: Arc<Log>, ownership: Arc<dyn Ownership>) -> Self {
        let leftovers = log.take_leftovers();
        let store = log.store().patient().yielding_when_full();
        let (writer, cluster_id) = (log.writer(), log.options().cluster_id);
        Self {
            ckpt: CheckpointLog::new(store.clone(), writer, cluster_id),
            store,
            options: log.options().limits.roll.clone(),
            ownership,
            next_seq: 0,
            replay_from: 0,
            known: BTreeMap::new(),
            pending: None,
            unpublished: BTreeSet::new(),
            garbage: leftovers
                .garbage
                .into_iter()
                .map(|object| (object, None))
                .collect(),
            sparse: BTreeSet::new(),
            wal_trims: VecDeque::new(),
            trimming: VecDeque::new(),
            cleanup: leftovers.cleanup,
            is_in_haste: leftovers.without_checkpoint >= HASTE_AFTER,
            is_swept: false,
            orphans: leftovers.orphans,
            inherited: leftovers.inherited,
            first_newest: BTreeMap::new(),
            left_out: BTreeMap::new(),
            is_cramped: false,
            full_until: None,
            log,
        }
    }

    /// The log that is rolled.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    fn next_object(&mut self) -> DataObjectId {
        let object = DataObjectId {
            writer: self.log.writer(),
            seq: self.next_seq,
        };
        self.next_seq += 1;
        self.unpublished.insert(object);
        object
    }

    fn now(&self) -> Instant {
        self.log.runtime().clock.monotonic()
    }
}
