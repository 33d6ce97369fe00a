//! Fetch requests, and what comes back.

use tidemill_wire::{
    batch::{BatchIter, Record, Records, verify_crc},
    codec::Str,
    messages::{
        FetchRequest,
        fetch::{FetchPartition, FetchTopic, PartitionData},
    },
};

use super::consume::Check;
use crate::error::BenchError;

/// Names topics instead of ids: the newest version that does.
pub const FETCH_BY_NAME: i16 = 12;
/// How long a broker may wait for data.
const MAX_WAIT_MS: i32 = 500;

/// Most bytes of an answer and of each partition in it.
#[derive(Clone, Copy, Debug)]
pub struct FetchSizes {
    /// Kafka's `fetch.max.bytes`.
    pub max_bytes: i32,
    /// Kafka's `max.partition.fetch.bytes`.
    pub partition_max_bytes: i32,
}

/// What a partition of an answer held.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walked {
    /// The offset to go on from.
    pub next: i64,
    /// Records in whole batches.
    pub records: u64,
    /// Bytes of whole batches.
    pub bytes: u64,
}

/// A request for these partitions, each from its offset.
pub fn request(topic: &str, from: &[(i32, i64)], sizes: FetchSizes) -> FetchRequest {
    let partition = |(partition, fetch_offset): &(i32, i64)| FetchPartition {
        partition: *partition,
        fetch_offset: *fetch_offset,
        partition_max_bytes: sizes.partition_max_bytes,
        ..FetchPartition::default()
    };
    FetchRequest {
        max_wait_ms: MAX_WAIT_MS,
        min_bytes: 1,
        max_bytes: sizes.max_bytes,
        topics: vec![FetchTopic {
            topic: Str::from(topic.to_owned()),
            partitions: from.iter().map(partition).collect(),
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

/// Walks the whole batches of a partition's data; `each` sees the records if they are decoded.
pub fn walk(
    part: &PartitionData,
    from: i64,
    check: Check,
    each: &mut dyn FnMut(&Record),
) -> Result<Walked, BenchError> {
    let index = part.partition_index;
    BenchError::check(&format!("fetch of partition {index}"), part.error_code)?;
    let mut walked = Walked {
        next: from,
        ..Walked::default()
    };
    let Some(records) = &part.records else {
        return Ok(walked);
    };
    let broken = |what: &str| {
        let at = format!("partition {index}, offset {from}");
        BenchError::Failed(format!("{at}: {what}"))
    };
    for batch in BatchIter::new(records.to_bytes()) {
        let Ok(batch) = batch else {
            // The last batch may be cut short by the sizes asked for; the first may not.
            if walked.bytes == 0 {
                return Err(broken("the first batch is not whole"));
            }
            break;
        };
        if check != Check::None && verify_crc(&batch.bytes).ok() != Some(true) {
            return Err(broken("a batch fails its CRC"));
        }
        if check == Check::Decode {
            let unreadable = |_| broken("a batch cannot be decoded");
            let limit = tidemill_wire::batch::MAX_INFLATED_BYTES;
            for record in Records::open(&batch.bytes, limit).map_err(unreadable)? {
                let record = record.map_err(unreadable)?;
                if record.offset.0 >= from {
                    each(&record);
                }
            }
        }
        walked.records += u64::try_from(batch.header.record_count).unwrap_or(0);
        walked.bytes += batch.bytes.len() as u64;
        walked.next = batch.header.next_offset().0;
    }
    Ok(walked)
}
