//! DeleteTopics (key 20), versions 1-6.
//!
//! v4 flexible; v5 messages; v6 by name or id. One answer for each topic asked for (K60). The id
//! stays in the metadata until nothing of the topic is left in the store.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tidemill_cluster::{Change, Image, image::Topic};
use tidemill_wire::{
    ErrorCode, Str,
    ids::TopicId,
    messages::delete_topics::{
        DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
    },
};

use super::Context;
use crate::{Broker, errors::Refusal, topics::is_internal};

pub(super) async fn handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let by_name = request
        .topic_names
        .into_iter()
        .map(|name| (Some(name), TopicId::ZERO));
    let by_state = request
        .topics
        .into_iter()
        .map(|DeleteTopicState { name, topic_id }| (name, topic_id));
    let wanted: Vec<_> = by_name.chain(by_state).collect();
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let image = context.broker.cluster().image();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut responses = Vec::new();
    for (name, id) in wanted {
        let outcome = find(&context, &image, name.as_ref(), id).and_then(|topic| {
            if seen.insert(topic.id) {
                Ok(topic)
            } else {
                Err(Refusal::new(
                    ErrorCode::INVALID_REQUEST,
                    "topic is named twice",
                ))
            }
        });
        let mut response = DeletableTopicResult {
            name,
            topic_id: id,
            ..DeletableTopicResult::default()
        };
        match outcome {
            Ok(topic) => {
                response.name = Some(Str::from(topic.name.to_string()));
                response.topic_id = topic.id;
                found.push((responses.len(), topic));
            }
            Err(refusal) => refuse(&context, &mut response, &refusal),
        }
        responses.push(response);
    }
    let topics: Vec<_> = found.iter().map(|(_, topic)| Arc::clone(topic)).collect();
    let outcomes = delete(&context, topics, timeout).await;
    for ((index, _), outcome) in found.into_iter().zip(outcomes) {
        if let Err(refusal) = outcome {
            refuse(&context, &mut responses[index], &refusal);
        }
    }
    DeleteTopicsResponse {
        responses,
        ..DeleteTopicsResponse::default()
    }
}

fn refuse(context: &Context, response: &mut DeletableTopicResult, refusal: &Refusal) {
    response.error_code = context.error(refusal.code);
    response.error_message = refusal.text();
}

fn find(
    context: &Context,
    image: &Image,
    name: Option<&Str>,
    id: TopicId,
) -> Result<Arc<Topic>, Refusal> {
    if !context.broker.config().delete_topics {
        return Err(ErrorCode::TOPIC_DELETION_DISABLED.into());
    }
    let topic = match (name, id) {
        (Some(_), id) if id != TopicId::ZERO => {
            let message = "topic is given by name and by id";
            return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
        }
        (Some(name), _) => image
            .topic_by_name(name)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?,
        (None, TopicId::ZERO) => {
            let message = "topic has neither a name nor an id";
            return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
        }
        (None, id) => image.topic(id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?,
    };
    if is_internal(&topic.name) {
        let message = format!("topic `{}` is internal", topic.name);
        return Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    Ok(Arc::clone(topic))
}

async fn delete(
    context: &Context,
    topics: Vec<Arc<Topic>>,
    timeout: Duration,
) -> Vec<Result<(), Refusal>> {
    if topics.is_empty() {
        return Vec::new();
    }
    let count = topics.len();
    let work = commit(Arc::clone(&context.broker), topics);
    let task = context.broker.runtime().tasks.spawn("delete topics", work);
    let outcome = match context
        .broker
        .runtime()
        .clock
        .timeout(timeout, task.join())
        .await
    {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(ErrorCode::UNKNOWN_SERVER_ERROR.into()),
        Err(_) => Err(ErrorCode::REQUEST_TIMED_OUT.into()),
    };
    vec![outcome; count]
}

async fn commit(broker: Arc<Broker>, topics: Vec<Arc<Topic>>) -> Result<(), Refusal> {
    let ids: Vec<_> = topics.iter().map(|topic| topic.id).collect();
    let changes = move |image: &Image| {
        // One deleted meanwhile by somebody else is gone as asked.
        let there = ids.iter().filter(|id| image.topic(**id).is_some());
        Ok::<_, Refusal>(
            there
                .map(|id| Change::TopicDeleted { topic: *id })
                .collect(),
        )
    };
    broker.cluster().commit(changes).await?;
    let dropped: Vec<_> = topics
        .iter()
        .flat_map(|topic| broker.drop_topic(topic))
        .collect();
    // Or a topic of the same name would begin with the old one's committed offsets (F31). What
    // could not be stored is found by the next start.
    for forgotten in dropped {
        let _ = forgotten.await;
    }
    Ok(())
}
