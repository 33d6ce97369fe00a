//! The closed marker: a WAL number that its writer can never use.
//!
//! Scope: one number of one writer's WAL. Mutability: none; never deleted. Layout: an envelope with
//! an empty directory: nothing in it says which number, so that all of a log may be one file.

use bytes::Bytes;
use tidemill_store::{Envelope, ObjectKind, PutId};
use tidemill_wire::ids::WriterId;

/// Version of [`ObjectKind::ClosedMarker`].
const MARKER_VERSION: u8 = 1;

/// The bytes of a marker in the WAL of `writer`.
pub(super) fn encode(put_id: PutId, cluster_id: [u8; 16], writer: WriterId) -> Bytes {
    let envelope = Envelope {
        kind: ObjectKind::ClosedMarker,
        version: MARKER_VERSION,
        must_understand: 0,
        may_ignore: 0,
        put_id,
        cluster_id,
        writer: writer.0,
    };
    envelope.encode(&[], 0)
}
