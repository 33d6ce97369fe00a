//! What two targets need beyond the entry points of the crates: objects whose checksums are right
//! around contents that are not, so that the fuzzer gets behind the checksums.

use bytes::Bytes;
use tidemill_cluster::format::{
    ENTRY_VERSION, SNAPSHOT_VERSION, decode_entry, decode_snapshot, encode_entry, encode_snapshot,
};
use tidemill_log::format::{
    checkpoint::{self, CHECKPOINT_VERSION, CLOSING_VERSION},
    data::{self, DATA_VERSION},
    manifest::{self, MANIFEST_VERSION},
    wal,
};
use tidemill_store::{Envelope, ObjectKind, PutId, root::Root, testing::fuzz};
use tidemill_wire::ids::WriterId;

/// Every kind, with the newest version of its layout.
const KINDS: &[(ObjectKind, u8)] = &[
    (ObjectKind::Root, 1),
    (ObjectKind::Metadata, ENTRY_VERSION),
    (ObjectKind::MetadataSnapshot, SNAPSHOT_VERSION),
    (ObjectKind::Wal, wal::VERSION),
    (ObjectKind::ClosedMarker, 1),
    (ObjectKind::Checkpoint, CHECKPOINT_VERSION),
    (ObjectKind::ClosingCheckpoint, CLOSING_VERSION),
    (ObjectKind::Segment, DATA_VERSION),
    (ObjectKind::SetObject, DATA_VERSION),
    (ObjectKind::Manifest, MANIFEST_VERSION),
];

/// An object of `kind` with a good header; the first two bytes of `data` (little endian) are the
/// length of its directory, what follows that is its body.
fn sealed(kind: ObjectKind, version: u8, data: &[u8]) -> Bytes {
    let (length, rest) = match data {
        [low, high, rest @ ..] => (usize::from(u16::from_le_bytes([*low, *high])), rest),
        _ => (0, data),
    };
    let (directory, body) = rest.split_at(length.min(rest.len()));
    let envelope = Envelope {
        kind,
        version,
        must_understand: 0,
        may_ignore: 0,
        put_id: PutId([7; 16]),
        cluster_id: [9; 16],
        writer: 3,
    };
    let head = envelope.encode(directory, body.len() as u64);
    [&head, body].concat().into()
}

/// Any bytes as a stored object, in every way there is to read one.
pub fn stored_object(data: &[u8]) {
    every_reader(&Bytes::copy_from_slice(data));
    if let Some((choice, rest)) = data.split_first() {
        let (kind, version) = KINDS[usize::from(*choice) % KINDS.len()];
        every_reader(&sealed(kind, version, rest));
    }
}

fn every_reader(bytes: &Bytes) {
    fuzz::stored_object(bytes);
    data::fuzz(bytes);
    manifest::fuzz(bytes);
    wal::fuzz(bytes);
    checkpoint::fuzz(bytes);
    let _ = Root::decode(bytes);
    let _ = decode_entry(bytes);
    let _ = decode_snapshot(bytes);
    if tidemill_log::inspect::bytes_needed(bytes).is_ok() {
        let _ = tidemill_log::inspect::render(bytes);
    }
}

/// The first byte chooses the kind, the rest is its directory (and body).
pub fn directories(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else {
        return;
    };
    let whole = |kind, version| {
        let length = u16::try_from(rest.len()).unwrap_or(u16::MAX).to_le_bytes();
        sealed(kind, version, &[&length, rest].concat())
    };
    match choice % 5 {
        0 => metadata_entry(&whole(ObjectKind::Metadata, ENTRY_VERSION)),
        1 => metadata_snapshot(&whole(ObjectKind::MetadataSnapshot, SNAPSHOT_VERSION)),
        2 => {
            wal::fuzz(rest);
            wal::fuzz(&sealed(ObjectKind::Wal, wal::VERSION, rest));
        }
        3 => checkpoint::fuzz(&whole(ObjectKind::Checkpoint, CHECKPOINT_VERSION)),
        _ => checkpoint::fuzz(&whole(ObjectKind::ClosingCheckpoint, CLOSING_VERSION)),
    }
}

fn metadata_entry(bytes: &Bytes) {
    let Ok(entry) = decode_entry(bytes) else {
        return;
    };
    let again = decode_entry(&encode_entry(&entry));
    assert_eq!(
        again.as_ref(),
        Ok(&entry),
        "an entry is read as it was written"
    );
}

fn metadata_snapshot(bytes: &Bytes) {
    let Ok((cluster_id, image)) = decode_snapshot(bytes) else {
        return;
    };
    let written = encode_snapshot(&image, PutId([1; 16]), cluster_id, WriterId(1));
    let Ok((_, again)) = decode_snapshot(&written) else {
        panic!("a snapshot that was written cannot be read");
    };
    let rewritten = encode_snapshot(&again, PutId([1; 16]), cluster_id, WriterId(1));
    assert!(written == rewritten, "a snapshot is read as it was written");
}
