//! Metadata (key 3), versions 0-13.
//!
//! v1 null asks for all topics, controller id, racks; v2 cluster id; v4 auto-creation flag; v5
//! offline replicas; v7 leader epochs; v8 authorized operations; v9 flexible; v10 topic ids; v11
//! cluster operations go to DescribeCluster; v12 lookup by id; v13 top-level error. Unknown topics
//! are created before the answer if request and broker allow it (K54).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tidemill_cluster::{Image, image::Topic};
use tidemill_log::Superseded;
use tidemill_wire::{
    ErrorCode, Str,
    ids::TopicId,
    messages::metadata::{
        MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
        MetadataResponsePartition, MetadataResponseTopic,
    },
};

use super::{Context, Outcome};
use crate::{
    create::{NewTopicSpec, create_topics},
    topics::{check_name, has_owner, is_internal},
};

/// All operations on a topic, as bits: there is no authorizer that would take one away.
pub(super) const TOPIC_OPERATIONS: i32 =
    (1 << 3) | (1 << 4) | (1 << 5) | (1 << 6) | (1 << 7) | (1 << 8) | (1 << 10) | (1 << 11);
/// All operations on the cluster, as bits.
pub(super) const CLUSTER_OPERATIONS: i32 =
    (1 << 5) | (1 << 7) | (1 << 8) | (1 << 9) | (1 << 10) | (1 << 11) | (1 << 12);
/// The first version that looks topics up by id.
const BY_ID_FROM: i16 = 12;

pub(super) async fn handle(
    context: Context,
    request: MetadataRequest,
) -> Outcome<MetadataResponse> {
    answer(context, request).await.into()
}

async fn answer(
    context: Context,
    request: MetadataRequest,
) -> Result<MetadataResponse, Superseded> {
    context.fresh_within().await?;
    let operations = request.include_topic_authorized_operations;
    let topics = match request.topics {
        None => all(&context),
        // Version 0 cannot say null (K53).
        Some(topics) if topics.is_empty() && context.version == 0 => all(&context),
        Some(topics) => named(&context, topics, request.allow_auto_topic_creation).await,
    };
    let config = context.broker.config();
    let mut response = MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: config.node_id.0,
            host: context.peer.advertised.host.clone().into(),
            port: i32::from(context.peer.advertised.port),
            rack: config.rack(),
        }],
        cluster_id: Some(context.broker.cluster_id()),
        controller_id: config.node_id.0,
        topics,
        ..MetadataResponse::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    if operations {
        let known = response
            .topics
            .iter_mut()
            .filter(|t| t.error_code == ErrorCode::NONE);
        known.for_each(|topic| topic.topic_authorized_operations = TOPIC_OPERATIONS);
    }
    Ok(response)
}

fn all(context: &Context) -> Vec<MetadataResponseTopic> {
    let image = context.broker.cluster().image();
    image
        .topics_by_name()
        .map(|topic| describe(context, topic))
        .collect()
}

async fn named(
    context: &Context,
    mut topics: Vec<MetadataRequestTopic>,
    may_create: bool,
) -> Vec<MetadataResponseTopic> {
    // A topic is described once, as Kafka does: otherwise a name repeated would cost its partitions
    // each time.
    let mut seen = BTreeSet::new();
    topics.retain(|topic| seen.insert((topic.topic_id, topic.name.clone())));
    let image = context.broker.cluster().image();
    let may_create = may_create && context.broker.config().auto_create_topics;
    let mut refused = BTreeMap::new();
    let mut image = image;
    if may_create {
        refused = create_missing(context, &image, &topics).await;
        image = context.broker.cluster().image();
    }
    topics
        .into_iter()
        .map(|topic| one(context, &image, topic, &refused))
        .collect()
}

/// Creates what is asked for and not there; returns why what could not be created was not.
async fn create_missing(
    context: &Context,
    image: &Image,
    topics: &[MetadataRequestTopic],
) -> BTreeMap<Str, ErrorCode> {
    let names = topics
        .iter()
        .filter(|topic| topic.topic_id == TopicId::ZERO);
    let missing: BTreeMap<Str, NewTopicSpec> = names
        .filter_map(|topic| topic.name.as_ref())
        .filter(|name| image.topic_by_name(name).is_none() && has_owner(name))
        .map(|name| (name.detached(), NewTopicSpec::with_defaults(name)))
        .collect();
    if missing.is_empty() {
        return BTreeMap::new();
    }
    let (names, specs): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
    let results = create_topics(&context.broker, specs, false, None).await;
    let refused = names.into_iter().zip(results).filter_map(|(name, result)| {
        let code = result.err()?.code;
        // Somebody else was faster: it is there all the same.
        (code != ErrorCode::TOPIC_ALREADY_EXISTS).then_some((name, code))
    });
    refused.collect()
}

fn one(
    context: &Context,
    image: &Image,
    wanted: MetadataRequestTopic,
    refused: &BTreeMap<Str, ErrorCode>,
) -> MetadataResponseTopic {
    let failed = |code, name, topic_id| MetadataResponseTopic {
        error_code: context.error(code),
        name,
        topic_id,
        ..MetadataResponseTopic::default()
    };
    let MetadataRequestTopic { topic_id, name } = wanted;
    if topic_id != TopicId::ZERO || name.is_none() {
        if context.version < BY_ID_FROM {
            // Before, the field was there, but no broker looked at it.
            let name = Some(name.unwrap_or_default());
            return failed(ErrorCode::INVALID_REQUEST, name, topic_id);
        }
        return match image.topic(topic_id) {
            Some(topic) => describe(context, topic),
            None => failed(ErrorCode::UNKNOWN_TOPIC_ID, None, topic_id),
        };
    }
    let name = name.unwrap_or_default();
    if let Some(topic) = image.topic_by_name(&name) {
        return describe(context, topic);
    }
    let code = if check_name(&name).is_err() {
        ErrorCode::INVALID_TOPIC_EXCEPTION
    } else {
        refused
            .get(&name)
            .copied()
            .unwrap_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    };
    failed(code, Some(name), TopicId::ZERO)
}

fn describe(context: &Context, topic: &Arc<Topic>) -> MetadataResponseTopic {
    let node = context.broker.config().node_id.0;
    let partitions = topic
        .partitions()
        .map(|(id, state)| MetadataResponsePartition {
            partition_index: id.index,
            leader_id: node,
            leader_epoch: state.epoch.0,
            replica_nodes: vec![node],
            isr_nodes: vec![node],
            ..MetadataResponsePartition::default()
        });
    MetadataResponseTopic {
        name: Some(Str::from(topic.name.to_string())),
        topic_id: topic.id,
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        ..MetadataResponseTopic::default()
    }
}
