//! One number of the metadata log.
//!
//! Scope: the cluster. Mutability: none; never trimmed. Layout of the directory (little endian), no
//! body: u32 number of changes, then each as u16 kind, u32 length, that many bytes. Kinds below
//! 0x8000 that a reader does not know stop it; others are skipped. A change may grow by new fields
//! at its end only with a new kind.

use bytes::Bytes;
use tidemill_log::format::codec::{Reader, Writer};
use tidemill_store::{Envelope, ObjectKind, PutId, envelope::EnvelopeError};
use tidemill_wire::ids::WriterId;

use super::{Change, ENTRY_VERSION};

/// A decoded entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The write.
    pub put_id: PutId,
    /// The cluster it belongs to.
    pub cluster_id: [u8; 16],
    /// Who wrote it; 0 for a registration, whose writer has no id yet.
    pub writer: WriterId,
    /// What it changes, in order.
    pub changes: Vec<Change>,
}

/// The bytes of `entry`.
#[must_use]
pub fn encode_entry(entry: &Entry) -> Bytes {
    let mut out = Writer::default();
    out.list(&entry.changes, |out, change| {
        let mut body = Writer::default();
        change.encode(&mut body);
        let body = body.finish();
        out.u16(change.kind());
        out.bytes(&body);
    });
    let envelope = Envelope {
        kind: ObjectKind::Metadata,
        version: ENTRY_VERSION,
        must_understand: 0,
        may_ignore: 0,
        put_id: entry.put_id,
        cluster_id: entry.cluster_id,
        writer: entry.writer.0,
    };
    envelope.encode(&out.finish(), 0)
}

/// Reads an entry.
///
/// # Errors
/// [`EnvelopeError`] if the bytes are damaged, foreign, or of a newer broker.
pub fn decode_entry(bytes: &Bytes) -> Result<Entry, EnvelopeError> {
    let (envelope, directory) = Envelope::decode_whole(bytes, ObjectKind::Metadata, ENTRY_VERSION)?;
    let mut reader = Reader::new(&directory, "metadata entry");
    let changes = reader.list(|reader| {
        let kind = reader.u16()?;
        let mut body = Reader::new(reader.bytes()?, "metadata change");
        let change = Change::decode(kind, &mut body)?;
        if change.is_some() {
            body.finish()?;
        }
        Ok(change)
    })?;
    reader.finish()?;
    Ok(Entry {
        put_id: envelope.put_id,
        cluster_id: envelope.cluster_id,
        writer: WriterId(envelope.writer),
        changes: changes.into_iter().flatten().collect(),
    })
}
