//! ListOffsets (key 2), versions 1-11.
//!
//! v2 isolation level; v4 leader epoch; v6 flexible; v7 max timestamp (-3); v8 earliest local (-4);
//! v9 latest tiered (-5); v10 time-out; v11 earliest pending upload (-6). Nothing is tiered in
//! Kafka's sense: -4 is the log start, -5 and -6 find nothing.

use std::{collections::BTreeSet, sync::Arc};

use tidemill_log::{Partition, Superseded};
use tidemill_wire::{
    ErrorCode, Str,
    messages::list_offsets::{
        ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest,
        ListOffsetsResponse, ListOffsetsTopicResponse,
    },
};

use super::{Context, Outcome};
use crate::fetch::{reader::check_epoch, source};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;
/// The isolation level for which the last stable offset is the latest (K17).
const READ_COMMITTED: i8 = 1;

pub(super) async fn handle(
    context: Context,
    request: ListOffsetsRequest,
) -> Outcome<ListOffsetsResponse> {
    answer(context, request).await.into()
}

async fn answer(
    context: Context,
    request: ListOffsetsRequest,
) -> Result<ListOffsetsResponse, Superseded> {
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    if partitions
        .into_iter()
        .any(|partition| partition.timestamp == LATEST)
    {
        context.fresh().await?;
    } else {
        context.fresh_within().await?;
    }
    let committed = request.isolation_level == READ_COMMITTED;
    let mut seen = BTreeSet::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions {
            let found = if seen.insert((topic.name.clone(), wanted.partition_index)) {
                find(&context, &topic.name, &wanted, committed).await
            } else {
                Err(ErrorCode::INVALID_REQUEST)
            };
            let mut response = found.unwrap_or_else(|code| ListOffsetsPartitionResponse {
                error_code: context.error(code),
                ..nothing()
            });
            response.partition_index = wanted.partition_index;
            partitions.push(response);
        }
        topics.push(ListOffsetsTopicResponse {
            name: topic.name,
            partitions,
        });
    }
    Ok(ListOffsetsResponse {
        topics,
        ..ListOffsetsResponse::default()
    })
}

fn nothing() -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse::default()
}

async fn find(
    context: &Context,
    topic: &Str,
    wanted: &ListOffsetsPartition,
    committed: bool,
) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
    let image = context.broker.cluster().image();
    let partition = context
        .broker
        .find(&image, topic, wanted.partition_index)?
        .partition;
    check_epoch(wanted.current_leader_epoch, partition.leader_epoch())?;
    let stable = partition.last_stable_offset();
    let high_watermark = partition.high_watermark();
    let (timestamp, offset) = match (wanted.timestamp, context.version) {
        (LATEST, _) if committed => (-1, stable.0),
        (LATEST, _) => (-1, high_watermark.0),
        (EARLIEST, _) | (EARLIEST_LOCAL, 8..) => (-1, partition.log_start().0),
        (LATEST_TIERED, 9..) | (EARLIEST_PENDING_UPLOAD, 11..) => return Ok(nothing()),
        (MAX_TIMESTAMP, 7..) => search(&partition, None).await?,
        (at @ 0.., _) => search(&partition, Some(at)).await?,
        _ => return Err(ErrorCode::UNSUPPORTED_VERSION),
    };
    if committed && wanted.timestamp >= 0 && offset >= stable.0 {
        // A read-committed reader could not read it yet.
        return Ok(nothing());
    }
    let leader_epoch = if offset < 0 {
        -1
    } else {
        partition.leader_epoch().0
    };
    Ok(ListOffsetsPartitionResponse {
        timestamp,
        offset,
        leader_epoch,
        ..nothing()
    })
}

/// Timestamp and offset of the first record at or after `at`, or of the newest one; -1, -1 if there
/// is none.
async fn search(partition: &Arc<Partition>, at: Option<i64>) -> Result<(i64, i64), ErrorCode> {
    let found = match at {
        Some(at) => source::offset_for_timestamp(partition, at).await?,
        None => source::max_timestamp(partition).await?,
    };
    Ok(found.map_or((-1, -1), |(timestamp, offset)| (timestamp, offset.0)))
}
