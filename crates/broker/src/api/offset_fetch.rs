//! OffsetFetch (key 9), versions 1-10.
//!
//! v2 all topics by null, and an error of the whole; v5 leader epochs; v6 flexible; v7
//! require_stable (always so: there are no transactions yet); v8 several groups; v9 member epochs
//! (KIP-848, left out: classic groups have none); v10 topic ids.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_cluster::Image;
use tidemill_wire::{
    ErrorCode, Str,
    ids::TopicId,
    messages::offset_fetch::{
        OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
        OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
        OffsetFetchResponseTopic, OffsetFetchResponseTopics,
    },
};

use super::{Context, Outcome};
use crate::groups::cell::Offsets;

/// The first version with several groups.
const GROUPS_FROM: i16 = 8;
/// The first version that names topics by id.
const TOPIC_ID_FROM: i16 = 10;
/// The first version with an error of the whole.
const GROUP_ERROR_FROM: i16 = 2;

/// A partition of a group's offsets, by its topic's id or name; none is all of the group.
type Part = (TopicId, Str, i32);

/// What a request was told so far. Looked up and told again for each time it is named, some bytes
/// of a request would cost a commit's metadata, or all commits of a group.
#[derive(Default)]
struct Told {
    offsets: BTreeMap<Str, Result<Offsets, ErrorCode>>,
    parts: BTreeSet<(Str, Option<Part>)>,
}

impl Told {
    /// Looks a group's offsets up, if they are not here yet.
    async fn look_up(&mut self, context: &Context, group: &Str) {
        if self.offsets.contains_key(group) {
            return;
        }
        let coordinator = context.broker.coordinator();
        let offsets = if coordinator.is_led() {
            coordinator.offsets(group).await
        } else {
            // Nobody has committed anything anywhere.
            Ok(Offsets::new())
        };
        self.offsets.insert(group.clone(), offsets);
    }
}

pub(super) async fn handle(
    context: Context,
    request: OffsetFetchRequest,
) -> Outcome<OffsetFetchResponse> {
    if context.fresh().await.is_err() {
        return Outcome::Close;
    }
    if context.version >= GROUPS_FROM {
        let mut groups = Vec::with_capacity(request.groups.len());
        let mut told = Told::default();
        for group in request.groups {
            groups.push(one(&context, group, &mut told).await);
        }
        return OffsetFetchResponse {
            groups,
            ..OffsetFetchResponse::default()
        }
        .into();
    }
    let topics = request.topics.map(|topics| {
        let topic = |topic: tidemill_wire::messages::offset_fetch::OffsetFetchRequestTopic| {
            OffsetFetchRequestTopics {
                name: topic.name,
                partition_indexes: topic.partition_indexes,
                ..OffsetFetchRequestTopics::default()
            }
        };
        topics.into_iter().map(topic).collect()
    });
    let group = OffsetFetchRequestGroup {
        group_id: request.group_id,
        topics,
        ..OffsetFetchRequestGroup::default()
    };
    let group = one(&context, group, &mut Told::default()).await;
    single(&context, group).into()
}

/// The layout before v8, which knows one group.
fn single(context: &Context, group: OffsetFetchResponseGroup) -> OffsetFetchResponse {
    let whole = group.error_code;
    let topics = group.topics.into_iter().map(|topic| {
        let part = |part: OffsetFetchResponsePartitions| OffsetFetchResponsePartition {
            partition_index: part.partition_index,
            committed_offset: part.committed_offset,
            committed_leader_epoch: part.committed_leader_epoch,
            metadata: part.metadata,
            error_code: part.error_code,
        };
        OffsetFetchResponseTopic {
            name: topic.name,
            partitions: topic.partitions.into_iter().map(part).collect(),
        }
    });
    OffsetFetchResponse {
        topics: topics.collect(),
        error_code: if context.version >= GROUP_ERROR_FROM {
            whole
        } else {
            ErrorCode::NONE
        },
        ..OffsetFetchResponse::default()
    }
}

