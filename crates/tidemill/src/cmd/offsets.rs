//! Offsets by time, for the other commands.

use std::collections::BTreeMap;

use tidemill_client::Client;
use tidemill_wire::{
    codec::Str,
    messages::{
        ListOffsetsRequest,
        list_offsets::{ListOffsetsPartition, ListOffsetsTopic},
    },
};

use super::{CommandError, check};

/// Kafka's timestamp for "the high watermark".
pub const LATEST: i64 = -1;
/// Kafka's timestamp for "the log start".
pub const EARLIEST: i64 = -2;

/// The offset at `timestamp` (Unix milliseconds, or one of the above) per partition; -1 if none.
pub async fn list(
    client: &Client,
    topic: &str,
    partitions: &[i32],
    timestamp: i64,
) -> Result<BTreeMap<i32, i64>, CommandError> {
    let ask = |index: &i32| ListOffsetsPartition {
        partition_index: *index,
        timestamp,
        ..ListOffsetsPartition::default()
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: Str::from(topic.to_owned()),
            partitions: partitions.iter().map(ask).collect(),
        }],
        ..ListOffsetsRequest::default()
    };
    let answer = client.call(&request).await?;
    let mut found = BTreeMap::new();
    for part in answer.topics.iter().flat_map(|topic| &topic.partitions) {
        check(
            &format!("{topic}-{}", part.partition_index),
            part.error_code,
            None,
        )?;
        found.insert(part.partition_index, part.offset);
    }
    Ok(found)
}
