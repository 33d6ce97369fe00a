//! Readers: follow a partition, on whatever broker runs.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tidemill_invariants::log::{Batch, offsets_are_dense};
use tidemill_log::{
    Partition,
    read::{Isolation, ReadError, ReadRequest},
};
use tidemill_store::StoreErrorKind;
use tidemill_wire::{
    batch::{BatchHeader, MAX_INFLATED_BYTES, Records, verify_crc},
    ids::{Offset, PartitionId},
};

use crate::{broker::Broker, check::short, history::FinalPartition, world::World};

/// What one read returned.
pub struct Got {
    /// The batches.
    pub batches: Vec<Batch>,
    /// Offsets and values.
    pub records: Vec<(i64, u64)>,
    /// Where the next read goes on.
    pub next: i64,
}

/// Reads on and on; now and then jumps, or moves to another partition or broker.
pub async fn read(world: Arc<World>) {
    let entropy = world.fork();
    while !world.stopping() {
        let Some(id) = world.any_partition(&entropy) else {
            world.sleep_ms(500).await;
            continue;
        };
        let mut position = None;
        for _ in 0..1 + entropy.below(20) {
            world.sleep_ms(entropy.below(2_000)).await;
            let Some(broker) = world.any_broker(&entropy) else {
                continue;
            };
            let Some(partition) = broker.started.log.partition(id) else {
                break;
            };
            let marks = world.marks(broker.index, &partition);
            if entropy.chance(0.2) {
                prove_fresh(&world, &broker, &partition).await;
            }
            let from = position.unwrap_or(marks.log_start);
            let max_bytes = 1 + usize::try_from(entropy.below(3_000)).unwrap_or(0);
            match read_once(&world, &partition, from, max_bytes).await {
                Ok(got) => {
                    world.saw(id, &got.records);
                    position = Some(got.next);
                }
                // Below the log start, or on a zombie that is behind.
                Err(ReadError::OutOfRange) => position = None,
                Err(ReadError::Gone(_)) => break,
                Err(ReadError::Store(error)) if error.kind != StoreErrorKind::NotFound => {}
                Err(ReadError::Corrupt { .. }) if broker.reads_garbage.load(Relaxed) => {}
                // A superseded broker may miss what its successor has deleted.
                Err(error) if broker.is_newest(&world) => {
                    world.violate(format!("read of {}@{from}: {error}", short(id)));
                }
                Err(_) => {}
            }
            if entropy.chance(0.1) {
                position = None;
            }
        }
    }
}

/// R7: after a proof of freshness a broker knows all that anybody was told before it was asked for.
async fn prove_fresh(world: &World, broker: &Broker, partition: &Arc<Partition>) {
    let id = partition.id();
    let told = world.highest_told(id);
    let clock = &world.runtime.clock;
    let proof = broker.started.log.fresh(clock.monotonic());
    let patience = Duration::from_secs(10);
    let proven = matches!(clock.timeout(patience, proof).await, Ok(Ok(())));
    let knows = partition.high_watermark().0;
    if proven && knows < told && !partition.is_stopped() {
        let (index, id) = (broker.index, short(id));
        world.violate(format!(
            "R7: broker {index} is fresh, but {id} is at {knows}, was {told}"
        ));
    }
}

/// One read, checked: whole batches, intact, dense, from the batch that holds `from` (I4, I5).
///
/// # Errors
/// As the partition says.
pub async fn read_once(
    world: &World,
    partition: &Arc<Partition>,
    from: i64,
    max_bytes: usize,
) -> Result<Got, ReadError> {
    let request = ReadRequest {
        offset: Offset(from),
        max_bytes,
        isolation: Isolation::Uncommitted,
        at_least_one: true,
    };
    let result = partition.read(request).await?;
    let mut got = Got {
        batches: Vec::new(),
        records: Vec::new(),
        next: from,
    };
    let mut all = BytesMut::new();
    result
        .slices
        .iter()
        .for_each(|slice| all.extend_from_slice(slice));
    let mut rest = all.freeze();
    while !rest.is_empty() {
        let Ok(header) = BatchHeader::parse(&rest) else {
            world.violate(format!("I5: no batch header in a read at {from}"));
            return Ok(got);
        };
        let batch = rest.split_to(header.size_bytes().min(rest.len()));
        let base = header.base_offset.0;
        let last = base + i64::from(header.last_offset_delta);
        let first = got.batches.is_empty() && base < from;
        if !first && let Err(violation) = offsets_are_dense(got.next, base, last) {
            world.violate(format!(
                "{violation}: {}@{base} read from {from}",
                short(partition.id())
            ));
        }
        decode(world, &batch, &header, &mut got);
        got.next = last + 1;
    }
    if result.next_offset.0 != got.next {
        world.violate(format!(
            "a read of {} from {from} ended at {}, said {}",
            short(partition.id()),
            got.next,
            result.next_offset
        ));
    }
    Ok(got)
}

fn decode(world: &World, batch: &Bytes, header: &BatchHeader, got: &mut Got) {
    let base = header.base_offset.0;
    if !verify_crc(batch).unwrap_or(false) {
        world.violate(format!("I5: the batch at {base} has a wrong CRC"));
        return;
    }
    let Ok(records) = Records::open(batch, MAX_INFLATED_BYTES) else {
        world.violate(format!("I5: the batch at {base} cannot be read"));
        return;
    };
    let mut content = 0u64;
    for record in records {
        let value = record.ok().and_then(|record| {
            let value = record.value.as_ref()?;
            let front: [u8; 8] = value.get(..8)?.try_into().ok()?;
            Some((record.offset.0, u64::from_be_bytes(front)))
        });
        let Some((offset, value)) = value else {
            world.violate(format!("I5: a record of the batch at {base} is damaged"));
            return;
        };
        content = content.wrapping_mul(31).wrapping_add(value);
        got.records.push((offset, value));
    }
    let last_sequence = header.base_sequence + header.last_offset_delta;
    let producer = (header.producer_id.0 >= 0).then_some((
        header.producer_id.0,
        header.producer_epoch.0,
        header.base_sequence,
        last_sequence,
    ));
    got.batches.push(Batch {
        base,
        last: base + i64::from(header.last_offset_delta),
        content,
        producer,
    });
}

/// Reads all of a partition.
pub async fn read_all(world: &World, broker: usize, partition: &Arc<Partition>) -> FinalPartition {
    let marks = world.marks(broker, partition);
    let mut at = marks.log_start;
    let mut whole = FinalPartition {
        partition: partition.id(),
        marks,
        batches: Vec::new(),
        records: Vec::new(),
    };
    while at < marks.high_watermark {
        match read_once(world, partition, at, 4_000).await {
            Ok(got) if got.next > at => {
                at = got.next;
                whole.batches.extend(got.batches);
                whole.records.extend(got.records);
            }
            Ok(_) => {
                let id = short(partition.id());
                world.violate(format!("I4: nothing to read at {id}@{at} below {marks:?}"));
                break;
            }
            Err(error) => {
                let id: PartitionId = partition.id();
                world.violate(format!("I1: {} cannot be read at {at}: {error}", short(id)));
                break;
            }
        }
    }
    whole
}
