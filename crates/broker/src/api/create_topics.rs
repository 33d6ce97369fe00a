//! CreateTopics (key 19), versions 2-7.
//!
//! v4 lets partitions and replication factor be -1; v5 flexible, answers configurations; v7 topic
//! ids. Any replication factor is accepted and echoed (K59): durability is the store's.

use std::{collections::BTreeMap, time::Duration};

use tidemill_cluster::image::Topic;
use tidemill_wire::{
    ErrorCode, Str,
    messages::create_topics::{
        CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfigs, CreatableTopicResult,
        CreateTopicsRequest, CreateTopicsResponse,
    },
};

use super::{Context, describe_configs::topic_entries};
use crate::{
    create::{Created, NewTopicSpec, check_total, create_topics},
    errors::Refusal,
};

pub(super) async fn handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let mut counts: BTreeMap<Str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *counts.entry(topic.name.clone()).or_default() += 1;
    }
    let asked = request
        .topics
        .iter()
        .filter(|topic| counts.get(&topic.name) == Some(&1))
        .map(|topic| (topic.name.as_str(), partitions(topic)));
    let within = check_total(&context.broker, asked);
    let mut results: Vec<(Str, Option<Refusal>)> = Vec::new();
    let mut specs = Vec::new();
    for topic in request.topics {
        let repeats = counts.get(&topic.name).copied().unwrap_or(0);
        if repeats == 0 {
            // Answered already: a name given twice is answered once (K91).
            continue;
        }
        if repeats > 1 {
            counts.remove(&topic.name);
            let refusal = Refusal::new(ErrorCode::INVALID_REQUEST, "topic is named twice");
            results.push((topic.name, Some(refusal)));
            continue;
        }
        let name = topic.name.clone();
        match within.clone().and_then(|()| spec(&context, topic)) {
            Ok(spec) => {
                specs.push(spec);
                results.push((name, None));
            }
            Err(refusal) => results.push((name, Some(refusal))),
        }
    }
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let validate_only = request.validate_only;
    let created = create_topics(&context.broker, specs, validate_only, Some(timeout)).await;
    let mut created = created.into_iter();
    let topics = results.into_iter().map(|(name, refusal)| {
        let outcome = match refusal {
            Some(refusal) => Err(refusal),
            None => created
                .next()
                .unwrap_or(Err(ErrorCode::UNKNOWN_SERVER_ERROR.into())),
        };
        result(&context, name, outcome, validate_only)
    });
    CreateTopicsResponse {
        topics: topics.collect(),
        ..CreateTopicsResponse::default()
    }
}

/// The partitions that a topic would have; -1 is the broker's default.
fn partitions(topic: &CreatableTopic) -> i64 {
    match topic.assignments.len() {
        0 => i64::from(topic.num_partitions),
        assigned => i64::try_from(assigned).unwrap_or(i64::MAX),
    }
}

fn spec(context: &Context, topic: CreatableTopic) -> Result<NewTopicSpec, Refusal> {
    let CreatableTopic {
        name,
        num_partitions,
        replication_factor,
        assignments,
        configs,
    } = topic;
    let mut spec = NewTopicSpec {
        name: name.into(),
        partitions: num_partitions,
        replication_factor,
        configs: BTreeMap::new(),
    };
    if !assignments.is_empty() {
        if num_partitions != -1 || replication_factor != -1 {
            let message = "with replica assignments, partitions and replication factor must be -1";
            return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
        }
        let node = context.broker.config().node_id.0;
        (spec.partitions, spec.replication_factor) = assigned(&assignments, node)?;
    }
    for config in configs {
        // A null value is no value: the default holds (K59).
        if let Some(value) = config.value
            && spec
                .configs
                .insert(config.name.into(), value.into())
                .is_some()
        {
            let message = "a configuration is given twice";
            return Err(Refusal::new(ErrorCode::INVALID_CONFIG, message));
        }
    }
    Ok(spec)
}

/// Partitions and replication factor of an explicit assignment.
fn assigned(assignments: &[CreatableReplicaAssignment], node: i32) -> Result<(i32, i16), Refusal> {
    let refuse = |message: &str| Err(Refusal::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
    let mut indices: Vec<_> = assignments
        .iter()
        .map(|part| part.partition_index)
        .collect();
    indices.sort_unstable();
    if !indices
        .iter()
        .copied()
        .eq(0..i32::try_from(indices.len()).unwrap_or(i32::MAX))
    {
        return refuse("partitions are not 0 to n - 1, each once");
    }
    if assignments.iter().any(|part| part.broker_ids != [node]) {
        return refuse("each partition must be assigned to this cluster's one broker");
    }
    Ok((i32::try_from(indices.len()).unwrap_or(i32::MAX), 1))
}

fn result(
    context: &Context,
    name: Str,
    outcome: Created,
    validate_only: bool,
) -> CreatableTopicResult {
    let topic = match outcome {
        Ok(topic) => topic,
        Err(refusal) => {
            return CreatableTopicResult {
                name,
                error_code: context.error(refusal.code),
                error_message: refusal.text(),
                ..CreatableTopicResult::default()
            };
        }
    };
    let mut result = CreatableTopicResult {
        name,
        num_partitions: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX),
        replication_factor: topic.replication_factor,
        configs: Some(configs(context, &topic)),
        ..CreatableTopicResult::default()
    };
    if !validate_only {
        result.topic_id = topic.id;
    }
    result
}

fn configs(context: &Context, topic: &Topic) -> Vec<CreatableTopicConfigs> {
    let entries = topic_entries(context, topic).into_iter();
    let configs = entries.map(|entry| CreatableTopicConfigs {
        name: entry.name,
        value: entry.value,
        read_only: entry.read_only,
        config_source: entry.config_source,
        is_sensitive: entry.is_sensitive,
    });
    configs.collect()
}