async fn one(
    context: &Context,
    request: OffsetFetchRequestGroup,
    told: &mut Told,
) -> OffsetFetchResponseGroup {
    told.look_up(context, &request.group_id).await;
    let Told { offsets, parts } = told;
    if request.topics.is_none() && !parts.insert((request.group_id.clone(), None)) {
        return OffsetFetchResponseGroup {
            group_id: request.group_id,
            error_code: context.error(ErrorCode::INVALID_REQUEST),
            ..OffsetFetchResponseGroup::default()
        };
    }
    let image = context.broker.cluster().image();
    let none = Offsets::new();
    let (offsets, error_code) = match offsets.get(&request.group_id) {
        Some(Ok(offsets)) => (offsets, ErrorCode::NONE),
        Some(Err(code)) => (&none, *code),
        None => (&none, ErrorCode::UNKNOWN_SERVER_ERROR),
    };
    let topics = match request.topics {
        Some(topics) => {
            let group = &request.group_id;
            let mut first = |topic: &OffsetFetchRequestTopics, index| {
                let part = (topic.topic_id, topic.name.clone(), index);
                parts.insert((group.clone(), Some(part)))
            };
            let topic = |topic| asked(context, (&image, offsets), topic, error_code, &mut first);
            topics.into_iter().map(topic).collect()
        }
        None => all(&image, offsets, context.version),
    };
    OffsetFetchResponseGroup {
        group_id: request.group_id,
        topics,
        error_code: context.error(error_code),
    }
}

fn all(image: &Image, offsets: &Offsets, version: i16) -> Vec<OffsetFetchResponseTopics> {
    let topic = |(name, parts): (&Str, &std::collections::BTreeMap<i32, _>)| {
        let known = image.topic_by_name(name);
        // A topic without an id cannot be named from v10 on.
        if version >= TOPIC_ID_FROM && known.is_none() {
            return None;
        }
        let part = |index: &i32| found(offsets, name, *index);
        Some(OffsetFetchResponseTopics {
            name: name.clone(),
            topic_id: known.map_or(TopicId::ZERO, |topic| topic.id),
            partitions: parts.keys().map(part).collect(),
        })
    };
    offsets.iter().filter_map(topic).collect()
}

fn asked(
    context: &Context,
    (image, offsets): (&Image, &Offsets),
    topic: OffsetFetchRequestTopics,
    error_code: ErrorCode,
    first: &mut impl FnMut(&OffsetFetchRequestTopics, i32) -> bool,
) -> OffsetFetchResponseTopics {
    let by_id = context.version >= TOPIC_ID_FROM;
    let name = match by_id {
        true => image
            .topic(topic.topic_id)
            .map(|topic| Str::from(topic.name.to_string())),
        false => Some(topic.name.clone()),
    };
    let part = |index: &i32| match &name {
        None => missing(*index, context.error(ErrorCode::UNKNOWN_TOPIC_ID)),
        Some(_) if error_code != ErrorCode::NONE => missing(*index, error_code),
        Some(_) if !first(&topic, *index) => {
            missing(*index, context.error(ErrorCode::INVALID_REQUEST))
        }
        Some(name) => found(offsets, name, *index),
    };
    OffsetFetchResponseTopics {
        partitions: topic.partition_indexes.iter().map(part).collect(),
        name: topic.name,
        topic_id: topic.topic_id,
    }
}

fn found(offsets: &Offsets, topic: &Str, index: i32) -> OffsetFetchResponsePartitions {
    match offsets.get(topic).and_then(|parts| parts.get(&index)) {
        Some(value) => OffsetFetchResponsePartitions {
            partition_index: index,
            committed_offset: value.offset,
            committed_leader_epoch: value.leader_epoch,
            metadata: Some(value.metadata.clone()),
            error_code: ErrorCode::NONE,
        },
        None => missing(index, ErrorCode::NONE),
    }
}

/// No commit: offset -1, so that the client's `auto.offset.reset` applies (K50).
fn missing(index: i32, error_code: ErrorCode) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(Str::default()),
        error_code,
    }
}
