//! Closing the checkpoint log.

use bytes::Bytes;
use tidemill_log::format::checkpoint::{Checkpoint, CheckpointId, ClosingCheckpoint};
use tidemill_store::{CreateOutcome, Envelope, ObjectKind, envelope::EnvelopeError};

use super::{SealError, Sealer, wal::Landed};
use crate::{format::ClosedWal, reread::read_decoded};

/// The newest number of a checkpoint log.
enum Newest {
    None,
    Checkpoint(CheckpointId),
    Closing(ClosedWal, ClosingCheckpoint),
}

impl Sealer<'_> {
    /// The closing checkpoint, if a listing shows it as the log's newest.
    pub(super) async fn find_closing(
        &self,
    ) -> Result<Option<(ClosedWal, ClosingCheckpoint)>, SealError> {
        match self.newest().await? {
            Newest::Closing(closed, closing) => Ok(Some((closed, closing))),
            Newest::None | Newest::Checkpoint(_) => Ok(None),
        }
    }

    async fn newest(&self) -> Result<Newest, SealError> {
        loop {
            let Some(number) = self.checkpoints.head_by_listing().await? else {
                return Ok(Newest::None);
            };
            // The newest is never trimmed: if it has gone, there is a newer one.
            let newest = read_decoded(&self.checkpoints, number, |b| decode(number, b)).await?;
            if let Some(newest) = newest {
                return newest.map_err(|error| Self::object(self.checkpoints.key(number), error));
            }
        }
    }

    /// The `replay_from` of the newest checkpoint; 0 if there is none, or a closing one.
    pub(super) async fn newest_replay_from(&self) -> Result<u64, SealError> {
        loop {
            let Newest::Checkpoint(CheckpointId { number, .. }) = self.newest().await? else {
                return Ok(0);
            };
            let decode = |bytes: &Bytes| Checkpoint::decode(bytes).map(|found| found.0.replay_from);
            // As above.
            if let Some(found) = read_decoded(&self.checkpoints, number, decode).await? {
                return found.map_err(|error| Self::object(self.checkpoints.key(number), error));
            }
        }
    }

    /// Closes the log behind its newest checkpoint; true if the closing checkpoint is ours.
    pub(super) async fn close_checkpoints(
        &self,
        landed: &Landed,
    ) -> Result<(ClosedWal, ClosingCheckpoint, bool), SealError> {
        let mut ours = None;
        loop {
            // Also the look after the creation (R11): only what a listing shows as the newest
            // counts.
            let follows = match self.newest().await? {
                Newest::None => None,
                Newest::Checkpoint(id) => Some(id),
                Newest::Closing(closed, closing) => {
                    let ours = ours == Some(closed.checkpoint_put_id);
                    return Ok((closed, closing, ours));
                }
            };
            let numbers = landed.above_floor.iter().copied();
            let closing = ClosingCheckpoint::new(follows, landed.floor, numbers);
            let put_id = self.put_id();
            let body = closing.encode(put_id, self.options.cluster_id, self.writer);
            let number = follows.map_or(0, |id| id.number + 1);
            let created = self
                .checkpoints
                .create(number, body, put_id, self.options.deadline)
                .await?;
            // Somebody else's is a late checkpoint of the writer or another closing one: read
            // again.
            if matches!(created, CreateOutcome::Ours) {
                ours = Some(put_id);
            }
        }
    }
}

fn decode(number: u64, bytes: &Bytes) -> Result<Newest, EnvelopeError> {
    let (envelope, _, _) = Envelope::decode_header(bytes)?;
    if envelope.kind != ObjectKind::ClosingCheckpoint {
        let put_id = envelope.put_id;
        return Ok(Newest::Checkpoint(CheckpointId { number, put_id }));
    }
    let (closing, envelope) = ClosingCheckpoint::decode(bytes)?;
    let closed = ClosedWal {
        checkpoint: number,
        checkpoint_put_id: envelope.put_id,
        last: closing.last,
    };
    Ok(Newest::Closing(closed, closing))
}
