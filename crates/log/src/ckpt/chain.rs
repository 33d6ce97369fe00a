//! The state that a checkpoint log says its partitions have.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidemill_store::{Envelope, NumberedLog, ObjectKind, Store, envelope::EnvelopeError};
use tidemill_wire::ids::{PartitionId, WriterId};

use super::ChainError;
use crate::{
    extents::ExtentList,
    format::checkpoint::{Checkpoint, CheckpointId, ClosingCheckpoint},
    keys,
    types::{DataObjectId, PartitionHead},
};

/// A live writer may trim what is being read, and an answer may be damaged on its way; then the
/// chain is read anew, so many times.
pub(super) const READ_TRIES: u32 = 8;

/// One partition as a chain says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// Its head.
    pub head: PartitionHead,
    /// Its extents.
    pub extents: ExtentList,
}

/// What a checkpoint log says, from its last full checkpoint to its newest one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainState {
    /// The newest checkpoint (below the closing one); none before the first.
    pub newest: Option<CheckpointId>,
    /// The closing checkpoint with its number, if the log is closed.
    pub closing: Option<(u64, ClosingCheckpoint)>,
    /// The number of the last full checkpoint; lower ones count no more.
    pub begins_at: u64,
    /// All lower WAL numbers are in the checkpoints.
    pub replay_from: u64,
    /// The partitions whose state it holds.
    pub partitions: BTreeMap<PartitionId, PartitionState>,
    /// Partitions that the chain drops since its last full checkpoint.
    pub dropped: BTreeSet<PartitionId>,
    /// Data objects that wait for their deletion; some may be gone.
    pub garbage: BTreeSet<DataObjectId>,
    /// Sealed writers whose objects are still to be cleaned up.
    pub cleanup: BTreeSet<WriterId>,
    /// Data objects of the writer below this number that nobody lists are garbage.
    pub next_data_seq: u64,
}

impl ChainState {
    /// Applies the next checkpoint of the chain.
    pub fn apply(&mut self, checkpoint: &Checkpoint, id: CheckpointId) {
        if checkpoint.full {
            self.begins_at = id.number;
            self.partitions.clear();
            self.garbage.clear();
            self.dropped.clear();
        }
        self.newest = Some(id);
        self.replay_from = checkpoint.replay_from;
        self.next_data_seq = checkpoint.next_data_seq;
        self.cleanup = checkpoint.cleanup.iter().copied().collect();
        self.garbage.extend(&checkpoint.garbage);
        for partition in &checkpoint.dropped {
            self.partitions.remove(partition);
            self.dropped.insert(*partition);
        }
        for update in &checkpoint.updates {
            let partition = update.head.partition;
            let state = self
                .partitions
                .entry(partition)
                .or_insert_with(|| PartitionState {
                    head: update.head.clone(),
                    extents: ExtentList::default(),
                });
            state.head.clone_from(&update.head);
            state.extents.apply(update);
            self.dropped.remove(&partition);
        }
    }
}

/// Reads the checkpoint log of `writer`: its newest number by listing, then back to the last full
/// one.
///
/// # Errors
/// The store did not answer, or an object of the chain is damaged, too new or missing.
pub async fn read_chain(store: &Store, writer: WriterId) -> Result<ChainState, ChainError> {
    let log = NumberedLog::new(store.clone(), keys::ckpt_prefix(writer));
    let mut tries = 0;
    loop {
        match read_once(&log).await {
            Err(error) if error.may_pass() && tries < READ_TRIES => tries += 1,
            other => return other,
        }
    }
}

async fn read_once(log: &NumberedLog) -> Result<ChainState, ChainError> {
    let Some(newest) = log.head_by_listing().await? else {
        return Ok(ChainState::default());
    };
    let bytes = read_number(log, newest).await?;
    let mut state = ChainState::default();
    let mut next = match decode(log, newest, &bytes)? {
        Number::Closing(closing) => {
            let follows = closing.follows;
            state.closing = Some((newest, closing));
            follows
        }
        Number::Checkpoint(_, id) => Some(id),
    };
    let mut chain = Vec::new();
    while let Some(expected) = next {
        let bytes = match expected.number == newest {
            true => bytes.clone(),
            false => read_number(log, expected.number).await?,
        };
        let Number::Checkpoint(checkpoint, id) = decode(log, expected.number, &bytes)? else {
            return Err(malformed(
                log,
                expected.number,
                "is followed, but closes the log",
            ));
        };
        if id != expected {
            return Err(malformed(
                log,
                expected.number,
                "is not the one that is followed",
            ));
        }
        next = if checkpoint.full {
            None
        } else {
            checkpoint.follows
        };
        if next.is_some_and(|next| next.number >= id.number) {
            return Err(malformed(log, expected.number, "follows itself"));
        }
        if !checkpoint.full && next.is_none() {
            return Err(malformed(
                log,
                expected.number,
                "is a delta that follows nothing",
            ));
        }
        chain.push((*checkpoint, id));
    }
    for (checkpoint, id) in chain.iter().rev() {
        state.apply(checkpoint, *id);
    }
    Ok(state)
}

async fn read_number(log: &NumberedLog, number: u64) -> Result<Bytes, ChainError> {
    let key = log.key(number);
    log.read(number).await?.ok_or(ChainError::Missing { key })
}

/// An object of a checkpoint log.
enum Number {
    /// A checkpoint.
    Checkpoint(Box<Checkpoint>, CheckpointId),
    /// The closing one.
    Closing(ClosingCheckpoint),
}

fn decode(log: &NumberedLog, number: u64, bytes: &Bytes) -> Result<Number, ChainError> {
    let broken = |error| ChainError::Object {
        key: log.key(number),
        error,
    };
    let (header, _, _) = Envelope::decode_header(bytes).map_err(broken)?;
    if header.kind == ObjectKind::ClosingCheckpoint {
        let (closing, _) = ClosingCheckpoint::decode(bytes).map_err(broken)?;
        return Ok(Number::Closing(closing));
    }
    let (checkpoint, envelope) = Checkpoint::decode(bytes).map_err(broken)?;
    if checkpoint.number != number {
        return Err(malformed(log, number, "names another number"));
    }
    let id = CheckpointId {
        number,
        put_id: envelope.put_id,
    };
    Ok(Number::Checkpoint(Box::new(checkpoint), id))
}

fn malformed(log: &NumberedLog, number: u64, what: &str) -> ChainError {
    let what = format!("checkpoint {what}");
    ChainError::Object {
        key: log.key(number),
        error: EnvelopeError::Malformed { what },
    }
}
