//! Closing a checkpoint log: by its writer at a clean stop, or by whoever has sealed it.

use tidemill_store::{CreateOutcome, NumberedLog, PutId, Store};
use tidemill_wire::ids::WriterId;

use super::{
    ChainError,
    chain::{Number, READ_TRIES, decode},
};
use crate::{format::checkpoint::ClosingCheckpoint, keys};

/// A closed checkpoint log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The number of the closing checkpoint.
    pub number: u64,
    /// What it says; another closer's if that came first.
    pub closing: ClosingCheckpoint,
}

/// The closing checkpoint of `writer`'s log, if a listing shows it as the log's newest number.
///
/// # Errors
/// The store did not answer, or the newest object is unreadable.
pub async fn find_closing(store: &Store, writer: WriterId) -> Result<Option<Closed>, ChainError> {
    let log = NumberedLog::new(store.clone(), keys::ckpt_prefix(writer));
    Ok(newest(&log)
        .await?
        .and_then(|(number, object)| match object {
            Number::Closing(closing) => Some(Closed { number, closing }),
            Number::Checkpoint(..) => None,
        }))
}

async fn newest(log: &NumberedLog) -> Result<Option<(u64, Number)>, ChainError> {
    let mut tries = 0;
    loop {
        match newest_once(log).await {
            Err(error) if error.may_pass() && tries < READ_TRIES => tries += 1,
            other => return other,
        }
    }
}

async fn newest_once(log: &NumberedLog) -> Result<Option<(u64, Number)>, ChainError> {
    let Some(number) = log.head_by_listing().await? else {
        return Ok(None);
    };
    // The newest number is never trimmed.
    let key = log.key(number);
    let bytes = log.read(number).await?.ok_or(ChainError::Missing { key })?;
    Ok(Some((number, decode(log, number, &bytes)?)))
}

/// Closes `writer`'s checkpoint log above its newest checkpoint; if somebody has closed it already,
/// theirs stands. `decided_below` and `landed` are as [`ClosingCheckpoint::new`] takes them.
///
/// # Errors
/// The store did not answer in time (use a patient store to wait for ever), or the newest object is
/// unreadable.
pub async fn close(
    store: &Store,
    writer: WriterId,
    cluster_id: [u8; 16],
    decided_below: u64,
    landed: &[u64],
) -> Result<Closed, ChainError> {
    let log = NumberedLog::new(store.clone(), keys::ckpt_prefix(writer));
    loop {
        let (number, follows) = match newest(&log).await? {
            None => (0, None),
            Some((number, Number::Closing(closing))) => return Ok(Closed { number, closing }),
            Some((number, Number::Checkpoint(_, id))) => (number + 1, Some(id)),
        };
        let closing = ClosingCheckpoint::new(follows, decided_below, landed.iter().copied());
        let put_id = PutId(store.runtime().entropy.bytes16());
        let body = closing.encode(put_id, cluster_id, writer);
        match log.create(number, body, put_id, None).await? {
            CreateOutcome::Foreign(_) => {}
            // R11: this may be a number that was trimmed; then the newest one decides.
            CreateOutcome::Ours if log.list_from(number + 1).await?.is_empty() => {
                return Ok(Closed { number, closing });
            }
            CreateOutcome::Ours => {}
        }
    }
}
