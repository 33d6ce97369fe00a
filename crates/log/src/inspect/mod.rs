//! Any stored object of the log as text.

use std::fmt::Write;

use bytes::Bytes;
use tidemill_store::{Envelope, ObjectKind, envelope::EnvelopeError};

use crate::format::{
    checkpoint::{Checkpoint, ClosingCheckpoint, PartitionUpdate},
    data::DataDirectory,
    manifest,
    wal::{WalDirectory, WalEntry, WalPartBody},
};

/// Bytes from the start of an object that [`render`] needs, told from its first [`Envelope::LEN`]:
/// bodies of WAL and data objects are not shown.
///
/// # Errors
/// The bytes are no header.
pub fn bytes_needed(header: &[u8]) -> Result<u64, EnvelopeError> {
    let (envelope, directory_len, object_len) = Envelope::decode_header(header)?;
    Ok(match envelope.kind {
        ObjectKind::Wal | ObjectKind::Segment | ObjectKind::SetObject => {
            Envelope::LEN as u64 + u64::from(directory_len)
        }
        _ => object_len,
    })
}

/// An object of the log as lines of text; `bytes` are at least [`bytes_needed`]. Of kinds that
/// belong to the metadata only the header is shown.
///
/// # Errors
/// The bytes are short, damaged, foreign or newer than this broker.
pub fn render(bytes: &Bytes) -> Result<String, EnvelopeError> {
    let (envelope, directory_len, object_len) = Envelope::decode_header(bytes)?;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "kind: {:?} version {}",
        envelope.kind, envelope.version
    );
    let _ = writeln!(out, "put id: {}", envelope.put_id);
    let _ = writeln!(out, "cluster: {}", hex(&envelope.cluster_id));
    let _ = writeln!(out, "writer: {}", envelope.writer);
    let _ = writeln!(
        out,
        "bytes: {object_len}, of these directory: {directory_len}"
    );
    match envelope.kind {
        ObjectKind::Wal => wal(&mut out, bytes)?,
        ObjectKind::Checkpoint => checkpoint(&mut out, bytes)?,
        ObjectKind::ClosingCheckpoint => closing(&mut out, bytes)?,
        ObjectKind::Segment | ObjectKind::SetObject => data(&mut out, bytes)?,
        ObjectKind::Manifest => manifests(&mut out, bytes)?,
        ObjectKind::ClosedMarker
        | ObjectKind::Root
        | ObjectKind::Metadata
        | ObjectKind::MetadataSnapshot => {}
    }
    Ok(out)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn wal(out: &mut String, bytes: &Bytes) -> Result<(), EnvelopeError> {
    let (_, directory, _) = WalDirectory::decode_object(bytes)?;
    let WalDirectory {
        number,
        decided_below,
        replay_from,
        written_ms,
        entries,
    } = directory;
    let _ = writeln!(out, "number: {number}");
    let _ = writeln!(out, "decided below: {decided_below}");
    let _ = writeln!(out, "replay from: {replay_from}");
    let _ = writeln!(out, "written: {written_ms}");
    for entry in &entries {
        wal_entry(out, number, entry);
    }
    Ok(())
}

fn wal_entry(out: &mut String, number: u64, entry: &WalEntry) {
    let WalEntry {
        id,
        fragment,
        fragments,
        length,
        range,
        crc,
        deps,
        parts,
    } = entry;
    let _ = write!(
        out,
        "entry {id}: fragment {fragment} of {fragments}, bytes {range:?}"
    );
    let _ = write!(out, " of {length}, crc {crc:08x}, depends on [");
    let depends = (0..u128::BITS).filter(|bit| deps >> bit & 1 == 1);
    let numbers: Vec<String> = depends
        .filter_map(|bit| number.checked_sub(1 + u64::from(bit)))
        .map(|number| number.to_string())
        .collect();
    let _ = writeln!(out, "{}]", numbers.join(", "));
    for part in parts {
        let _ = match &part.body {
            WalPartBody::Records { header, .. } => writeln!(
                out,
                "  records {}: offsets {} to {}, epoch {}, producer {} epoch {} sequence {}, \
                 {} records, {} bytes, timestamps up to {}",
                part.partition,
                header.base_offset,
                header.last_offset(),
                header.partition_leader_epoch,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.record_count,
                header.size_bytes(),
                header.max_timestamp,
            ),
            WalPartBody::LogStart { epoch, offset } => {
                writeln!(
                    out,
                    "  log start {}: {offset}, epoch {epoch}",
                    part.partition
                )
            }
        };
    }
}

