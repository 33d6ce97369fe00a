//! OffsetCommit (key 8), versions 2-10.
//!
//! v2-v4 a retention time of its own (K86); v6 leader epoch; v7 static members; v8 flexible; v9
//! member epochs (KIP-848; classic generations here); v10 topic ids. Answered once the offsets are
//! durable.

use std::time::Duration;

use tidemill_cluster::Image;
use tidemill_log::SpaceTaken;
use tidemill_wire::{
    ErrorCode, Str,
    messages::offset_commit::{
        OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
        OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
    },
};

use super::{Context, Outcome};
use crate::groups::{Commit, record::OffsetValue};

/// What a commit takes of a disk: a block, however short it is.
const COMMIT_BYTES: u64 = 4 << 10;
/// Kafka's `offsets.commit.timeout.ms`: answers behind this one wait for it, heartbeats' too. A
/// member whose commit waited for a store that refuses would lose its group by it.
const COMMIT_PATIENCE: Duration = Duration::from_secs(5);

/// The first version that names topics by id.
const TOPIC_ID_FROM: i16 = 10;

pub(super) async fn handle(
    context: Context,
    request: OffsetCommitRequest,
) -> Outcome<OffsetCommitResponse> {
    let coordinator = context.broker.coordinator().clone();
    let image = context.broker.cluster().image();
    let mut items = Vec::new();
    for topic in &request.topics {
        for part in &topic.partitions {
            if check(&context, &image, topic, part) == ErrorCode::NONE
                && let Some(name) = name_of(&context, &image, topic)
            {
                items.push((name, part.partition_index, value(&context, &request, part)));
            }
        }
    }
    let commit = Commit {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.as_ref().map(ToString::to_string),
        generation: request.generation_id_or_member_epoch,
        items,
        image: image.clone(),
    };
    let committed = async {
        let turn = context.group_turn().await;
        if !coordinator.is_led() {
            context.broker.ensure_offsets_topic().await?;
        }
        let _space = room(&context).await;
        let appended = coordinator.commit(&request.group_id, commit).await?;
        drop(turn);
        appended.durable().await
    };
    let clock = &context.broker.runtime().clock;
    // What is given up may still be stored: the client commits again, and the later one counts.
    // Kafka says COORDINATOR_NOT_AVAILABLE (15), upon which clients look for the coordinator again,
    // and librdkafka does not beat until it has found it; at 14 they only commit again.
    let overall = match clock.timeout(COMMIT_PATIENCE, committed).await {
        Ok(committed) => committed.err().unwrap_or(ErrorCode::NONE),
        Err(_) => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
    };
    let code = |topic: &OffsetCommitRequestTopic, part: &OffsetCommitRequestPartition| match check(
        &context, &image, topic, part,
    ) {
        ErrorCode::NONE => overall,
        own => own,
    };
    answer(&context, request, code).into()
}

/// The space for a commit, to be held until it is stored: many small ones would take what is left
/// for making room. Those that were given up stay in memory, so they have a limit too, past that of
/// producers.
async fn room(context: &Context) -> Option<SpaceTaken> {
    let log = context.broker.log();
    if log.is_far_above_limit() {
        log.below_limit().await;
    }
    if !log.must_wait_for_space(COMMIT_BYTES) {
        return None;
    }
    log.wait_for_space(COMMIT_BYTES).await
}

fn name_of(context: &Context, image: &Image, topic: &OffsetCommitRequestTopic) -> Option<Str> {
    let found = if context.version >= TOPIC_ID_FROM {
        image.topic(topic.topic_id)
    } else {
        image.topic_by_name(&topic.name)
    };
    found.map(|topic| Str::from(topic.name.to_string()))
}

fn check(
    context: &Context,
    image: &Image,
    topic: &OffsetCommitRequestTopic,
    part: &OffsetCommitRequestPartition,
) -> ErrorCode {
    let found = if context.version >= TOPIC_ID_FROM {
        match image.topic(topic.topic_id) {
            Some(found) => found,
            None => return ErrorCode::UNKNOWN_TOPIC_ID,
        }
    } else {
        match image.topic_by_name(&topic.name) {
            Some(found) => found,
            None => return ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        }
    };
    if found.partition(part.partition_index).is_none() {
        return ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    }
    let longest = context
        .broker
        .coordinator()
        .settings
        .offset_metadata_max_bytes;
    let metadata = part.committed_metadata.as_deref().unwrap_or_default();
    if metadata.len() > longest {
        return ErrorCode::OFFSET_METADATA_TOO_LARGE;
    }
    ErrorCode::NONE
}

fn value(
    context: &Context,
    request: &OffsetCommitRequest,
    part: &OffsetCommitRequestPartition,
) -> OffsetValue {
    let now_ms = context.broker.runtime().clock.now_ms();
    let retention_ms = request.retention_time_ms;
    OffsetValue {
        offset: part.committed_offset,
        leader_epoch: part.committed_leader_epoch,
        // A slice of the request would keep all of it in memory.
        metadata: part
            .committed_metadata
            .as_ref()
            .map(Str::detached)
            .unwrap_or_default(),
        commit_ms: now_ms,
        expire_ms: (retention_ms >= 0).then(|| now_ms.saturating_add(retention_ms)),
    }
}

fn answer(
    context: &Context,
    request: OffsetCommitRequest,
    code: impl Fn(&OffsetCommitRequestTopic, &OffsetCommitRequestPartition) -> ErrorCode,
) -> OffsetCommitResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let part = |part: &OffsetCommitRequestPartition| OffsetCommitResponsePartition {
            partition_index: part.partition_index,
            error_code: context.error(code(&topic, part)),
        };
        OffsetCommitResponseTopic {
            partitions: topic.partitions.iter().map(part).collect(),
            name: topic.name.clone(),
            topic_id: topic.topic_id,
        }
    });
    OffsetCommitResponse {
        topics: topics.collect(),
        ..OffsetCommitResponse::default()
    }
}
