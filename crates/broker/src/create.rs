//! Creating topics and partitions, for whoever asks: clients, auto-creation, the broker itself.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidemill_cluster::{Change, Image, format::NewTopic, image::Topic};
use tidemill_wire::{
    ErrorCode,
    ids::{LeaderEpoch, TopicId, WriterId},
};

use crate::{
    Broker,
    errors::Refusal,
    groups::as_needed,
    topics::{OFFSETS, check_name, has_owner},
};

/// Partitions that one request may create: Kafka's limit (K92).
pub(crate) const NEW_PARTITIONS_MAX: i64 = 10_000;
/// The first epoch of a new partition.
const FIRST_EPOCH: LeaderEpoch = LeaderEpoch(0);

/// A topic to be created, as asked for.
#[derive(Clone, Debug)]
pub(crate) struct NewTopicSpec {
    /// Its name.
    pub name: String,
    /// Its partitions; -1 is the broker's default.
    pub partitions: i32,
    /// Echoed; -1 is the broker's default.
    pub replication_factor: i16,
    /// Set configurations.
    pub configs: BTreeMap<String, String>,
}

impl NewTopicSpec {
    /// A topic as auto-creation makes it.
    pub fn with_defaults(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            partitions: -1,
            replication_factor: -1,
            configs: BTreeMap::new(),
        }
    }

    /// Checks what needs no image and fills in the defaults.
    ///
    /// # Errors
    /// K59, K84, K90, K91.
    fn complete(mut self, broker: &Broker) -> Result<Self, Refusal> {
        check_name(&self.name)
            .map_err(|reason| Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, reason))?;
        if !has_owner(&self.name) {
            let message = format!("topic `{}` is internal", self.name);
            return Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
        }
        match self.partitions {
            -1 => self.partitions = broker.config().num_partitions,
            1.. => {}
            _ => return Err(ErrorCode::INVALID_PARTITIONS.into()),
        }
        match self.replication_factor {
            -1 => self.replication_factor = broker.config().default_replication_factor,
            1.. => {}
            _ => return Err(ErrorCode::INVALID_REPLICATION_FACTOR.into()),
        }
        if self.name == OFFSETS {
            self = as_needed(self, &broker.config().groups);
        }
        broker
            .config()
            .check_topic_configs(&self.name, &mut self.configs)?;
        Ok(self)
    }

    fn decide(&self, image: &Image, id: TopicId, leader: WriterId) -> Result<Change, Refusal> {
        if image.topic_by_name(&self.name).is_some() {
            let message = format!("topic `{}` exists already", self.name);
            return Err(Refusal::new(ErrorCode::TOPIC_ALREADY_EXISTS, message));
        }
        if let Some(other) = image.colliding_topic(&self.name) {
            let message = format!("topic `{}` collides with `{}`", self.name, other.name);
            return Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
        }
        Ok(Change::TopicCreated(NewTopic {
            id,
            name: self.name.clone(),
            partitions: self.partitions.unsigned_abs(),
            replication_factor: self.replication_factor,
            configs: self.configs.clone(),
            leader,
            epoch: FIRST_EPOCH,
            first_wal: 0,
        }))
    }
}

/// Whether one request may create so much: partitions by topic, as asked for (K92). Asked before
/// anything else, so that no part of what is too much is looked at, let alone created.
///
/// # Errors
/// POLICY_VIOLATION, for all topics of the request.
pub(crate) fn check_total<'a>(
    broker: &Broker,
    asked: impl IntoIterator<Item = (&'a str, i64)>,
) -> Result<(), Refusal> {
    let config = broker.config();
    let created = asked
        .into_iter()
        .map(|(name, partitions)| match partitions {
            _ if name == OFFSETS => partitions.max(config.groups.offsets_partitions.into()),
            -1 => i64::from(config.num_partitions),
            // Refused for itself.
            _ => partitions.max(0),
        });
    // No frame holds so many topics that their sum would overflow.
    match created.sum::<i64>() {
        ..=NEW_PARTITIONS_MAX => Ok(()),
        _ => Err(too_many()),
    }
}

