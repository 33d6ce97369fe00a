//! Manifests: immutable extent lists of one or more partitions.
//!
//! Scope: what [`ManifestRef`]s in checkpoints name by byte range. Mutability: none; deleted when
//! no partition's newest state names them. Layout: envelope; directory (count, then {partition,
//! range, CRC32C} each); bodies (count, then extents, ascending).

use std::ops::Range;

use bytes::Bytes;
use tidemill_store::Payload;
use tidemill_store::envelope::{Envelope, EnvelopeError, ObjectKind, PutId};
use tidemill_wire::ids::PartitionId;

use super::{
    codec::{Reader, Writer},
    data::envelope,
    parts::{read_extents, write_extents},
};
use crate::types::{DataObjectId, Extent, ManifestRef};

/// Version of the layout.
pub const MANIFEST_VERSION: u8 = 1;
const ENTRY_LEN: usize = 20 + 16 + 4;

/// One list of a manifest object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Whose extents.
    pub partition: PartitionId,
    /// Bytes of the list within the object.
    pub range: Range<u64>,
    /// CRC32C of these bytes.
    pub crc: u32,
}

/// Builds one manifest object of several lists, none of them empty.
#[must_use]
pub fn encode(
    id: DataObjectId,
    lists: &[(PartitionId, Vec<Extent>)],
    put_id: PutId,
    cluster_id: [u8; 16],
) -> (Payload, Vec<(PartitionId, ManifestRef)>) {
    let directory_len = 4 + lists.len() * ENTRY_LEN;
    let mut position = (Envelope::LEN + directory_len) as u64;
    let mut directory = Writer::with_capacity(directory_len);
    directory.count(lists.len());
    let mut bodies = Vec::with_capacity(lists.len());
    let mut refs = Vec::with_capacity(lists.len());
    let mut body_len = 0;
    for (partition, extents) in lists {
        let mut body = Writer::default();
        write_extents(&mut body, extents);
        let body = body.finish();
        let range = position..position + body.len() as u64;
        position = range.end;
        body_len += body.len() as u64;
        let crc = crc32c::crc32c(&body);
        directory.partition(*partition);
        directory.range(&range);
        directory.u32(crc);
        if let Some(manifest) = describe(id, range, crc, extents) {
            refs.push((*partition, manifest));
        }
        bodies.push(body);
    }
    let envelope = envelope(
        ObjectKind::Manifest,
        MANIFEST_VERSION,
        put_id,
        cluster_id,
        id.writer,
    );
    let mut payload = Payload::new();
    payload.push(envelope.encode(&directory.finish(), body_len));
    for body in bodies {
        payload.push(body);
    }
    (payload, refs)
}

fn describe(
    object: DataObjectId,
    range: Range<u64>,
    crc: u32,
    extents: &[Extent],
) -> Option<ManifestRef> {
    Some(ManifestRef {
        object,
        range,
        crc,
        extents: u32::try_from(extents.len()).ok()?,
        base_offset: extents.first()?.base_offset,
        end_offset: extents.last()?.end_offset,
        size_bytes: extents
            .iter()
            .map(|extent| extent.range.end - extent.range.start)
            .sum(),
        max_timestamp: extents.iter().map(|extent| extent.max_timestamp).max()?,
    })
}

/// Reads header and directory of a whole manifest object.
///
/// # Errors
/// The bytes are short, damaged, newer than this broker, or no manifest.
pub fn decode_directory(bytes: &Bytes) -> Result<Vec<ManifestEntry>, EnvelopeError> {
    let (_, directory) = Envelope::decode_whole(bytes, ObjectKind::Manifest, MANIFEST_VERSION)?;
    let mut from = Reader::new(&directory, "manifest directory");
    let count = from.count(ENTRY_LEN)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(ManifestEntry {
            partition: from.partition()?,
            range: from.range()?,
            crc: from.u32()?,
        });
    }
    from.finish()?;
    Ok(entries)
}

/// Reads the list that `manifest` names from the bytes of its range.
///
/// # Errors
/// The bytes do not match the reference.
pub fn decode_list(bytes: &[u8], manifest: &ManifestRef) -> Result<Vec<Extent>, EnvelopeError> {
    if crc32c::crc32c(bytes) != manifest.crc {
        return Err(EnvelopeError::Checksum { part: "manifest" });
    }
    let mut from = Reader::new(bytes, "manifest");
    let extents = read_extents(&mut from)?;
    let fits = extents.len() == manifest.extents as usize
        && extents.first().map(|extent| extent.base_offset) == Some(manifest.base_offset)
        && extents.last().map(|extent| extent.end_offset) == Some(manifest.end_offset);
    if !fits {
        return Err(from.malformed("list does not fit its reference"));
    }
    from.finish()?;
    Ok(extents)
}

/// Fuzz entry: decodes `bytes` as a manifest object and as a list.
pub fn fuzz(bytes: &[u8]) {
    let _ = decode_directory(&Bytes::copy_from_slice(bytes));
    let _ = read_extents(&mut Reader::new(bytes, "manifest"));
}
