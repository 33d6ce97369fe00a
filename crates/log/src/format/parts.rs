//! Fields that manifests and checkpoints share.

use tidemill_store::envelope::EnvelopeError;
use tidemill_wire::ids::{LeaderEpoch, ProducerEpoch, ProducerId, WriterId};

use super::codec::{Reader, Writer};
use crate::types::{
    DataObjectId, Extent, ManifestRef, PartitionHead, ProducerBatch, ProducerState,
};

/// Bytes of an encoded object id.
pub(super) const OBJECT_LEN: usize = 16;
/// Bytes of an encoded extent.
pub(super) const EXTENT_LEN: usize = 8 + 8 + OBJECT_LEN + 8 + 16 + 16 + 8 + 8 + 4;
/// Bytes of an encoded manifest reference.
pub(super) const MANIFEST_REF_LEN: usize = OBJECT_LEN + 16 + 4 + 4 + 8 + 8 + 8 + 8;
const PRODUCER_BATCH_LEN: usize = 4 + 4 + 8 + 8 + 8;
/// Least bytes of an encoded producer.
const PRODUCER_MIN_LEN: usize = 8 + 2 + 8 + 4 + 1 + 4;
/// K25: the last five batches of a producer are remembered.
const PRODUCER_BATCHES_MAX: usize = 5;

pub(super) fn write_object(out: &mut Writer, object: DataObjectId) {
    out.u64(object.writer.0);
    out.u64(object.seq);
}

pub(super) fn read_object(from: &mut Reader<'_>) -> Result<DataObjectId, EnvelopeError> {
    let writer = WriterId(from.u64()?);
    let seq = from.u64()?;
    Ok(DataObjectId { writer, seq })
}

pub(super) fn write_extent(out: &mut Writer, extent: &Extent) {
    out.offset(extent.base_offset);
    out.offset(extent.end_offset);
    write_object(out, extent.object);
    out.u64(extent.object_len);
    out.range(&extent.range);
    out.range(&extent.footer);
    out.i64(extent.max_timestamp);
    out.offset(extent.max_timestamp_offset);
    out.u32(extent.footer_crc);
}

pub(super) fn read_extent(from: &mut Reader<'_>) -> Result<Extent, EnvelopeError> {
    let extent = Extent {
        base_offset: from.offset()?,
        end_offset: from.offset()?,
        object: read_object(from)?,
        object_len: from.u64()?,
        range: from.range()?,
        footer: from.range()?,
        max_timestamp: from.i64()?,
        max_timestamp_offset: from.offset()?,
        footer_crc: from.u32()?,
    };
    if extent.end_offset <= extent.base_offset {
        return Err(from.malformed("extent without offsets"));
    }
    if extent.range.end > extent.object_len || extent.footer.end > extent.object_len {
        return Err(from.malformed("extent reaches beyond its object"));
    }
    Ok(extent)
}

pub(super) fn write_extents(out: &mut Writer, extents: &[Extent]) {
    out.count(extents.len());
    for extent in extents {
        write_extent(out, extent);
    }
}

/// Extents in ascending order, none overlapping another.
pub(super) fn read_extents(from: &mut Reader<'_>) -> Result<Vec<Extent>, EnvelopeError> {
    let count = from.count(EXTENT_LEN)?;
    let mut extents: Vec<Extent> = Vec::with_capacity(count);
    for _ in 0..count {
        let extent = read_extent(from)?;
        let before = extents.last();
        if before.is_some_and(|before| before.end_offset > extent.base_offset) {
            return Err(from.malformed("extents out of order"));
        }
        extents.push(extent);
    }
    Ok(extents)
}

pub(super) fn write_manifest_ref(out: &mut Writer, manifest: &ManifestRef) {
    write_object(out, manifest.object);
    out.range(&manifest.range);
    out.u32(manifest.crc);
    out.u32(manifest.extents);
    out.offset(manifest.base_offset);
    out.offset(manifest.end_offset);
    out.u64(manifest.size_bytes);
    out.i64(manifest.max_timestamp);
}

pub(super) fn read_manifest_ref(from: &mut Reader<'_>) -> Result<ManifestRef, EnvelopeError> {
    Ok(ManifestRef {
        object: read_object(from)?,
        range: from.range()?,
        crc: from.u32()?,
        extents: from.u32()?,
        base_offset: from.offset()?,
        end_offset: from.offset()?,
        size_bytes: from.u64()?,
        max_timestamp: from.i64()?,
    })
}

pub(super) fn write_head(out: &mut Writer, head: &PartitionHead) {
    out.partition(head.partition);
    out.i32(head.leader_epoch.0);
    out.offset(head.next_offset);
    out.offset(head.log_start);
    out.count(head.epoch_starts.len());
    for (epoch, start) in &head.epoch_starts {
        out.i32(epoch.0);
        out.offset(*start);
    }
    out.count(head.producers.len());
    for producer in &head.producers {
        write_producer(out, producer);
    }
}

/// Least bytes of an encoded head.
pub(super) const HEAD_MIN_LEN: usize = 20 + 4 + 8 + 8 + 4 + 4;

pub(super) fn read_head(from: &mut Reader<'_>) -> Result<PartitionHead, EnvelopeError> {
    let partition = from.partition()?;
    let leader_epoch = LeaderEpoch(from.i32()?);
    let next_offset = from.offset()?;
    let log_start = from.offset()?;
    if log_start > next_offset {
        return Err(from.malformed("log start above the high watermark"));
    }
    let count = from.count(12)?;
    let mut epoch_starts = Vec::with_capacity(count);
    for _ in 0..count {
        epoch_starts.push((LeaderEpoch(from.i32()?), from.offset()?));
    }
    let count = from.count(PRODUCER_MIN_LEN)?;
    let mut producers = Vec::with_capacity(count);
    for _ in 0..count {
        producers.push(read_producer(from)?);
    }
    Ok(PartitionHead {
        partition,
        leader_epoch,
        next_offset,
        log_start,
        epoch_starts,
        producers,
    })
}

fn write_producer(out: &mut Writer, producer: &ProducerState) {
    out.i64(producer.producer_id.0);
    out.i16(producer.epoch.0);
    out.i64(producer.last_timestamp);
    out.i32(producer.coordinator_epoch);
    out.option(producer.open_transaction, Writer::offset);
    out.count(producer.batches.len());
    for batch in &producer.batches {
        out.i32(batch.first_sequence);
        out.i32(batch.last_sequence);
        out.offset(batch.base_offset);
        out.offset(batch.last_offset);
        out.i64(batch.timestamp);
    }
}

fn read_producer(from: &mut Reader<'_>) -> Result<ProducerState, EnvelopeError> {
    let producer_id = ProducerId(from.i64()?);
    let epoch = ProducerEpoch(from.i16()?);
    let last_timestamp = from.i64()?;
    let coordinator_epoch = from.i32()?;
    let open_transaction = from.option(Reader::offset)?;
    let count = from.count(PRODUCER_BATCH_LEN)?;
    if count > PRODUCER_BATCHES_MAX {
        return Err(from.malformed("more than five batches of one producer"));
    }
    let mut batches = Vec::with_capacity(count);
    for _ in 0..count {
        batches.push(ProducerBatch {
            first_sequence: from.i32()?,
            last_sequence: from.i32()?,
            base_offset: from.offset()?,
            last_offset: from.offset()?,
            timestamp: from.i64()?,
        });
    }
    Ok(ProducerState {
        producer_id,
        epoch,
        last_timestamp,
        batches,
        open_transaction,
        coordinator_epoch,
    })
}
