//! OffsetDelete (key 47), version 0.
//!
//! Offsets of topics that a live consumer group subscribes to stay (KIP-496).

use tidemill_wire::{
    ErrorCode,
    messages::offset_delete::{
        OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition,
        OffsetDeleteResponseTopic,
    },
};

use super::{Context, Outcome};
use crate::groups::{cell::Cell, subscription::Subscribed};

pub(super) async fn handle(
    context: Context,
    request: OffsetDeleteRequest,
) -> Outcome<OffsetDeleteResponse> {
    let coordinator = context.broker.coordinator().clone();
    if !coordinator.is_led() {
        return refused(&context, ErrorCode::GROUP_ID_NOT_FOUND).into();
    }
    let _turn = context.group_turn().await;
    let view = |cell: &Cell| (!cell.is_void()).then(|| Subscribed::of(&cell.machine));
    let held = coordinator.view(&request.group_id, view).await;
    let held = match held.map(Option::flatten) {
        Ok(Some(Subscribed::Unknown)) => {
            return refused(&context, ErrorCode::NON_EMPTY_GROUP).into();
        }
        Ok(Some(held)) => held,
        Ok(None) => return refused(&context, ErrorCode::GROUP_ID_NOT_FOUND).into(),
        Err(code) => return refused(&context, code).into(),
    };
    let image = context.broker.cluster().image();
    let mut gone = Vec::new();
    let mut topics = Vec::new();
    for topic in request.topics {
        let mut partitions = Vec::new();
        for part in &topic.partitions {
            let index = part.partition_index;
            let known = image
                .topic_by_name(&topic.name)
                .and_then(|found| found.partition(index));
            let error_code = match &held {
                _ if known.is_none() => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                Subscribed::Topics { topics, .. } if topics.contains(&topic.name) => {
                    ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
                }
                _ => {
                    gone.push((topic.name.detached(), index));
                    ErrorCode::NONE
                }
            };
            let error_code = context.error(error_code);
            partitions.push(OffsetDeleteResponsePartition {
                partition_index: index,
                error_code,
            });
        }
        topics.push(OffsetDeleteResponseTopic {
            name: topic.name,
            partitions,
        });
    }
    if let Err(code) = coordinator.delete_offsets(&request.group_id, &gone).await {
        return refused(&context, code).into();
    }
    OffsetDeleteResponse {
        topics,
        ..OffsetDeleteResponse::default()
    }
    .into()
}

fn refused(context: &Context, code: ErrorCode) -> OffsetDeleteResponse {
    OffsetDeleteResponse {
        error_code: context.error(code),
        ..OffsetDeleteResponse::default()
    }
}
