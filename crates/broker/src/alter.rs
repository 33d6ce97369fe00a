//! Changing configurations, for IncrementalAlterConfigs and AlterConfigs (K62, K89).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use tidemill_cluster::{Change, Image, image::Configs};
use tidemill_wire::{ErrorCode, Str, ids::NodeId};

use crate::{
    Broker,
    api::Context,
    config::{
        AlterOp, Alteration, Role, Scope, View, alter_broker, alter_topic, broker_def,
        replace_broker, replace_topic,
    },
    errors::Refusal,
    topics::is_internal,
};

/// Resource type of topics.
pub(crate) const TOPIC: i8 = 2;
/// Resource type of brokers; the empty name stands for all of them.
pub(crate) const BROKER: i8 = 4;
/// How long a change may wait for the store; the requests carry no time-out of their own.
const ALTER_TIMEOUT: Duration = Duration::from_secs(30);

/// What is to be changed of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    /// The resource's type.
    pub kind: i8,
    /// Its name.
    pub name: String,
    /// How.
    pub how: How,
}

/// The two ways to change a resource.
#[derive(Clone, Debug)]
pub(crate) enum How {
    /// What is not named goes back to its default.
    Replace(Vec<(String, Option<String>)>),
    /// Key, operation code, value.
    Change(Vec<(String, i8, Option<String>)>),
}

/// What became of one resource, in the words of both APIs.
pub(crate) struct Done {
    /// The resource's type.
    pub kind: i8,
    /// Its name.
    pub name: Str,
    /// NONE, or why nothing was changed.
    pub code: ErrorCode,
    /// The reason in words.
    pub message: Option<Str>,
}

/// Changes resources and tells of each.
pub(crate) async fn answered(
    context: &Context,
    edits: Vec<Edit>,
    validate_only: bool,
) -> impl Iterator<Item = Done> {
    let named: Vec<_> = edits
        .iter()
        .map(|edit| (edit.kind, Str::from(edit.name.clone())))
        .collect();
    let outcomes = alter(&context.broker, edits, validate_only).await;
    named
        .into_iter()
        .zip(outcomes)
        .map(|((kind, name), outcome)| {
            let refusal = outcome.err();
            Done {
                kind,
                name,
                code: context.error(
                    refusal
                        .as_ref()
                        .map_or(ErrorCode::NONE, |refusal| refusal.code),
                ),
                message: refusal.and_then(|refusal| refusal.text()),
            }
        })
}

/// Changes resources, each by itself and as a whole or not at all.
async fn alter(
    broker: &Arc<Broker>,
    edits: Vec<Edit>,
    validate_only: bool,
) -> Vec<Result<(), Refusal>> {
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for edit in &edits {
        if !seen.insert((edit.kind, edit.name.clone())) {
            twice.insert((edit.kind, edit.name.clone()));
        }
    }
    let one = |edit: Edit| {
        let twice = twice.contains(&(edit.kind, edit.name.clone()));
        async move {
            if twice {
                let message = "a resource is named twice";
                return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
            }
            if validate_only {
                return decide(broker, &broker.cluster().image(), &edit).map(drop);
            }
            let task = commit(Arc::clone(broker), edit);
            let task = broker.runtime().tasks.spawn("alter configs", task);
            match broker
                .runtime()
                .clock
                .timeout(ALTER_TIMEOUT, task.join())
                .await
            {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => Err(ErrorCode::UNKNOWN_SERVER_ERROR.into()),
                Err(_) => Err(ErrorCode::REQUEST_TIMED_OUT.into()),
            }
        }
    };
    join_all(edits.into_iter().map(one)).await
}

async fn commit(broker: Arc<Broker>, edit: Edit) -> Result<(), Refusal> {
    let (deciding, deciding_edit) = (Arc::clone(&broker), edit.clone());
    let changes = move |image: &Image| {
        decide(&deciding, image, &deciding_edit).map(|change| change.into_iter().collect())
    };
    let image = broker.cluster().commit(changes).await?;
    if edit.kind == BROKER {
        warn_of_inert(&edit.how);
        // Topics take their defaults from the broker.
        broker.apply_topic_configs();
    } else if let Some(topic) = image.topic_by_name(&edit.name) {
        broker.lead(&image, topic.id);
    }
    Ok(())
}

