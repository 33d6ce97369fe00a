//! The state of the cluster after a number of metadata entries.
//!
//! An image never changes once it is shared; the next one shares all that the entry did not touch.

mod apply;
mod lineage;
mod map;

use std::{collections::BTreeMap, sync::Arc};

use tidemill_wire::ids::{LeaderEpoch, NodeId, PartitionId, TopicId, WriterId};

pub use lineage::{Lineage, Tenure};
pub use map::SharedMap;

use crate::format::{BrokerRegistration, ClosedWal};

/// The first number of the metadata log. Not 0, since a writer id of 0 means none.
pub const FIRST_ENTRY: u64 = 1;

/// Set configurations, key to value.
pub type Configs = BTreeMap<String, String>;

/// A broker incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterState {
    /// Its id: the number of the entry that registered it.
    pub id: WriterId,
    /// What it said of itself.
    pub registration: BrokerRegistration,
    /// How it was closed; none while it may still write.
    pub sealed: Option<ClosedWal>,
}

/// One partition: its present tenure and those before.
#[derive(Clone, Debug)]
pub struct PartitionState {
    /// The present leader epoch.
    pub epoch: LeaderEpoch,
    /// The present tenure, linked to those before.
    pub lineage: Arc<Lineage>,
}

impl PartitionState {
    /// The present (or, if that is sealed, the last) leader.
    #[must_use]
    pub fn leader(&self) -> WriterId {
        self.lineage.writer
    }

    /// All tenures, newest first.
    pub fn tenures(&self) -> impl Iterator<Item = Tenure> {
        self.lineage.tenures(self.epoch)
    }
}

/// A topic.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its id, random and never used again.
    pub id: TopicId,
    /// Its name.
    pub name: Arc<str>,
    /// As asked for at creation (K59).
    pub replication_factor: i16,
    /// Configurations set explicitly.
    pub configs: Arc<Configs>,
    /// Partitions 0 to n - 1.
    pub partitions: Arc<Vec<PartitionState>>,
    /// Number of the metadata entry that created it.
    pub created: u64,
}

impl Topic {
    /// The partition with this index.
    #[must_use]
    pub fn partition(&self, index: i32) -> Option<&PartitionState> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    /// The ids and states of all partitions, in order.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &PartitionState)> {
        (0..).zip(self.partitions.iter()).map(|(index, state)| {
            let id = PartitionId {
                topic: self.id,
                index,
            };
            (id, state)
        })
    }
}

/// The state after all entries below [`Image::next`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Image {
    pub(crate) next: u64,
    pub(crate) finalized_level: u32,
    pub(crate) writers: SharedMap<WriterId, Arc<WriterState>>,
    pub(crate) topics: SharedMap<TopicId, Arc<Topic>>,
    pub(crate) names: SharedMap<Arc<str>, TopicId>,
    pub(crate) folded: SharedMap<Arc<str>, TopicId>,
    pub(crate) deleted: SharedMap<TopicId, Arc<Topic>>,
    pub(crate) broker_configs: Arc<BTreeMap<Option<NodeId>, Arc<Configs>>>,
    pub(crate) partitions: u64,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            next: FIRST_ENTRY,
            finalized_level: 0,
            writers: SharedMap::default(),
            topics: SharedMap::default(),
            names: SharedMap::default(),
            folded: SharedMap::default(),
            deleted: SharedMap::default(),
            broker_configs: Arc::default(),
            partitions: 0,
        }
    }
}

/// `m.n_o` and `m_n.o` fold to one name; of such names only one may exist (K91).
fn fold_name(name: &str) -> Arc<str> {
    name.replace('.', "_").into()
}

impl Image {
    /// The number of the first entry that is not in this image; grows with every version.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The format level that may be written.
    #[must_use]
    pub fn finalized_level(&self) -> u32 {
        self.finalized_level
    }

    /// A topic by id; a deleted one is not found.
    #[must_use]
    pub fn topic(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topics.get(&id)
    }

    /// A topic by name.
    #[must_use]
    pub fn topic_by_name(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(self.names.get(name)?)
    }

    /// The topic whose name equals `name` or differs from it only by `.` for `_` (K91).
    #[must_use]
    pub fn colliding_topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(self.folded.get(&*fold_name(name))?)
    }

    /// All topics, by id.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.iter().map(|(_, topic)| topic)
    }

    /// All topics, by name.
    pub fn topics_by_name(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.names.iter().filter_map(|(_, id)| self.topics.get(id))
    }

    /// Topics that are deleted, but of which something may be left in the store.
    pub fn deleted_topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.deleted.iter().map(|(_, topic)| topic)
    }

    /// A deleted topic that is not yet forgotten.
    #[must_use]
    pub fn deleted_topic(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.deleted.get(&id)
    }

    /// One partition of a topic that exists.
    #[must_use]
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionState> {
        self.topics.get(&id.topic)?.partition(id.index)
    }

    /// All partitions whose last leader is `writer`, in order of topic id and index.
    pub fn partitions_led_by(
        &self,
        writer: WriterId,
    ) -> impl Iterator<Item = (PartitionId, &PartitionState)> {
        self.topics()
            .flat_map(|topic| topic.partitions())
            .filter(move |(_, state)| state.leader() == writer)
    }

    /// Number of topics.
    #[must_use]
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// Number of partitions of all topics.
    #[must_use]
    pub fn partition_count(&self) -> u64 {
        self.partitions
    }

    /// A broker incarnation.
    #[must_use]
    pub fn writer(&self, id: WriterId) -> Option<&Arc<WriterState>> {
        self.writers.get(&id)
    }

    /// All broker incarnations, oldest first, sealed ones too.
    pub fn writers(&self) -> impl Iterator<Item = &Arc<WriterState>> {
        self.writers.iter().map(|(_, writer)| writer)
    }

    /// Incarnations that may still write, oldest first.
    pub fn unsealed(&self) -> impl Iterator<Item = &Arc<WriterState>> {
        self.writers().filter(|writer| writer.sealed.is_none())
    }

    /// True if the writer is registered and not sealed.
    #[must_use]
    pub fn may_write(&self, id: WriterId) -> bool {
        self.writer(id)
            .is_some_and(|writer| writer.sealed.is_none())
    }

    /// Dynamic configurations of a broker, or with none the cluster-wide ones; empty if none are
    /// set.
    #[must_use]
    pub fn broker_configs(&self, node: Option<NodeId>) -> Arc<Configs> {
        self.broker_configs.get(&node).cloned().unwrap_or_default()
    }

    /// All dynamic broker configurations; none as node is the cluster-wide default.
    pub fn all_broker_configs(&self) -> impl Iterator<Item = (Option<NodeId>, &Arc<Configs>)> {
        self.broker_configs
            .iter()
            .map(|(node, configs)| (*node, configs))
    }
}
