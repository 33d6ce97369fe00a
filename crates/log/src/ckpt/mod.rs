//! Checkpoint logs: reading a chain, publishing the next number, closing, trimming (R2, R11).

mod chain;
mod close;
mod publish;

use std::fmt;

use tidemill_store::{StoreError, envelope::EnvelopeError};

pub use chain::{ChainState, PartitionState, read_chain};
pub use close::{Closed, Landed, close, find_closing, newest_replay_from};
pub(crate) use publish::numbers_below;
pub use publish::{CheckpointLog, FULL_EVERY, PublishError, Published, Round, trim_below};

/// Why a checkpoint log could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// The store did not answer.
    Store(StoreError),
    /// An object of the log is damaged or newer than this broker.
    Object {
        /// Its key.
        key: String,
        /// What is wrong.
        error: EnvelopeError,
    },
    /// A checkpoint that another one follows is missing.
    Missing {
        /// Its key.
        key: String,
    },
}

impl ChainError {
    /// True if another read may find something else.
    fn may_pass(&self) -> bool {
        match self {
            Self::Store(_) => false,
            Self::Object { error, .. } => !matches!(error, EnvelopeError::TooNew { .. }),
            Self::Missing { .. } => true,
        }
    }
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Object { key, error } => write!(f, "checkpoint `{key}` is unreadable: {error}"),
            Self::Missing { key } => write!(f, "checkpoint `{key}` is missing"),
        }
    }
}

impl std::error::Error for ChainError {}

impl From<StoreError> for ChainError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
