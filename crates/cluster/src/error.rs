//! What can go wrong with the metadata log.

use std::fmt;

use tidemill_store::{StoreError, envelope::EnvelopeError};

/// The metadata log cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataError {
    /// The store failed.
    Store(StoreError),
    /// An object is damaged or of a newer broker.
    Object {
        /// Its key.
        key: String,
        /// What is wrong.
        error: EnvelopeError,
    },
    /// An object belongs to another cluster.
    ForeignCluster {
        /// Its key.
        key: String,
    },
    /// An entry is missing although a later one exists; entries are never trimmed.
    Gap {
        /// The missing entry's key.
        key: String,
        /// The highest number there is.
        highest: u64,
    },
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Object { key, error } => write!(f, "object `{key}`: {error}"),
            Self::ForeignCluster { key } => {
                write!(f, "object `{key}` belongs to another cluster")
            }
            Self::Gap { key, highest } => {
                write!(f, "object `{key}` is missing, but entry {highest} exists")
            }
        }
    }
}

impl std::error::Error for MetadataError {}

impl From<StoreError> for MetadataError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A change was not committed. `E` is the caller's own reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError<E> {
    /// The caller's closure refused, on the image at which it would have been committed.
    Rejected(E),
    /// This broker has been sealed by another one: it must stop.
    Superseded,
    /// The metadata log failed; whether the change is in it may be unknown.
    Metadata(MetadataError),
    /// The cluster handle was closed; whether the change is in the log is unknown.
    Closed,
}

impl<E: fmt::Display> fmt::Display for CommitError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) => error.fmt(f),
            Self::Superseded => f.write_str("another broker has sealed this one"),
            Self::Metadata(error) => write!(f, "metadata log: {error}"),
            Self::Closed => f.write_str("the metadata log is closed"),
        }
    }
}

impl<E: std::error::Error> std::error::Error for CommitError<E> {}