/// The refusal of more partitions than one request may create (K92).
pub(crate) fn too_many() -> Refusal {
    let message = format!("more than {NEW_PARTITIONS_MAX} partitions in one request");
    Refusal::new(ErrorCode::POLICY_VIOLATION, message)
}

/// What became of each topic.
pub(crate) type Created = Result<Arc<Topic>, Refusal>;

/// Creates topics, each by itself, in one entry of the metadata log; returns when all of them can
/// be used (K55), or after `timeout` (the creation then goes on without the caller). With
/// `validate_only` nothing is created, and the topic returned is what would be.
pub(crate) async fn create_topics(
    broker: &Arc<Broker>,
    specs: Vec<NewTopicSpec>,
    validate_only: bool,
    timeout: Option<Duration>,
) -> Vec<Created> {
    let count = specs.len();
    let asked = specs
        .iter()
        .map(|spec| (spec.name.as_str(), i64::from(spec.partitions)));
    if let Err(refusal) = check_total(broker, asked) {
        return vec![Err(refusal); count];
    }
    let specs: Vec<_> = specs
        .into_iter()
        .map(|spec| spec.complete(broker))
        .collect();
    if validate_only {
        let image = broker.cluster().image();
        return specs
            .into_iter()
            .map(|spec| would_be(broker, &image, spec?))
            .collect();
    }
    let work = create(Arc::clone(broker), specs);
    let task = broker.runtime().tasks.spawn("create topics", work);
    let clock = &broker.runtime().clock;
    let joined = match timeout {
        Some(timeout) => clock.timeout(timeout, task.join()).await,
        None => Ok(task.join().await),
    };
    match joined {
        Ok(Ok(created)) => created,
        Ok(Err(_)) => vec![Err(ErrorCode::UNKNOWN_SERVER_ERROR.into()); count],
        Err(_) => vec![Err(ErrorCode::REQUEST_TIMED_OUT.into()); count],
    }
}

fn would_be(broker: &Broker, image: &Image, spec: NewTopicSpec) -> Created {
    let change = spec.decide(
        image,
        TopicId(broker.runtime().entropy.uuid()),
        broker.log().writer(),
    )?;
    let mut after = image.clone();
    after.apply(&[change]);
    after
        .topic_by_name(&spec.name)
        .cloned()
        .ok_or(ErrorCode::UNKNOWN_SERVER_ERROR.into())
}

async fn create(broker: Arc<Broker>, specs: Vec<Result<NewTopicSpec, Refusal>>) -> Vec<Created> {
    let leader = broker.log().writer();
    let ids: Vec<_> = specs
        .iter()
        .map(|_| TopicId(broker.runtime().entropy.uuid()))
        .collect();
    let refusals = Arc::new(Mutex::new(Vec::new()));
    let decided = {
        let (specs, ids, refusals) = (specs.clone(), ids.clone(), Arc::clone(&refusals));
        let first_wal = broker.log().next_number();
        move |image: &Image| {
            // On a copy, as the topics of one request may collide with each other.
            let mut image = image.clone();
            let mut changes = Vec::new();
            let mut refused = Vec::with_capacity(specs.len());
            for (spec, id) in specs.iter().zip(&ids) {
                let change = spec
                    .as_ref()
                    .map_err(Clone::clone)
                    .and_then(|spec| spec.decide(&image, *id, leader));
                refused.push(change.as_ref().err().cloned());
                if let Ok(Change::TopicCreated(topic)) = change {
                    let change = Change::TopicCreated(NewTopic { first_wal, ..topic });
                    image.apply(std::slice::from_ref(&change));
                    changes.push(change);
                }
            }
            *refusals.lock() = refused;
            Ok::<_, Refusal>(changes)
        }
    };
    let image = match broker.cluster().commit(decided).await {
        Ok(image) => image,
        Err(error) => return vec![Err(Refusal::from(error)); ids.len()],
    };
    let refusals = std::mem::take(&mut *refusals.lock());
    let results = ids
        .into_iter()
        .zip(refusals)
        .map(|(id, refusal)| match refusal {
            Some(refusal) => Err(refusal),
            None => {
                broker.lead(&image, id);
                let gone = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.into();
                image.topic(id).cloned().ok_or(gone)
            }
        });
    results.collect()
}
