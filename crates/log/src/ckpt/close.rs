//! Closing a checkpoint log: by its writer at a clean stop, or by whoever has sealed it.

use std::time::Duration;

use bytes::Bytes;
use tidemill_store::{
    CreateOutcome, Envelope, NumberedLog, ObjectKind, PutId, Store, envelope::EnvelopeError,
};
use tidemill_wire::ids::WriterId;

use super::{ChainError, chain::READ_TRIES};
use crate::{
    format::checkpoint::{Checkpoint, CheckpointId, ClosingCheckpoint},
    keys,
};

/// A closed checkpoint log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The number of the closing checkpoint.
    pub number: u64,
    /// Its put id.
    pub put_id: PutId,
    /// What it says; another closer's if that came first.
    pub closing: ClosingCheckpoint,
    /// True if it is this call's own.
    pub is_ours: bool,
}

/// Which WAL numbers of a writer landed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Landed {
    /// All lower ones did.
    pub decided_below: u64,
    /// Those above that did.
    pub above: Vec<u64>,
}

/// The closing checkpoint of `writer`'s log, if a listing shows it as the log's newest number.
///
/// # Errors
/// The store did not answer, or the newest object is unreadable.
pub async fn find_closing(store: &Store, writer: WriterId) -> Result<Option<Closed>, ChainError> {
    let log = NumberedLog::new(store.clone(), keys::ckpt_prefix(writer));
    Ok(match newest(&log).await? {
        Newest::Closing(closed) => Some(closed),
        Newest::Nothing | Newest::Checkpoint(_) => None,
    })
}

/// The `replay_from` of the newest checkpoint of `writer`'s log; 0 if there is none, or a closing
/// one.
///
/// # Errors
/// The store did not answer, or the newest object is unreadable.
pub async fn newest_replay_from(store: &Store, writer: WriterId) -> Result<u64, ChainError> {
    let log = NumberedLog::new(store.clone(), keys::ckpt_prefix(writer));
    let mut tries = 0;
    loop {
        match replay_from_once(&log).await {
            // Trimmed meanwhile: then there is a newer one.
            Err(error) if error.may_pass() && tries < READ_TRIES => tries += 1,
            other => return other,
        }
    }
}

async fn replay_from_once(log: &NumberedLog) -> Result<u64, ChainError> {
    let Newest::Checkpoint(CheckpointId { number, .. }) = newest_once(log).await? else {
        return Ok(0);
    };
    let key = log.key(number);
    let Some(bytes) = log.read(number).await? else {
        return Err(ChainError::Missing { key });
    };
    match Checkpoint::decode(&bytes) {
        Ok((checkpoint, _)) => Ok(checkpoint.replay_from),
        Err(error) => Err(ChainError::Object { key, error }),
    }
}

/// The newest number of a checkpoint log. Of a checkpoint its header is enough: whoever replays it
/// names what else is wrong.
enum Newest {
    Nothing,
    Checkpoint(CheckpointId),
    Closing(Closed),
}

impl Newest {
    fn decode(number: u64, bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let (envelope, _, _) = Envelope::decode_header(bytes)?;
        let put_id = envelope.put_id;
        if envelope.kind != ObjectKind::ClosingCheckpoint {
            return Ok(Self::Checkpoint(CheckpointId { number, put_id }));
        }
        let (closing, _) = ClosingCheckpoint::decode(bytes)?;
        Ok(Self::Closing(Closed {
            number,
            put_id,
            closing,
            is_ours: false,
        }))
    }
}

async fn newest(log: &NumberedLog) -> Result<Newest, ChainError> {
    let mut tries = 0;
    loop {
        match newest_once(log).await {
            Err(error) if error.may_pass() && tries < READ_TRIES => tries += 1,
            other => return other,
        }
    }
}

async fn newest_once(log: &NumberedLog) -> Result<Newest, ChainError> {
    let Some(number) = log.head_by_listing().await? else {
        return Ok(Newest::Nothing);
    };
    // The newest number is never trimmed.
    let key = log.key(number);
    let Some(bytes) = log.read(number).await? else {
        return Err(ChainError::Missing { key });
    };
    Newest::decode(number, &bytes).map_err(|error| ChainError::Object { key, error })
}

/// Closes `writer`'s checkpoint log above its newest checkpoint; if somebody has closed it already,
/// theirs stands. Each create may take as long as `deadline`; none waits for ever.
///
/// # Errors
/// The store did not answer in time, or the newest object is unreadable.
pub async fn close(
    store: &Store,
    writer: WriterId,
    cluster_id: [u8; 16],
    landed: &Landed,
    deadline: Option<Duration>,
) -> Result<Closed, ChainError> {
    let log = NumberedLog::new(store.clone(), keys::ckpt_prefix(writer));
    loop {
        let (number, follows) = match newest(&log).await? {
            Newest::Nothing => (0, None),
            Newest::Checkpoint(id) => (id.number + 1, Some(id)),
            Newest::Closing(closed) => return Ok(closed),
        };
        let above = landed.above.iter().copied();
        let closing = ClosingCheckpoint::new(follows, landed.decided_below, above);
        let put_id = PutId(store.runtime().entropy.bytes16());
        let body = closing.encode(put_id, cluster_id, writer);
        match log.create(number, body, put_id, deadline).await? {
            CreateOutcome::Foreign(_) => {}
            // R11: this may be a number that was trimmed; then the newest one decides.
            CreateOutcome::Ours if log.list_from(number + 1).await?.is_empty() => {
                return Ok(Closed {
                    number,
                    put_id,
                    closing,
                    is_ours: true,
                });
            }
            CreateOutcome::Ours => {}
        }
    }
}
