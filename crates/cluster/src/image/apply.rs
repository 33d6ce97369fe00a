//! Applying entries. Total and deterministic: every broker makes the same of the same entries, so
//! what makes no sense is void and never an error.

use std::{collections::BTreeMap, sync::Arc};

use tidemill_wire::ids::{LeaderEpoch, NodeId, TopicId, WriterId};

use super::{Configs, Image, Lineage, PartitionState, Topic, WriterState, fold_name};
use crate::format::{Change, ClosedWal, NewTopic, StartedTenure};

impl Image {
    /// Applies the changes of entry [`Image::next`], which then is the next number.
    pub fn apply(&mut self, changes: &[Change]) {
        let number = self.next;
        for change in changes {
            self.apply_change(number, change);
        }
        self.next = number + 1;
    }

    /// Applies one change of entry `number`, without counting the entry.
    pub(crate) fn apply_change(&mut self, number: u64, change: &Change) {
        match change {
            Change::BrokerRegistered(registration) => {
                let id = WriterId(number);
                let state = WriterState {
                    id,
                    registration: registration.clone(),
                    sealed: None,
                };
                self.writers.insert(id, Arc::new(state));
            }
            Change::WriterSealed { writer, closed } => self.seal(*writer, *closed),
            Change::TopicCreated(topic) => self.create_topic(number, topic),
            Change::PartitionsAdded {
                topic,
                total,
                leader,
                epoch,
                first_wal,
            } => {
                let first = PartitionState {
                    epoch: *epoch,
                    lineage: Lineage::first(*leader, *first_wal),
                };
                self.add_partitions(*topic, *total, &first);
            }
            Change::TopicDeleted { topic } => self.delete_topic(*topic),
            Change::TopicForgotten { topic } => {
                self.deleted.remove(topic);
            }
            Change::TopicConfigsSet { topic, configs } => self.set_topic_configs(*topic, configs),
            Change::BrokerConfigsSet { node, configs } => self.set_broker_configs(*node, configs),
            Change::TenuresStarted(tenures) => {
                for tenure in tenures {
                    self.start_tenure(tenure);
                }
            }
            Change::TenuresInherited {
                from,
                to,
                first_wal,
            } => self.inherit(*from, *to, *first_wal),
            Change::FinalizedLevel { level } => {
                self.finalized_level = self.finalized_level.max(*level);
            }
        }
    }

    /// The first to close a writer wins.
    fn seal(&mut self, writer: WriterId, closed: ClosedWal) {
        let Some(state) = self.writers.get(&writer) else {
            return;
        };
        if state.sealed.is_none() {
            let state = WriterState {
                sealed: Some(closed),
                ..WriterState::clone(state)
            };
            self.writers.insert(writer, Arc::new(state));
        }
    }

    fn create_topic(&mut self, number: u64, new: &NewTopic) {
        let taken = self.topics.get(&new.id).is_some()
            || self.deleted.get(&new.id).is_some()
            || self.names.get(&*new.name).is_some();
        if taken || !self.may_write(new.leader) {
            return;
        }
        let first = PartitionState {
            epoch: new.epoch,
            lineage: Lineage::first(new.leader, new.first_wal),
        };
        let topic = Topic {
            id: new.id,
            name: new.name.as_str().into(),
            replication_factor: new.replication_factor,
            configs: Arc::new(new.configs.clone()),
            partitions: Arc::new(vec![first; new.partitions as usize]),
            created: number,
        };
        self.restore_topic(topic);
    }

    /// Adds a topic that is known to be new.
    pub(crate) fn restore_topic(&mut self, topic: Topic) {
        self.partitions += topic.partitions.len() as u64;
        self.folded.insert(fold_name(&topic.name), topic.id);
        self.names.insert(Arc::clone(&topic.name), topic.id);
        self.topics.insert(topic.id, Arc::new(topic));
    }

