//! Stored formats of this crate: metadata entries and snapshots.

mod changes;
mod entry;
mod snapshot;

use tidemill_store::envelope::EnvelopeError;

pub use changes::{
    BrokerLevels, BrokerRegistration, Change, ClosedWal, Listener, NewPartition, NewTopic,
    StartedTenure,
};
pub use entry::{Entry, decode_entry, encode_entry};
pub use snapshot::{decode_snapshot, encode_snapshot};

/// Version of [`tidemill_store::ObjectKind::Metadata`] that this broker writes and reads.
pub const ENTRY_VERSION: u8 = 1;
/// Version of [`tidemill_store::ObjectKind::MetadataSnapshot`] that this broker writes and reads.
pub const SNAPSHOT_VERSION: u8 = 1;

fn malformed(what: impl Into<String>) -> EnvelopeError {
    EnvelopeError::Malformed { what: what.into() }
}
