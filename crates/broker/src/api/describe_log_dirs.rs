//! DescribeLogDirs (key 35), versions 1-5.
//!
//! v2 flexible; v3 top-level error; v4 volume sizes (a bucket has none: -1); v5 cordoned
//! directories (there are none). There is one log directory: where the data lies.

use std::{collections::BTreeMap, sync::Arc};

use tidemill_cluster::image::Topic;
use tidemill_wire::{
    Str,
    messages::describe_log_dirs::{
        DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse,
        DescribeLogDirsResult, DescribeLogDirsTopic,
    },
};

use super::Context;

pub(super) async fn handle(
    context: Context,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let image = context.broker.cluster().image();
    let topics: Vec<DescribeLogDirsTopic> = match request.topics {
        None => {
            let all = |topic: &Arc<Topic>| {
                let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
                describe(&context, topic, 0..count)
            };
            image.topics_by_name().map(all).collect()
        }
        Some(wanted) => {
            let mut indices: BTreeMap<Str, Vec<i32>> = BTreeMap::new();
            for topic in wanted {
                indices
                    .entry(topic.topic)
                    .or_default()
                    .extend(topic.partitions);
            }
            let found = indices.into_iter().filter_map(|(name, indices)| {
                Some(describe(
                    &context,
                    image.topic_by_name(&name)?,
                    indices.into_iter(),
                ))
            });
            found.collect()
        }
    };
    let result = DescribeLogDirsResult {
        log_dir: Str::from(context.broker.config().data_location.clone()),
        topics: topics
            .into_iter()
            .filter(|topic| !topic.partitions.is_empty())
            .collect(),
        ..DescribeLogDirsResult::default()
    };
    DescribeLogDirsResponse {
        results: vec![result],
        ..DescribeLogDirsResponse::default()
    }
}

fn describe(
    context: &Context,
    topic: &Arc<Topic>,
    indices: impl Iterator<Item = i32>,
) -> DescribeLogDirsTopic {
    let partitions = indices.filter_map(|partition_index| {
        let partition = context.broker.partition(topic, partition_index).ok()?;
        Some(DescribeLogDirsPartition {
            partition_index,
            partition_size: i64::try_from(partition.size_bytes()).unwrap_or(i64::MAX),
            ..DescribeLogDirsPartition::default()
        })
    });
    let name = Str::from(topic.name.to_string());
    DescribeLogDirsTopic {
        name,
        partitions: partitions.collect(),
    }
}
