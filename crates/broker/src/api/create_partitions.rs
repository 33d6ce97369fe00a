//! CreatePartitions (key 37), versions 0-3.
//!
//! v2 flexible; v3 the same. One answer for each topic asked for (K60). All topics are decided and
//! committed in one entry, each by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tidemill_cluster::{Change, Image};
use tidemill_wire::{
    ErrorCode, Str,
    ids::{LeaderEpoch, WriterId},
    messages::create_partitions::{
        CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
        CreatePartitionsTopicResult,
    },
};

use super::Context;
use crate::{
    Broker,
    create::{NEW_PARTITIONS_MAX, too_many},
    errors::Refusal,
    topics::is_internal,
};

pub(super) async fn handle(
    context: Context,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let mut counts: BTreeMap<Str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *counts.entry(topic.name.clone()).or_default() += 1;
    }
    let mut topics = request.topics;
    let mut seen = BTreeSet::new();
    topics.retain(|topic| seen.insert(topic.name.clone()));
    let names: Vec<_> = topics.iter().map(|topic| topic.name.clone()).collect();
    topics.retain(|topic| counts.get(&topic.name) == Some(&1));
    let once: Vec<_> = topics.iter().map(|topic| topic.name.clone()).collect();
    let outcomes = if request.validate_only {
        let image = context.broker.cluster().image();
        let node = context.broker.config().node_id.0;
        let decided = decide_all(&image, &topics, node, WriterId(0), 0).into_iter();
        decided.map(|decided| decided.map(drop)).collect()
    } else {
        add(&context, topics, timeout).await
    };
    let mut outcomes: BTreeMap<Str, _> = once.into_iter().zip(outcomes).collect();
    let twice = || {
        let refusal = Refusal::new(ErrorCode::INVALID_REQUEST, "a topic is named twice");
        Err(refusal)
    };
    let outcomes: Vec<_> = names
        .iter()
        .map(|name| outcomes.remove(name).unwrap_or_else(twice))
        .collect();
    let results = names.into_iter().zip(outcomes).map(|(name, outcome)| {
        let mut result = CreatePartitionsTopicResult {
            name,
            ..Default::default()
        };
        if let Err(refusal) = outcome {
            result.error_code = context.error(refusal.code);
            result.error_message = refusal.text();
        }
        result
    });
    CreatePartitionsResponse {
        results: results.collect(),
        ..CreatePartitionsResponse::default()
    }
}

/// Decides all topics of a request; together they may add as much as one may (K92).
fn decide_all(
    image: &Image,
    topics: &[CreatePartitionsTopic],
    node: i32,
    leader: WriterId,
    first_wal: u64,
) -> Vec<Result<Change, Refusal>> {
    let decide = |topic| decide(image, topic, node, leader, first_wal);
    let decided: Vec<_> = topics.iter().map(decide).collect();
    let added = |(topic, decided): (&CreatePartitionsTopic, &Result<_, _>)| {
        let present = image.topic_by_name(&topic.name)?.partitions.len();
        let present = i64::try_from(present).unwrap_or(i64::MAX);
        decided.is_ok().then(|| i64::from(topic.count) - present)
    };
    let total: i64 = topics.iter().zip(&decided).filter_map(added).sum();
    if total > NEW_PARTITIONS_MAX {
        return vec![Err(too_many()); topics.len()];
    }
    decided
}

fn decide(
    image: &Image,
    wanted: &CreatePartitionsTopic,
    node: i32,
    leader: WriterId,
    first_wal: u64,
) -> Result<Change, Refusal> {
    let topic = image
        .topic_by_name(&wanted.name)
        .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    if is_internal(&topic.name) {
        let message = format!("topic `{}` is internal", topic.name);
        return Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    let present = i64::try_from(topic.partitions.len()).unwrap_or(i64::MAX);
    let added = i64::from(wanted.count) - present;
    if added <= 0 {
        let message = format!("topic has {present} partitions already");
        return Err(Refusal::new(ErrorCode::INVALID_PARTITIONS, message));
    }
    if added > NEW_PARTITIONS_MAX {
        return Err(too_many());
    }
    if let Some(assignments) = &wanted.assignments {
        let fits = i64::try_from(assignments.len()) == Ok(added)
            && assignments
                .iter()
                .all(|assigned| assigned.broker_ids == [node]);
        if !fits {
            let message = "each new partition must be assigned to this cluster's one broker";
            return Err(Refusal::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
        }
    }
    Ok(Change::PartitionsAdded {
        topic: topic.id,
        total: wanted.count.unsigned_abs(),
        leader,
        epoch: LeaderEpoch(0),
        first_wal,
    })
}

async fn add(
    context: &Context,
    topics: Vec<CreatePartitionsTopic>,
    timeout: Duration,
) -> Vec<Result<(), Refusal>> {
    let count = topics.len();
    let work = commit(Arc::clone(&context.broker), topics);
    let task = context
        .broker
        .runtime()
        .tasks
        .spawn("create partitions", work);
    match context
        .broker
        .runtime()
        .clock
        .timeout(timeout, task.join())
        .await
    {
        Ok(Ok(outcomes)) => outcomes,
        Ok(Err(_)) => vec![Err(ErrorCode::UNKNOWN_SERVER_ERROR.into()); count],
        Err(_) => vec![Err(ErrorCode::REQUEST_TIMED_OUT.into()); count],
    }
}

async fn commit(
    broker: Arc<Broker>,
    topics: Vec<CreatePartitionsTopic>,
) -> Vec<Result<(), Refusal>> {
    let count = topics.len();
    let names: Vec<_> = topics.iter().map(|topic| topic.name.clone()).collect();
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let decided = Arc::clone(&outcomes);
    let (node, leader) = (broker.config().node_id.0, broker.log().writer());
    let first_wal = broker.log().next_number();
    let changes = move |image: &Image| {
        let (mut changes, mut outcomes) = (Vec::new(), Vec::new());
        for change in decide_all(image, &topics, node, leader, first_wal) {
            match change {
                Ok(change) => {
                    changes.push(change);
                    outcomes.push(Ok(()));
                }
                Err(refusal) => outcomes.push(Err(refusal)),
            }
        }
        *decided.lock() = outcomes;
        Ok::<_, Refusal>(changes)
    };
    let image = match broker.cluster().commit(changes).await {
        Ok(image) => image,
        Err(error) => return vec![Err(Refusal::from(error)); count],
    };
    for name in names {
        if let Some(topic) = image.topic_by_name(&name) {
            broker.lead(&image, topic.id);
        }
    }
    std::mem::take(&mut *outcomes.lock())
}
