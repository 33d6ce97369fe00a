//! Publishing a writer's own checkpoints.

use std::fmt;

use tidemill_store::{CreateOutcome, NumberedLog, PutId, Store, StoreError};
use tidemill_wire::ids::{PartitionId, WriterId};

use super::ChainError;
use crate::{
    format::checkpoint::{Checkpoint, CheckpointId, PartitionUpdate},
    keys,
    types::DataObjectId,
};

/// A full checkpoint comes after so many deltas: a chain is at most this long to read.
pub const FULL_EVERY: u64 = 64;

/// What a round publishes; the log adds number and chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// As in [`Checkpoint`].
    pub full: bool,
    /// As in [`Checkpoint`].
    pub replay_from: u64,
    /// As in [`Checkpoint`].
    pub decided_below: u64,
    /// As in [`Checkpoint`].
    pub next_data_seq: u64,
    /// As in [`Checkpoint`].
    pub cleanup: Vec<WriterId>,
    /// As in [`Checkpoint`].
    pub garbage: Vec<DataObjectId>,
    /// As in [`Checkpoint`].
    pub dropped: Vec<PartitionId>,
    /// As in [`Checkpoint`].
    pub updates: Vec<PartitionUpdate>,
}

/// A checkpoint that counts: it landed and nothing follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The checkpoint.
    pub id: CheckpointId,
    /// True if it was a full one, so that lower numbers may be trimmed.
    pub full: bool,
}

/// Why a checkpoint does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// The log is closed, or holds a number that this writer did not create: fenced. What was
    /// published may have landed all the same, so nothing that it lists may be deleted.
    Closed,
    /// The store refused for good, or the deadline passed; the checkpoint may have landed.
    Store(StoreError),
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("checkpoint log is closed"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PublishError {}

/// A checkpoint whose outcome is not known yet; tried again with the same bytes.
#[derive(Debug)]
struct InFlight {
    id: CheckpointId,
    full: bool,
    body: tidemill_store::Payload,
}

/// The checkpoint log of this process's own writer.
#[derive(Debug)]
pub struct CheckpointLog {
    log: NumberedLog,
    writer: WriterId,
    cluster_id: [u8; 16],
    newest: Option<CheckpointId>,
    last_full: Option<u64>,
    in_flight: Option<InFlight>,
}

impl CheckpointLog {
    /// The log of a writer that has published nothing yet. The store should be a patient one.
    #[must_use]
    pub fn new(store: Store, writer: WriterId, cluster_id: [u8; 16]) -> Self {
        Self {
            log: NumberedLog::new(store, keys::ckpt_prefix(writer)),
            writer,
            cluster_id,
            newest: None,
            last_full: None,
            in_flight: None,
        }
    }

    /// The newest checkpoint that counts.
    #[must_use]
    pub fn newest(&self) -> Option<CheckpointId> {
        self.newest
    }

    /// True if the next checkpoint must be a full one.
    #[must_use]
    pub fn full_is_due(&self) -> bool {
        match (self.last_full, self.newest) {
            (Some(full), Some(newest)) => newest.number + 1 - full >= FULL_EVERY,
            _ => true,
        }
    }

    /// Creates the next number and looks whether it counts (R2, R11). After an error of the store
    /// the outcome is open: call [`CheckpointLog::resume`] before anything else.
    ///
    /// # Errors
    /// [`PublishError`]; on `Closed` the writer stops.
    pub async fn publish(&mut self, round: Round) -> Result<Published, PublishError> {
        debug_assert!(
            self.in_flight.is_none(),
            "the outcome of the last one is known"
        );
        let runtime = self.log.store().runtime().clone();
        let number = self.newest.map_or(0, |newest| newest.number + 1);
        let full = round.full || self.full_is_due();
        debug_assert!(
            !full || round.full,
            "the caller asks whether a full one is due"
        );
        let checkpoint = Checkpoint {
            number,
            follows: self.newest,
            full,
            replay_from: round.replay_from,
            decided_below: round.decided_below,
            next_data_seq: round.next_data_seq,
            taken_ms: runtime.clock.now_ms(),
            cleanup: round.cleanup,
            garbage: round.garbage,
            dropped: round.dropped,
            updates: round.updates,
        };
        let put_id = PutId(runtime.entropy.bytes16());
        let body = checkpoint.encode(put_id, self.cluster_id, self.writer);
        self.in_flight = Some(InFlight {
            id: CheckpointId { number, put_id },
            full,
            body,
        });
        match self.resume().await? {
            Some(published) => Ok(published),
            None => Err(PublishError::Closed),
        }
    }

    /// Finishes a checkpoint whose outcome was left open by an error or by dropping the future.
    /// `None` if there is none.
    ///
    /// # Errors
    /// As [`CheckpointLog::publish`].
    pub async fn resume(&mut self) -> Result<Option<Published>, PublishError> {
        let Some(InFlight { id, full, body }) = &self.in_flight else {
            return Ok(None);
        };
        let (id, full) = (*id, *full);
        let outcome = self
            .log
            .create(id.number, body.clone(), id.put_id, None)
            .await;
        match outcome.map_err(PublishError::Store)? {
            CreateOutcome::Ours => {}
            // Nobody but a closer creates numbers in this log.
            CreateOutcome::Foreign(_) => return Err(PublishError::Closed),
        }
        let higher = self
            .log
            .list_from(id.number + 1)
            .await
            .map_err(PublishError::Store)?;
        if !higher.is_empty() {
            return Err(PublishError::Closed);
        }
        self.in_flight = None;
        self.newest = Some(id);
        if full {
            self.last_full = Some(id.number);
        }
        Ok(Some(Published { id, full }))
    }

    /// Deletes numbers below the last full checkpoint that counts: in ascending order, one by one,
    /// by listing. Returns how many.
    ///
    /// # Errors
    /// The store did not answer; what is left goes next time.
    pub async fn trim(&self) -> Result<usize, ChainError> {
        match self.last_full {
            Some(full) => trim_below(&self.log, full).await,
            None => Ok(0),
        }
    }
}

/// Deletes the numbers of `log` below `limit`: ascending, one by one, by listing, never the newest.
/// Returns how many.
///
/// # Errors
/// The store did not answer.
pub async fn trim_below(log: &NumberedLog, limit: u64) -> Result<usize, ChainError> {
    let mut count = 0;
    for number in numbers_below(log, limit).await? {
        log.delete(number).await?;
        count += 1;
    }
    Ok(count)
}

/// The numbers of `log` below `limit`, ascending, by listing, never the newest.
///
/// # Errors
/// The store did not answer.
pub(crate) async fn numbers_below(
    log: &NumberedLog,
    limit: u64,
) -> Result<impl Iterator<Item = u64>, StoreError> {
    let numbers = log.list_from(0).await?;
    let newest = numbers.last().map_or(0, |(number, _)| *number);
    let numbers = numbers.into_iter().map(|(number, _)| number);
    Ok(numbers.take_while(move |number| *number < limit.min(newest)))
}