fn checkpoint(out: &mut String, bytes: &Bytes) -> Result<(), EnvelopeError> {
    let (checkpoint, _) = Checkpoint::decode(bytes)?;
    let _ = writeln!(out, "number: {}", checkpoint.number);
    if let Some(follows) = checkpoint.follows {
        let _ = writeln!(out, "follows: {} put id {}", follows.number, follows.put_id);
    }
    let _ = writeln!(out, "full: {}", checkpoint.full);
    let _ = writeln!(out, "replay from: {}", checkpoint.replay_from);
    let _ = writeln!(out, "decided below: {}", checkpoint.decided_below);
    let _ = writeln!(out, "next data object: {}", checkpoint.next_data_seq);
    let _ = writeln!(out, "taken: {}", checkpoint.taken_ms);
    for writer in &checkpoint.cleanup {
        let _ = writeln!(out, "clean up after writer {writer}");
    }
    for object in &checkpoint.garbage {
        let _ = writeln!(out, "garbage: {}", crate::keys::data_key(*object));
    }
    for partition in &checkpoint.dropped {
        let _ = writeln!(out, "dropped: {partition}");
    }
    checkpoint
        .updates
        .iter()
        .for_each(|update| partition(out, update));
    Ok(())
}

fn partition(out: &mut String, update: &PartitionUpdate) {
    let head = &update.head;
    let _ = writeln!(
        out,
        "partition {}: {}, epoch {}, log start {}, next offset {}, {} producers",
        head.partition,
        if update.whole {
            "whole state"
        } else {
            "change"
        },
        head.leader_epoch,
        head.log_start,
        head.next_offset,
        head.producers.len(),
    );
    for (epoch, start) in &head.epoch_starts {
        let _ = writeln!(out, "  epoch {epoch} starts at {start}");
    }
    for manifest in update.manifests.iter().flatten() {
        let _ = writeln!(
            out,
            "  manifest {} bytes {:?}: offsets {} to {}, {} extents, {} bytes",
            crate::keys::data_key(manifest.object),
            manifest.range,
            manifest.base_offset,
            manifest.end_offset,
            manifest.extents,
            manifest.size_bytes,
        );
    }
    for splice in &update.splices {
        let _ = writeln!(out, "  extents {} to {} become", splice.from, splice.to);
        for extent in &splice.with {
            let _ = writeln!(
                out,
                "    {} to {}: {} bytes {:?}, timestamps up to {}",
                extent.base_offset,
                extent.end_offset,
                crate::keys::data_key(extent.object),
                extent.range,
                extent.max_timestamp,
            );
        }
    }
}

fn closing(out: &mut String, bytes: &Bytes) -> Result<(), EnvelopeError> {
    let (closing, _) = ClosingCheckpoint::decode(bytes)?;
    if let Some(follows) = closing.follows {
        let _ = writeln!(out, "follows: {} put id {}", follows.number, follows.put_id);
    }
    let _ = writeln!(out, "decided below: {}", closing.decided_below);
    let Some(last) = closing.last else {
        let _ = writeln!(out, "no WAL number landed");
        return Ok(());
    };
    let _ = writeln!(out, "last landed: {last}");
    for number in closing.decided_below..last {
        if !closing.landed(number) {
            let _ = writeln!(out, "never landed: {number}");
        }
    }
    Ok(())
}

fn data(out: &mut String, bytes: &Bytes) -> Result<(), EnvelopeError> {
    for run in DataDirectory::decode(bytes)?.runs {
        let _ = writeln!(
            out,
            "run {}: offsets {} to {}, bytes {:?}, footer {:?}, timestamps up to {} at {}, \
             crc {:08x}",
            run.partition,
            run.base_offset,
            run.end_offset,
            run.range,
            run.footer,
            run.max_timestamp,
            run.max_timestamp_offset,
            run.crc,
        );
    }
    Ok(())
}

fn manifests(out: &mut String, bytes: &Bytes) -> Result<(), EnvelopeError> {
    for entry in manifest::decode_directory(bytes)? {
        let _ = writeln!(out, "list of {}: bytes {:?}", entry.partition, entry.range);
    }
    Ok(())
}
