//! ListOffsets (key 2), versions 1-11.
//!
//! v2 isolation level; v4 leader epoch; v6 flexible; v7 max timestamp (-3); v8 earliest local (-4);
//! v9 latest tiered (-5); v10 time-out; v11 earliest pending upload (-6). Nothing is tiered in
//! Kafka's sense: -4 is the log start, -5 and -6 find nothing.

use std::collections::BTreeSet;

use tidemill_log::{
    Superseded,
    read::{Isolation, TimestampOffset},
};
use tidemill_wire::{
    ErrorCode, Str,
    ids::{LeaderEpoch, Offset},
    messages::list_offsets::{
        ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest,
        ListOffsetsResponse, ListOffsetsTopicResponse,
    },
};

use super::{Context, Outcome, isolation};
use crate::fetch::{reader::check_epoch, source};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

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
    let isolation = isolation(request.isolation_level);
    let mut seen = BTreeSet::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions {
            let found = if seen.insert((topic.name.clone(), wanted.partition_index)) {
                find(&context, &topic.name, &wanted, isolation).await
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
    isolation: Isolation,
) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
    let image = context.broker.cluster().image();
    let partition = context
        .broker
        .find(&image, topic, wanted.partition_index)?
        .partition;
    check_epoch(wanted.current_leader_epoch, partition.leader_epoch())?;
    let found = match (wanted.timestamp, context.version) {
        (LATEST, _) => {
            // Not beyond the last stable offset for a read-committed reader (K17).
            let latest = match isolation {
                Isolation::Uncommitted => partition.high_watermark(),
                Isolation::Committed => partition.last_stable_offset(),
            };
            mark(latest, partition.leader_epoch())
        }
        (EARLIEST, _) | (EARLIEST_LOCAL, 8..) => {
            mark(partition.log_start(), partition.leader_epoch())
        }
        (LATEST_TIERED, 9..) | (EARLIEST_PENDING_UPLOAD, 11..) => nothing(),
        (MAX_TIMESTAMP, 7..) => record(source::max_timestamp(&partition).await?),
        (at @ 0.., _) => record(source::offset_for_timestamp(&partition, at, isolation).await?),
        _ => return Err(ErrorCode::UNSUPPORTED_VERSION),
    };
    // Versions before 4 cannot carry an epoch.
    let leader_epoch = if context.version >= 4 {
        found.leader_epoch
    } else {
        -1
    };
    Ok(ListOffsetsPartitionResponse {
        leader_epoch,
        ..found
    })
}

/// A mark of the partition: no record, so no timestamp (K17).
fn mark(offset: Offset, epoch: LeaderEpoch) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse {
        offset: offset.0,
        leader_epoch: epoch.0,
        ..nothing()
    }
}

/// A record that was searched for.
fn record(found: Option<TimestampOffset>) -> ListOffsetsPartitionResponse {
    let Some(found) = found else { return nothing() };
    ListOffsetsPartitionResponse {
        timestamp: found.timestamp,
        offset: found.offset.0,
        leader_epoch: found.leader_epoch.map_or(-1, |epoch| epoch.0),
        ..nothing()
    }
}
