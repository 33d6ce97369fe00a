//! OffsetForLeaderEpoch (key 23), versions 2-4.
//!
//! v3 replica id; v4 flexible. The end of an epoch is the high watermark for the present one, the
//! next epoch's start for one before (K20).

use tidemill_log::Superseded;
use tidemill_wire::{
    ErrorCode, Str,
    ids::LeaderEpoch,
    messages::offset_for_leader_epoch::{
        EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
        OffsetForLeaderPartition, OffsetForLeaderTopicResult,
    },
};

use super::{Context, Outcome};
use crate::fetch::reader::check_epoch;

pub(super) async fn handle(
    context: Context,
    request: OffsetForLeaderEpochRequest,
) -> Outcome<OffsetForLeaderEpochResponse> {
    answer(context, request).await.into()
}

async fn answer(
    context: Context,
    request: OffsetForLeaderEpochRequest,
) -> Result<OffsetForLeaderEpochResponse, Superseded> {
    context.fresh_within().await?;
    let topics = request.topics.into_iter().map(|topic| {
        let end = |wanted: OffsetForLeaderPartition| {
            let mut result =
                find(&context, &topic.topic, &wanted).unwrap_or_else(|code| EpochEndOffset {
                    error_code: context.error(code),
                    ..EpochEndOffset::default()
                });
            result.partition = wanted.partition;
            result
        };
        let partitions = topic.partitions.into_iter().map(end).collect();
        OffsetForLeaderTopicResult {
            topic: topic.topic,
            partitions,
        }
    });
    let topics = topics.collect();
    Ok(OffsetForLeaderEpochResponse {
        topics,
        ..OffsetForLeaderEpochResponse::default()
    })
}

fn find(
    context: &Context,
    topic: &Str,
    wanted: &OffsetForLeaderPartition,
) -> Result<EpochEndOffset, ErrorCode> {
    let image = context.broker.cluster().image();
    let partition = context
        .broker
        .find(&image, topic, wanted.partition)?
        .partition;
    check_epoch(wanted.current_leader_epoch, partition.leader_epoch())?;
    let Some((epoch, end)) = partition.epoch_end(LeaderEpoch(wanted.leader_epoch)) else {
        return Ok(EpochEndOffset::default());
    };
    let mut found = EpochEndOffset::default();
    (found.leader_epoch, found.end_offset) = (epoch.0, end.0);
    Ok(found)
}