    /// Replaces a topic that exists by what `change` makes of a copy.
    fn update_topic(&mut self, id: TopicId, change: impl FnOnce(&mut Topic)) {
        if let Some(topic) = self.topics.get(&id) {
            let mut topic = Topic::clone(topic);
            change(&mut topic);
            self.topics.insert(id, Arc::new(topic));
        }
    }

    fn add_partitions(&mut self, id: TopicId, total: u32, first: &PartitionState) {
        let Some(topic) = self.topics.get(&id) else {
            return;
        };
        let total = total as usize;
        let before = topic.partitions.len();
        if total <= before || !self.may_write(first.leader()) {
            return;
        }
        self.partitions += (total - before) as u64;
        self.update_topic(id, |topic| {
            Arc::make_mut(&mut topic.partitions).resize(total, first.clone());
        });
    }

    fn delete_topic(&mut self, id: TopicId) {
        if let Some(topic) = self.topics.remove(&id) {
            self.partitions -= topic.partitions.len() as u64;
            self.names.remove(&*topic.name);
            self.folded.remove(&*fold_name(&topic.name));
            self.deleted.insert(id, topic);
        }
    }

    fn set_topic_configs(&mut self, id: TopicId, updates: &BTreeMap<String, Option<String>>) {
        self.update_topic(id, |topic| {
            update_configs(Arc::make_mut(&mut topic.configs), updates);
        });
    }

    fn set_broker_configs(
        &mut self,
        node: Option<NodeId>,
        updates: &BTreeMap<String, Option<String>>,
    ) {
        let all = Arc::make_mut(&mut self.broker_configs);
        let configs = all.entry(node).or_default();
        update_configs(Arc::make_mut(configs), updates);
        if configs.is_empty() {
            all.remove(&node);
        }
    }

    fn start_tenure(&mut self, tenure: &StartedTenure) {
        let id = tenure.partition;
        let Some(current) = self.partition(id) else {
            return;
        };
        let step = i64::from(tenure.epoch.0) - i64::from(current.epoch.0);
        let Ok(step) = i32::try_from(step) else {
            return;
        };
        if step <= 0 || !self.may_write(tenure.writer) {
            return;
        }
        let lineage = Lineage::after(&current.lineage, tenure.writer, tenure.first_wal, step);
        let state = PartitionState {
            epoch: tenure.epoch,
            lineage,
        };
        self.update_topic(id.topic, |topic| {
            let index = usize::try_from(id.index).unwrap_or(usize::MAX);
            if let Some(slot) = Arc::make_mut(&mut topic.partitions).get_mut(index) {
                *slot = state;
            }
        });
    }

    fn inherit(&mut self, from: WriterId, to: WriterId, first_wal: u64) {
        let sealed = self.writer(from).is_some_and(|w| w.sealed.is_some());
        if !sealed || !self.may_write(to) {
            return;
        }
        let led: Vec<_> = self
            .topics()
            .filter(|topic| topic.partitions.iter().any(|p| p.leader() == from))
            .map(|topic| topic.id)
            .collect();
        // Partitions that shared their history share the next tenure, too.
        let mut heirs: BTreeMap<*const Lineage, Arc<Lineage>> = BTreeMap::new();
        for id in led {
            self.update_topic(id, |topic| {
                for state in Arc::make_mut(&mut topic.partitions) {
                    if state.leader() != from {
                        continue;
                    }
                    let heir = heirs
                        .entry(Arc::as_ptr(&state.lineage))
                        .or_insert_with(|| Lineage::after(&state.lineage, to, first_wal, 1));
                    state.lineage = Arc::clone(heir);
                    state.epoch = LeaderEpoch(state.epoch.0.saturating_add(1));
                }
            });
        }
    }
}

fn update_configs(configs: &mut Configs, updates: &BTreeMap<String, Option<String>>) {
    for (key, value) in updates {
        match value {
            Some(value) => configs.insert(key.clone(), value.clone()),
            None => configs.remove(key),
        };
    }
}
