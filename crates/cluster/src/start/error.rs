//! Why a start fails, and what it warns of.

use std::{fmt, time::Duration};

use tidemill_store::RootError;
use tidemill_wire::ids::WriterId;

use super::recover::RecoverError;
use crate::{error::MetadataError, seal::SealError};

/// A broker could not start.
#[derive(Debug)]
pub enum StartError {
    /// The store cannot be used, or holds something else.
    Root(RootError),
    /// The metadata log.
    Metadata(MetadataError),
    /// This writer's own WAL could not be begun.
    Wal(tidemill_log::wal::StartError),
    /// A predecessor could not be sealed.
    Seal(SealError),
    /// A predecessor's state could not be read.
    Recover(RecoverError),
    /// Another broker has started meanwhile and sealed this one.
    Superseded,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(error) => error.fmt(f),
            Self::Metadata(error) => write!(f, "metadata log: {error}"),
            Self::Wal(error) => write!(f, "WAL: {error}"),
            Self::Seal(error) => write!(f, "sealing the broker before this one: {error}"),
            Self::Recover(error) => write!(f, "recovery: {error}"),
            Self::Superseded => f.write_str("another broker has started and taken over"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<RootError> for StartError {
    fn from(error: RootError) -> Self {
        Self::Root(error)
    }
}

impl From<MetadataError> for StartError {
    fn from(error: MetadataError) -> Self {
        Self::Metadata(error)
    }
}

impl From<SealError> for StartError {
    fn from(error: SealError) -> Self {
        Self::Seal(error)
    }
}

impl From<tidemill_log::wal::StartError> for StartError {
    fn from(error: tidemill_log::wal::StartError) -> Self {
        match error {
            tidemill_log::wal::StartError::Sealed => Self::Superseded,
            other => Self::Wal(other),
        }
    }
}

impl From<RecoverError> for StartError {
    fn from(error: RecoverError) -> Self {
        match error {
            RecoverError::Superseded => Self::Superseded,
            other => Self::Recover(other),
        }
    }
}

/// Something an operator should know, although the start succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartWarning {
    /// A writer was sealed that wrote a moment ago: two brokers may be running on one bucket.
    RecentlyAlive {
        /// The writer.
        writer: WriterId,
        /// How long ago its last object was written, by the store's clock.
        age: Duration,
    },
    /// Torn objects were moved to `lost+found/`: what they held is lost.
    TornObjects {
        /// Their keys.
        keys: Vec<String>,
    },
}

impl fmt::Display for StartWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecentlyAlive { writer, age } => write!(
                f,
                "sealed broker incarnation {writer}, which wrote {} s ago: if it still runs it is \
                 out of service from now on; run one broker on a bucket",
                age.as_secs()
            ),
            Self::TornObjects { keys } => write!(
                f,
                "{} torn WAL objects were moved to `lost+found/` (`local.sync` is `os`); the first \
                 is `{}`",
                keys.len(),
                keys.first().map_or("", String::as_str)
            ),
        }
    }
}
