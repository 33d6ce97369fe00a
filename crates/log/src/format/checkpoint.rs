//! Checkpoints (delta and full) and closing checkpoints.
//!
//! Scope: one number of a writer's checkpoint log. Mutability: none; trimmed below the last full
//! one, closing checkpoints never. Layout of a checkpoint: envelope; directory (what [`Checkpoint`]
//! holds but for the partitions, then length and CRC32C of the body); body: one update per
//! partition. A closing checkpoint has a directory only.

use bytes::Bytes;
use tidemill_store::Payload;
use tidemill_store::envelope::{Envelope, EnvelopeError, ObjectKind, PutId};
use tidemill_wire::ids::{Offset, PartitionId, WriterId};

use super::{
    codec::{Reader, Writer},
    data::envelope,
    parts::{
        HEAD_MIN_LEN, MANIFEST_REF_LEN, OBJECT_LEN, read_extents, read_head, read_manifest_ref,
        read_object, write_extents, write_head, write_manifest_ref, write_object,
    },
};
use crate::types::{DataObjectId, Extent, ManifestRef, PartitionHead, WAL_SPAN};

/// Version of the layout of checkpoints.
pub const CHECKPOINT_VERSION: u8 = 1;
/// Version of the layout of closing checkpoints.
pub const CLOSING_VERSION: u8 = 1;
/// Most WAL numbers from `decided_below` to the last landed one: the span of the writer, and as
/// much again for what a sealer saw of `decided_below` late.
const CLOSING_NUMBERS_MAX: u64 = 1 << 20;

/// A number of a checkpoint log with the put id of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointId {
    /// The number.
    pub number: u64,
    /// The write.
    pub put_id: PutId,
}

/// Replaces the extents of an offset range that manifests do not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// First offset replaced.
    pub from: Offset,
    /// One past the last offset replaced; equal to `from` for extents that are added.
    pub to: Offset,
    /// What stands there from now on, ascending.
    pub with: Vec<Extent>,
}

/// What a checkpoint says of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionUpdate {
    /// The head; its log start drops extents and manifests that end at or below it.
    pub head: PartitionHead,
    /// True if this is the partition's whole state, not a change of what the chain says before.
    pub whole: bool,
    /// The manifests, if they change; extents they cover leave the list beside them.
    pub manifests: Option<Vec<ManifestRef>>,
    /// Changes of the extents beside the manifests, in order.
    pub splices: Vec<Splice>,
}

/// One round of one writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its number in the log.
    pub number: u64,
    /// The checkpoint it continues; none for the first.
    pub follows: Option<CheckpointId>,
    /// True if it needs no other: it names every partition with its whole state.
    pub full: bool,
    /// All lower WAL numbers of the writer are in this checkpoint or in those it follows.
    pub replay_from: u64,
    /// The writer's `decided_below` when the round began.
    pub decided_below: u64,
    /// The next sequence number of a data object; lower ones that nobody lists are garbage.
    pub next_data_seq: u64,
    /// When the round began, Unix milliseconds of the writer's clock.
    pub taken_ms: i64,
    /// Sealed writers whose objects are still to be cleaned up (whole list).
    pub cleanup: Vec<WriterId>,
    /// Data objects that nobody lists any more and that wait for their deletion (whole list if
    /// full, else those this checkpoint adds).
    pub garbage: Vec<DataObjectId>,
    /// Partitions deleted since the checkpoint before.
    pub dropped: Vec<PartitionId>,
    /// Partitions that changed; all if full. Ascending.
    pub updates: Vec<PartitionUpdate>,
}

