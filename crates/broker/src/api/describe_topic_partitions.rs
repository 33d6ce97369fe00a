//! DescribeTopicPartitions (key 75), version 0.
//!
//! Topics in name order, paged by a cursor; without names, all topics.

use std::{collections::BTreeSet, sync::Arc};

use tidemill_cluster::image::Topic;
use tidemill_log::Superseded;
use tidemill_wire::{
    ErrorCode, Str,
    messages::describe_topic_partitions::{
        Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
    },
};

use super::{Context, Outcome, metadata::TOPIC_OPERATIONS};
use crate::topics::{check_name, is_internal};

pub(super) async fn handle(
    context: Context,
    request: DescribeTopicPartitionsRequest,
) -> Outcome<DescribeTopicPartitionsResponse> {
    answer(context, request).await.into()
}

async fn answer(
    context: Context,
    request: DescribeTopicPartitionsRequest,
) -> Result<DescribeTopicPartitionsResponse, Superseded> {
    context.fresh_within().await?;
    let image = context.broker.cluster().image();
    let names: BTreeSet<Str> = if request.topics.is_empty() {
        image
            .topics_by_name()
            .map(|topic| Str::from(topic.name.to_string()))
            .collect()
    } else {
        request.topics.into_iter().map(|topic| topic.name).collect()
    };
    let (from_name, mut from_index) = match request.cursor {
        Some(cursor) => (
            cursor.topic_name,
            usize::try_from(cursor.partition_index).unwrap_or(0),
        ),
        None => (Str::EMPTY, 0),
    };
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let mut left = limit.clamp(1, context.broker.config().described_partitions_max.max(1));
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names.range(from_name.clone()..) {
        let from = if *name == from_name {
            std::mem::take(&mut from_index)
        } else {
            0
        };
        let Some(topic) = image.topic_by_name(name) else {
            response.topics.push(unknown(&context, name));
            continue;
        };
        if left == 0 {
            response.next_cursor = Some(cursor(name, 0));
            break;
        }
        let described = describe(&context, topic, from, left);
        left -= described.partitions.len();
        let next = from + described.partitions.len();
        response.topics.push(described);
        if next < topic.partitions.len() {
            response.next_cursor = Some(cursor(name, next));
            break;
        }
    }
    Ok(response)
}

fn cursor(name: &Str, index: usize) -> Cursor {
    let partition_index = i32::try_from(index).unwrap_or(i32::MAX);
    Cursor {
        topic_name: name.clone(),
        partition_index,
    }
}

fn unknown(context: &Context, name: &Str) -> DescribeTopicPartitionsResponseTopic {
    let code = if check_name(name).is_err() {
        ErrorCode::INVALID_TOPIC_EXCEPTION
    } else {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    };
    DescribeTopicPartitionsResponseTopic {
        error_code: context.error(code),
        name: Some(name.clone()),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn describe(
    context: &Context,
    topic: &Arc<Topic>,
    from: usize,
    limit: usize,
) -> DescribeTopicPartitionsResponseTopic {
    let node = context.broker.config().node_id.0;
    let partitions = topic
        .partitions()
        .skip(from)
        .take(limit)
        .map(|(id, state)| DescribeTopicPartitionsResponsePartition {
            partition_index: id.index,
            leader_id: node,
            leader_epoch: state.epoch.0,
            replica_nodes: vec![node],
            isr_nodes: vec![node],
            eligible_leader_replicas: Some(Vec::new()),
            last_known_elr: Some(Vec::new()),
            ..DescribeTopicPartitionsResponsePartition::default()
        });
    DescribeTopicPartitionsResponseTopic {
        name: Some(Str::from(topic.name.to_string())),
        topic_id: topic.id,
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}
