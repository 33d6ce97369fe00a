//! Topics as requests name them: resolving, settings, creation, deletion.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
use tidemill_cluster::{
    Image,
    image::{Configs, Topic},
};
use tidemill_log::partition::Partition;
use tidemill_wire::{
    ErrorCode,
    ids::{PartitionId, TopicId},
};
use tokio::sync::oneshot::Receiver;

use crate::{
    Broker,
    config::{BrokerConfig, TopicConfig},
};

/// The topic of groups and their offsets.
pub(crate) const OFFSETS: &str = "__consumer_offsets";

/// Topics that only the broker writes (K84).
const INTERNAL: [&str; 5] = [
    OFFSETS,
    "__transaction_state",
    "__share_group_state",
    "__schedules",
    "__runs",
];

/// What internal topics are set to, whatever anybody else sets: records stay until their owner,
/// who alone knows what nobody needs any more, lets them go.
pub(crate) const KEEP: [(&str, &str); 2] = [("retention.ms", "-1"), ("retention.bytes", "-1")];

/// Longest topic name in bytes, as in Kafka.
const NAME_MAX: usize = 249;

/// Whether only the broker writes the topic (K84).
pub(crate) fn is_internal(name: &str) -> bool {
    INTERNAL.contains(&name)
}

/// Whether there is anything that would use a topic of this name: of the internal ones, only the
/// group coordinator's has an owner yet.
pub(crate) fn has_owner(name: &str) -> bool {
    name == OFFSETS || !is_internal(name)
}

/// A topic's own configurations in force: an internal one may have been made with others than its
/// owner needs.
pub(crate) fn configs_of(topic: &Topic) -> Cow<'_, Configs> {
    let mut configs = Cow::Borrowed(&*topic.configs);
    if is_internal(&topic.name) {
        let keep = KEEP.map(|(key, value)| (key.to_owned(), value.to_owned()));
        configs.to_mut().extend(keep);
    }
    configs
}

/// Whether a topic may have this name (K91).
///
/// # Errors
/// The reason.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() {
        Err("topic name is empty".to_owned())
    } else if name == "." || name == ".." {
        Err(format!("topic name is `{name}`"))
    } else if name.len() > NAME_MAX {
        Err(format!("topic name is longer than {NAME_MAX} characters"))
    } else if !name.chars().all(legal) {
        Err(format!(
            "topic name `{name}` has characters other than ASCII letters, digits, `.-_`"
        ))
    } else {
        Ok(())
    }
}

struct Cached {
    own: Arc<Configs>,
    broker: [Arc<Configs>; 2],
    settings: Arc<TopicConfig>,
}

/// The settings of topics, made once for each change.
#[derive(Default)]
pub(crate) struct TopicCache(RwLock<BTreeMap<TopicId, Cached>>);

impl TopicCache {
    /// Forgets a deleted topic.
    fn forget(&self, id: TopicId) {
        self.0.write().remove(&id);
    }
}

/// A partition this broker leads, and its topic.
pub(crate) struct Found {
    /// The topic.
    pub topic: Arc<Topic>,
    /// The partition.
    pub partition: Arc<Partition>,
}

impl BrokerConfig {
    /// The settings of a topic of the image: its own over the dynamic ones of this broker, those of
    /// all brokers, and those from its start. Of an internal topic nothing goes by age or size.
    #[must_use]
    pub fn topic_in(&self, image: &Image, topic: &Topic) -> TopicConfig {
        let own = image.broker_configs(Some(self.node_id));
        self.topic(&configs_of(topic), &image.broker_configs(None), &own)
    }
}

impl Broker {
    /// The settings of a topic, see [`BrokerConfig::topic_in`].
    pub(crate) fn topic_config(&self, image: &Image, topic: &Topic) -> Arc<TopicConfig> {
        let broker = [
            image.broker_configs(None),
            image.broker_configs(Some(self.config().node_id)),
        ];
        let same = |a: &Arc<Configs>, b: &Arc<Configs>| {
            Arc::ptr_eq(a, b) || (a.is_empty() && b.is_empty())
        };
        if let Some(cached) = self.topics().0.read().get(&topic.id)
            && same(&cached.own, &topic.configs)
            && same(&cached.broker[0], &broker[0])
            && same(&cached.broker[1], &broker[1])
        {
            return Arc::clone(&cached.settings);
        }
        let settings = Arc::new(self.config().topic_in(image, topic));
        let own = Arc::clone(&topic.configs);
        let cached = Cached {
            own,
            broker,
            settings: Arc::clone(&settings),
        };
        self.topics().0.write().insert(topic.id, cached);
        settings
    }

    /// A partition of `topic` that this broker leads.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER.
    pub(crate) fn partition(
        &self,
        topic: &Arc<Topic>,
        index: i32,
    ) -> Result<Arc<Partition>, ErrorCode> {
        if topic.partition(index).is_none() {
            return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        let id = PartitionId {
            topic: topic.id,
            index,
        };
        self.log()
            .partition(id)
            .ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)
    }

    /// A partition by its topic's name.
    ///
    /// # Errors
    /// As [`Broker::partition`].
    pub(crate) fn find(&self, image: &Image, name: &str, index: i32) -> Result<Found, ErrorCode> {
        let topic = image
            .topic_by_name(name)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let partition = self.partition(topic, index)?;
        Ok(Found {
            topic: Arc::clone(topic),
            partition,
        })
    }

    /// Leads what the image says of `topic`, with its settings.
    pub(crate) fn lead(&self, image: &Image, id: TopicId) {
        let Some(topic) = image.topic(id) else { return };
        let config = self.topic_config(image, topic).partition();
        for (partition, state) in topic.partitions() {
            if state.leader() != self.log().writer() {
                continue;
            }
            self.log()
                .create_partition(partition, state.epoch, config)
                .set_config(config);
        }
    }

    /// Gives up what is left of a deleted topic. Returns what to wait for before it is answered.
    pub(crate) fn drop_topic(&self, topic: &Topic) -> Vec<Receiver<Result<(), ErrorCode>>> {
        for (partition, _) in topic.partitions() {
            self.log().drop_partition(partition);
        }
        self.topics().forget(topic.id);
        self.coordinator().topic_deleted(&topic.name)
    }

    /// Puts the settings of all topics into force.
    pub(crate) fn apply_topic_configs(&self) {
        let image = self.cluster().image();
        for topic in image.topics() {
            self.lead(&image, topic.id);
        }
    }
}
