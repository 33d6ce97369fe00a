//! Fetch (key 1), versions 4-18.
//!
//! v4 isolation level; v5 log start; v7 sessions; v9 leader epoch; v11 rack (reader brokers will
//! use it); v12 flexible, diverging epochs; v13 topic ids; v15 replica state moves to a tag; v16
//! node endpoints; v17, v18 fields of followers. Followers are served as consumers.

use std::{sync::Arc, time::Duration};

use tidemill_log::Superseded;
use tidemill_runtime::Instant;
use tidemill_wire::{
    ErrorCode,
    messages::fetch::{
        FetchRequest, FetchResponse, FetchableTopicResponse, NodeEndpoint, PartitionData,
    },
};

use super::{Context, Outcome, isolation};
use crate::fetch::{
    reader::{Budget, Reader},
    session::{Plan, SessionCache, Target, TopicKey},
};

pub(super) async fn handle(context: Context, request: FetchRequest) -> Outcome<FetchResponse> {
    // Before anything is awaited: the session's epochs follow the order of the requests.
    let plan = context
        .broker
        .sessions()
        .plan(&request, context.version, context.received);
    match answer(context, &request, plan).await {
        Ok((response, Some(committed))) => Outcome::Woken(response, committed),
        Ok((response, None)) => response.into(),
        Err(Superseded) => Outcome::Close,
    }
}

async fn answer(
    context: Context,
    request: &FetchRequest,
    plan: Plan,
) -> Result<(FetchResponse, Option<Instant>), Superseded> {
    if let Plan::Error(code) = plan {
        return Ok((session_error(&context, code), None));
    }
    context.fresh_within().await?;
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let bytes = |value: i32| usize::try_from(value).unwrap_or(0);
    let budget = Budget {
        max_bytes: bytes(request.max_bytes).min(context.broker.config().fetch_max_bytes),
        min_bytes: bytes(request.min_bytes),
        isolation: isolation(request.isolation_level),
        deadline: context.received + wait,
    };
    let broker = Arc::clone(&context.broker);
    let mut reader = Reader::new(&broker, plan.targets(), budget);
    reader.run(&broker).await;
    // A broker that was superseded while the request waited falls silent.
    context.fresh_within().await?;
    let woken = reader.woken();
    Ok((respond(&context, plan, reader.finish()), woken))
}

fn session_error(context: &Context, code: ErrorCode) -> FetchResponse {
    FetchResponse {
        error_code: context.error(code),
        ..FetchResponse::default()
    }
}

fn respond(
    context: &Context,
    plan: Plan,
    answers: Vec<(PartitionData, Option<Arc<str>>)>,
) -> FetchResponse {
    let mut bytes = 0;
    let mut moved = false;
    for (data, _) in &answers {
        bytes += data
            .records
            .as_ref()
            .map_or(0, |records| records.len() as u64);
        context.error(data.error_code);
        moved |= matches!(
            data.error_code,
            ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH
        );
    }
    context.broker.metrics().fetched(bytes);
    let sessions = context.broker.sessions();
    let session_id = match &plan {
        Plan::Open { by_id, targets } => {
            sessions.open(*by_id, targets.clone(), &answers, context.received)
        }
        plan => SessionCache::id_of(plan),
    };
    let news = match plan.news(answers) {
        Ok(news) => news,
        Err(code) => return session_error(context, code),
    };
    let mut response = FetchResponse {
        session_id,
        responses: grouped(plan.targets(), news),
        ..FetchResponse::default()
    };
    if moved && context.version >= 16 {
        response.node_endpoints = vec![NodeEndpoint {
            node_id: context.broker.config().node_id.0,
            host: context.peer.advertised.host.clone().into(),
            port: i32::from(context.peer.advertised.port),
            rack: context.broker.config().rack(),
        }];
    }
    response
}

/// Neighbours of one topic go under one heading.
fn grouped(targets: &[Target], news: Vec<(usize, PartitionData)>) -> Vec<FetchableTopicResponse> {
    let mut topics: Vec<FetchableTopicResponse> = Vec::new();
    let mut last: Option<&TopicKey> = None;
    for (index, mut data) in news {
        let target = &targets[index];
        data.partition_index = target.index;
        if last != Some(&target.topic) {
            last = Some(&target.topic);
            let mut topic = FetchableTopicResponse::default();
            match &target.topic {
                TopicKey::Name(name) => topic.topic = name.clone(),
                TopicKey::Id(id) => topic.topic_id = *id,
            }
            topics.push(topic);
        }
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(data);
        }
    }
    topics
}