impl Checkpoint {
    /// The object's bytes.
    #[must_use]
    pub fn encode(&self, put_id: PutId, cluster_id: [u8; 16], writer: WriterId) -> Payload {
        let mut body = Writer::default();
        for update in &self.updates {
            write_update(&mut body, update);
        }
        let body = body.finish();
        let mut out = Writer::default();
        out.u64(self.number);
        write_id(&mut out, self.follows);
        out.bool(self.full);
        out.u64(self.replay_from);
        out.u64(self.decided_below);
        out.u64(self.next_data_seq);
        out.i64(self.taken_ms);
        out.count(self.cleanup.len());
        for writer in &self.cleanup {
            out.u64(writer.0);
        }
        out.count(self.garbage.len());
        for object in &self.garbage {
            write_object(&mut out, *object);
        }
        out.count(self.dropped.len());
        for partition in &self.dropped {
            out.partition(*partition);
        }
        out.count(self.updates.len());
        out.u64(body.len() as u64);
        out.u32(crc32c::crc32c(&body));
        let envelope = envelope(
            ObjectKind::Checkpoint,
            CHECKPOINT_VERSION,
            put_id,
            cluster_id,
            writer,
        );
        let mut payload = Payload::new();
        payload.push(envelope.encode(&out.finish(), body.len() as u64));
        payload.push(body);
        payload
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// The bytes are short, damaged, newer than this broker, or no checkpoint.
    pub fn decode(bytes: &Bytes) -> Result<(Self, Envelope), EnvelopeError> {
        let (envelope, directory) =
            Envelope::decode_whole(bytes, ObjectKind::Checkpoint, CHECKPOINT_VERSION)?;
        let mut from = Reader::new(&directory, "checkpoint");
        let mut checkpoint = Self {
            number: from.u64()?,
            follows: read_id(&mut from)?,
            full: from.bool()?,
            replay_from: from.u64()?,
            decided_below: from.u64()?,
            next_data_seq: from.u64()?,
            taken_ms: from.i64()?,
            cleanup: read_list(&mut from, 8, |from| from.u64().map(WriterId))?,
            garbage: read_list(&mut from, OBJECT_LEN, read_object)?,
            dropped: read_list(&mut from, 20, |from| from.partition())?,
            updates: Vec::new(),
        };
        // The updates lie in the body: the count is checked against its bytes, not the directory's.
        let count = from.u32()? as usize;
        let body_len = from.u64()?;
        let body_crc = from.u32()?;
        from.finish()?;
        let start = Envelope::LEN + directory.len();
        let body = bytes.get(start..).unwrap_or_default();
        if body.len() as u64 != body_len {
            let needed = (start as u64).saturating_add(body_len);
            let found = bytes.len() as u64;
            return Err(EnvelopeError::Truncated { needed, found });
        }
        if crc32c::crc32c(body) != body_crc {
            return Err(EnvelopeError::Checksum { part: "checkpoint" });
        }
        checkpoint.updates = read_updates(body, count, checkpoint.full)?;
        Ok((checkpoint, envelope))
    }
}

fn read_updates(
    body: &[u8],
    count: usize,
    full: bool,
) -> Result<Vec<PartitionUpdate>, EnvelopeError> {
    let mut from = Reader::new(body, "checkpoint body");
    if count > from.left() / HEAD_MIN_LEN {
        return Err(from.malformed("count exceeds the bytes left"));
    }
    let mut updates: Vec<PartitionUpdate> = Vec::with_capacity(count);
    for _ in 0..count {
        let update = read_update(&mut from)?;
        let before = updates.last().map(|before| before.head.partition);
        if before.is_some_and(|before| before >= update.head.partition) {
            return Err(from.malformed("partitions are not sorted"));
        }
        if full && !update.whole {
            return Err(from.malformed("full checkpoint holds a change"));
        }
        updates.push(update);
    }
    from.finish()?;
    Ok(updates)
}

fn write_update(out: &mut Writer, update: &PartitionUpdate) {
    write_head(out, &update.head);
    out.bool(update.whole);
    out.option(update.manifests.as_ref(), |out, manifests| {
        out.count(manifests.len());
        for manifest in manifests {
            write_manifest_ref(out, manifest);
        }
    });
    out.count(update.splices.len());
    for splice in &update.splices {
        out.offset(splice.from);
        out.offset(splice.to);
        write_extents(out, &splice.with);
    }
}

fn read_update(from: &mut Reader<'_>) -> Result<PartitionUpdate, EnvelopeError> {
    Ok(PartitionUpdate {
        head: read_head(from)?,
        whole: from.bool()?,
        manifests: from.option(|from| read_list(from, MANIFEST_REF_LEN, read_manifest_ref))?,
        splices: read_list(from, 20, |from| {
            let (start, end) = (from.offset()?, from.offset()?);
            let with = read_extents(from)?;
            Ok(Splice {
                from: start,
                to: end,
                with,
            })
        })?,
    })
}

fn read_list<T>(
    from: &mut Reader<'_>,
    min_item_bytes: usize,
    read: impl Fn(&mut Reader<'_>) -> Result<T, EnvelopeError>,
) -> Result<Vec<T>, EnvelopeError> {
    let count = from.count(min_item_bytes)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(read(from)?);
    }
    Ok(items)
}

fn write_id(out: &mut Writer, id: Option<CheckpointId>) {
    out.option(id, |out, id| {
        out.u64(id.number);
        out.raw(&id.put_id.0);
    });
}

fn read_id(from: &mut Reader<'_>) -> Result<Option<CheckpointId>, EnvelopeError> {
    from.option(|from| {
        let number = from.u64()?;
        let mut put_id = [0; 16];
        put_id.copy_from_slice(from.raw(16)?);
        Ok(CheckpointId {
            number,
            put_id: PutId(put_id),
        })
    })
}

/// The end of a checkpoint log, and the word on which of its writer's WAL numbers landed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosingCheckpoint {
    /// The checkpoint that is the closed log's state; none if there is none.
    pub follows: Option<CheckpointId>,
    /// All lower WAL numbers landed.
    pub decided_below: u64,
    /// The highest WAL number that landed; none if none did.
    pub last: Option<u64>,
    /// Bit `i` (byte `i / 8`, bit `i % 8`) = number `decided_below + i` landed; up to `last`.
    pub bitmap: Vec<u8>,
}