/// Kafka's settings without meaning are kept and shown; whoever watches the log learns that they do
/// nothing.
fn warn_of_inert(how: &How) {
    let names: Vec<&str> = match how {
        How::Replace(configs) => configs.iter().map(|(name, _)| name.as_str()).collect(),
        How::Change(changes) => changes.iter().map(|(name, _, _)| name.as_str()).collect(),
    };
    let is_inert = |name: &&str| broker_def(name).is_some_and(|def| def.role == Role::Inert);
    let inert: Vec<&str> = names.into_iter().filter(is_inert).collect();
    if !inert.is_empty() {
        tracing::warn!(settings = inert.join(", "), "set, but without meaning here");
    }
}

/// The change of metadata; none if nothing changes.
fn decide(broker: &Broker, image: &Image, edit: &Edit) -> Result<Option<Change>, Refusal> {
    let own_node = broker.config().node_id;
    let (default, own) = (
        image.broker_configs(None),
        image.broker_configs(Some(own_node)),
    );
    let view = broker.config().settings.with(&default, &own);
    match edit.kind {
        TOPIC => {
            let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            let topic = image.topic_by_name(&edit.name).ok_or(unknown)?;
            if is_internal(&topic.name) {
                let message = format!("topic `{}` is internal", topic.name);
                return Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
            }
            let after = topic_after(&topic.configs, &edit.how, &view)?;
            let configs = difference(&topic.configs, &after);
            let change = Change::TopicConfigsSet {
                topic: topic.id,
                configs,
            };
            Ok((*topic.configs != after).then_some(change))
        }
        BROKER => {
            let node = broker_named(&edit.name, own_node)?;
            let before = if node.is_some() { &own } else { &default };
            let scope = if node.is_some() {
                Scope::One
            } else {
                Scope::Any
            };
            let after = broker_after(scope, before, &edit.how, &view)?;
            let configs = difference(before, &after);
            Ok((**before != after).then_some(Change::BrokerConfigsSet { node, configs }))
        }
        kind => {
            let message = format!("resources of type {kind} have no configuration here");
            Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
        }
    }
}

/// The broker of a resource name; none for the empty one, which means all brokers.
///
/// # Errors
/// INVALID_REQUEST for what is not this broker's id.
pub(crate) fn broker_named(name: &str, own: NodeId) -> Result<Option<NodeId>, Refusal> {
    if name.is_empty() {
        return Ok(None);
    }
    match name.parse() {
        Ok(node) if NodeId(node) == own => Ok(Some(own)),
        _ => {
            let message = format!("broker `{name}` is not this one, which is {own}");
            Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
        }
    }
}

fn pairs(configs: &[(String, Option<String>)]) -> impl Iterator<Item = (&str, Option<&str>)> {
    configs
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_deref()))
}

fn topic_after(before: &Configs, how: &How, view: &View<'_>) -> Result<Configs, Refusal> {
    match how {
        How::Replace(configs) => Ok(replace_topic(pairs(configs), view)?),
        How::Change(changes) => Ok(alter_topic(before, &alterations(changes)?, view)?),
    }
}

fn broker_after(
    scope: Scope,
    before: &Configs,
    how: &How,
    view: &View<'_>,
) -> Result<Configs, Refusal> {
    match how {
        How::Replace(configs) => Ok(replace_broker(scope, pairs(configs))?),
        How::Change(changes) => Ok(alter_broker(scope, before, &alterations(changes)?, view)?),
    }
}

fn alterations(changes: &[(String, i8, Option<String>)]) -> Result<Vec<Alteration<'_>>, Refusal> {
    let mut alterations = Vec::with_capacity(changes.len());
    for (name, code, value) in changes {
        let Some(op) = AlterOp::from_code(*code) else {
            let message = format!("`{name}`: unknown operation {code}");
            return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
        };
        alterations.push(Alteration {
            name,
            op,
            value: value.as_deref(),
        });
    }
    Ok(alterations)
}

/// What must be set, and (with none) removed, to come from `before` to `after`.
fn difference(before: &Configs, after: &Configs) -> BTreeMap<String, Option<String>> {
    let removed = before.keys().filter(|key| !after.contains_key(*key));
    let changed = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value));
    let removed = removed.map(|key| (key.clone(), None));
    removed
        .chain(changed.map(|(key, value)| (key.clone(), Some(value.clone()))))
        .collect()
}
