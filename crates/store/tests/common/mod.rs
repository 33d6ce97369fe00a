//! Shared by the tests.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod model;
pub mod suite;

use bytes::Bytes;
use tidemill_store::{Envelope, ObjectKind, Payload, PutId};

/// A whole object: header, small directory, and `body` as a slice of its own.
pub fn object(put_id: PutId, body: &[u8]) -> Payload {
    let envelope = Envelope {
        kind: ObjectKind::Wal,
        version: 1,
        must_understand: 0,
        may_ignore: 0,
        put_id,
        cluster_id: [7; 16],
        writer: 1,
    };
    [
        envelope.encode(b"directory", body.len() as u64),
        Bytes::copy_from_slice(body),
    ]
    .into_iter()
    .collect()
}

/// The bytes of a payload.
pub fn joined(payload: &Payload) -> Vec<u8> {
    payload.slices().iter().flatten().copied().collect()
}

/// A put id made of one byte.
pub fn id(byte: u8) -> PutId {
    PutId([byte; 16])
}