impl ClosingCheckpoint {
    /// Makes the bitmap of the numbers in `landed` (ascending, at or above `decided_below`).
    #[must_use]
    pub fn new(
        follows: Option<CheckpointId>,
        decided_below: u64,
        landed: impl IntoIterator<Item = u64>,
    ) -> Self {
        let mut last = decided_below.checked_sub(1);
        let mut bitmap = Vec::new();
        for number in landed {
            let Some(bit) = number.checked_sub(decided_below) else {
                continue;
            };
            let byte = usize::try_from(bit / 8).expect("numbers lie within the span");
            if bitmap.len() <= byte {
                bitmap.resize(byte + 1, 0u8);
            }
            bitmap[byte] |= 1 << (bit % 8);
            last = last.max(Some(number));
        }
        Self {
            follows,
            decided_below,
            last,
            bitmap,
        }
    }

    /// True if WAL number `number` landed.
    #[must_use]
    pub fn landed(&self, number: u64) -> bool {
        let Some(bit) = number.checked_sub(self.decided_below) else {
            return true;
        };
        let byte = usize::try_from(bit / 8)
            .ok()
            .and_then(|byte| self.bitmap.get(byte));
        byte.is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
    }

    /// The object's bytes.
    #[must_use]
    pub fn encode(&self, put_id: PutId, cluster_id: [u8; 16], writer: WriterId) -> Payload {
        let mut out = Writer::default();
        write_id(&mut out, self.follows);
        out.u64(self.decided_below);
        out.option(self.last, Writer::u64);
        out.bytes(&self.bitmap);
        let kind = ObjectKind::ClosingCheckpoint;
        let envelope = envelope(kind, CLOSING_VERSION, put_id, cluster_id, writer);
        envelope.encode(&out.finish(), 0).into()
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// The bytes are short, damaged, newer than this broker, or no closing checkpoint.
    pub fn decode(bytes: &Bytes) -> Result<(Self, Envelope), EnvelopeError> {
        let (envelope, directory) =
            Envelope::decode_whole(bytes, ObjectKind::ClosingCheckpoint, CLOSING_VERSION)?;
        let mut from = Reader::new(&directory, "closing checkpoint");
        let closing = Self {
            follows: read_id(&mut from)?,
            decided_below: from.u64()?,
            last: from.option(Reader::u64)?,
            bitmap: from.bytes()?.to_vec(),
        };
        let numbers = match closing.last {
            Some(last) => last.saturating_add(1).saturating_sub(closing.decided_below),
            None => 0,
        };
        let bytes_needed = numbers.div_ceil(8);
        if numbers > CLOSING_NUMBERS_MAX || bytes_needed != closing.bitmap.len() as u64 {
            return Err(from.malformed("bitmap does not end with the last number"));
        }
        from.finish()?;
        Ok((closing, envelope))
    }
}

const _: () = assert!(CLOSING_NUMBERS_MAX > 2 * WAL_SPAN, "every span fits");

/// Fuzz entry: decodes `bytes` as a checkpoint, a closing one, and a checkpoint's body.
pub fn fuzz(bytes: &[u8]) {
    let whole = Bytes::copy_from_slice(bytes);
    let _ = Checkpoint::decode(&whole);
    let _ = ClosingCheckpoint::decode(&whole);
    let count = bytes.first().copied().unwrap_or(0);
    let _ = read_updates(bytes, usize::from(count), false);
}
