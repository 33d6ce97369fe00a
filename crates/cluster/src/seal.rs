//! Sealing a dead or stuck writer (design, section 2 "Ownership and takeover").
//!
//! Any broker may seal any writer, several at once and each of them may die at any point: every
//! step is a put-if-absent, and the first closing checkpoint decides. Nothing here depends on a
//! clock (R6).

mod marker;
mod wal;

use std::{fmt, time::Duration};

use tidemill_log::{
    ckpt::{self, ChainError, Closed},
    format::checkpoint::ClosingCheckpoint,
    keys::wal_prefix,
};
use tidemill_store::{NumberedLog, PutId, Store, StoreError, envelope::EnvelopeError};
use tidemill_wire::ids::WriterId;

use crate::format::ClosedWal;

/// What a torn WAL object at or above `decided_below` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TornPolicy {
    /// Damage: stop and name it. For stores that sync before they answer.
    #[default]
    Corruption,
    /// It never landed (`local.sync = os` after a power failure): it is moved to `lost+found/`, its
    /// number closed, the loss logged.
    NeverLanded,
}

/// How to seal.
#[derive(Clone, Debug)]
pub struct SealOptions {
    /// The store.
    pub store: Store,
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// The broker that seals; named in the objects it creates.
    pub sealer: WriterId,
    /// Torn objects.
    pub torn: TornPolicy,
    /// How long one create may take; none waits for ever.
    pub deadline: Option<Duration>,
}

/// A writer that can publish nothing any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The writer.
    pub writer: WriterId,
    /// What the metadata log is to say of it.
    pub closed: ClosedWal,
    /// The closing checkpoint.
    pub closing: ClosingCheckpoint,
    /// True if it was found closed: by a clean stop, or by another sealer.
    pub found_closed: bool,
    /// Keys of torn objects that were moved to `lost+found/`.
    pub lost: Vec<String>,
    /// When its highest WAL object was written, Unix milliseconds by the store's clock; none if it
    /// was found closed or never wrote. For a warning only.
    pub last_write_ms: Option<i64>,
}

/// A writer could not be sealed; nothing is lost, another try goes on where this one stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealError {
    /// The store failed.
    Store(StoreError),
    /// One of its last WAL objects is damaged, of which only itself can say whether it landed.
    Torn {
        /// Its key.
        key: String,
        /// What is wrong.
        error: EnvelopeError,
    },
    /// An object that decides is damaged, or of a newer broker.
    Object {
        /// Its key.
        key: String,
        /// What is wrong.
        error: EnvelopeError,
    },
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Torn { key, error } => write!(
                f,
                "object `{key}`: {error}; put a sound copy in its place, or move it away and lose \
                 the records in it: \"A damaged last object\" in docs/operations.md"
            ),
            Self::Object { key, error } => write!(f, "object `{key}`: {error}"),
        }
    }
}

impl std::error::Error for SealError {}

impl From<StoreError> for SealError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ChainError> for SealError {
    fn from(error: ChainError) -> Self {
        match error {
            ChainError::Store(error) => Self::Store(error),
            ChainError::Object { key, error } => Self::Object { key, error },
            ChainError::Missing { key } => {
                let what = "is missing, although nothing above it is there".to_owned();
                let error = EnvelopeError::Malformed { what };
                Self::Object { key, error }
            }
        }
    }
}

struct Sealer<'a> {
    options: &'a SealOptions,
    writer: WriterId,
    wal: NumberedLog,
    lost: Vec<String>,
    /// A number that is closed.
    marker: Option<u64>,
}

/// Seals `writer`, or finds that it is. Afterwards nothing that it still has in flight can land and
/// count, and every broker that replays it finds the same entries.
///
/// # Errors
/// [`SealError`]
pub async fn seal(writer: WriterId, options: &SealOptions) -> Result<Sealed, SealError> {
    let mut sealer = Sealer {
        options,
        writer,
        wal: NumberedLog::new(options.store.clone(), wal_prefix(writer)),
        lost: Vec::new(),
        marker: None,
    };
    if let Some(closed) = ckpt::find_closing(&options.store, writer).await? {
        return Ok(sealer.sealed(closed, None));
    }
    let landed = sealer.close_wal().await?;
    let last_write_ms = sealer.written_ms(landed.last).await?;
    let (store, cluster_id) = (&options.store, options.cluster_id);
    let closed = ckpt::close(store, writer, cluster_id, &landed.into(), options.deadline).await?;
    Ok(sealer.sealed(closed, last_write_ms))
}

impl Sealer<'_> {
    fn put_id(&self) -> PutId {
        PutId(self.options.store.runtime().entropy.bytes16())
    }

    fn object(key: String, error: EnvelopeError) -> SealError {
        SealError::Object { key, error }
    }

    async fn written_ms(&self, last: Option<u64>) -> Result<Option<i64>, SealError> {
        let Some(last) = last else {
            return Ok(None);
        };
        match self.options.store.head(&self.wal.key(last)).await {
            Ok(meta) => Ok(Some(meta.modified_ms)),
            // Trimmed meanwhile by another sealer.
            Err(error) if error.kind == tidemill_store::StoreErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn sealed(self, found: Closed, last_write_ms: Option<i64>) -> Sealed {
        Sealed {
            writer: self.writer,
            closed: ClosedWal {
                checkpoint: found.number,
                checkpoint_put_id: found.put_id,
                last: found.closing.last,
            },
            closing: found.closing,
            found_closed: !found.is_ours,
            lost: self.lost,
            last_write_ms,
        }
    }
}
