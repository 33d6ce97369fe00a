//! The administrator: topics come and go, log starts move.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use tidemill_cluster::{Change, format::NewTopic};
use tidemill_log::{Entry, Latency};
use tidemill_runtime::Entropy;
use tidemill_wire::ids::{LeaderEpoch, Offset, TopicId};

use crate::{
    broker::Broker,
    check::short,
    world::{KnownTopic, World},
};

/// Topics that exist at once.
const TOPICS_MAX: usize = 3;

/// Works until the world stops.
pub async fn administrate(world: Arc<World>) {
    let entropy = world.fork();
    let mut created = 0;
    while !world.stopping() {
        let Some(broker) = world.broker() else {
            world.sleep_ms(200).await;
            continue;
        };
        let dice = entropy.below(10);
        if world.topics().is_empty() || (dice < 2 && world.topics().len() < TOPICS_MAX) {
            // Two names only, so that names are used again.
            let name = format!("t{}", created % 2);
            created += 1;
            create(&world, &broker, &entropy, name).await;
        } else if dice == 2 && created > 1 {
            delete(&world, &broker, &entropy).await;
        } else if dice < 5 {
            delete_records(&world, &broker, &entropy).await;
        }
        world.sleep_ms(1_000 + entropy.below(8_000)).await;
    }
}

async fn create(world: &Arc<World>, broker: &Arc<Broker>, entropy: &Entropy, name: String) {
    let id = TopicId(entropy.uuid());
    let partitions = 1 + u32::try_from(entropy.below(3)).unwrap_or(0);
    let mut configs = BTreeMap::new();
    if entropy.chance(0.3) {
        configs.insert("retention.bytes".to_owned(), "4000".to_owned());
    }
    if entropy.chance(0.2) {
        configs.insert("retention.ms".to_owned(), "40000".to_owned());
    }
    let cluster = &broker.started.cluster;
    let topic = NewTopic {
        id,
        name: name.clone(),
        partitions,
        replication_factor: 1,
        configs,
        leader: cluster.writer(),
        epoch: LeaderEpoch(0),
        first_wal: 1,
    };
    let decide = move |image: &tidemill_cluster::Image| {
        let taken = image.topic_by_name(&topic.name).is_some();
        let changes = match taken {
            true => Vec::new(),
            false => vec![Change::TopicCreated(topic.clone())],
        };
        Ok::<_, Infallible>(changes)
    };
    let Ok(image) = cluster.commit(decide).await else {
        return;
    };
    if image.topic(id).is_none() {
        return;
    }
    broker.started.leadership.reconcile();
    world.note(&format!(
        "topic {name} created as {id} with {partitions} partitions"
    ));
    world.add_topic(KnownTopic {
        id,
        name,
        partitions: i32::try_from(partitions).unwrap_or(1),
    });
}

async fn delete(world: &Arc<World>, broker: &Arc<Broker>, entropy: &Entropy) {
    let topics = world.topics();
    let pick = usize::try_from(entropy.below(topics.len() as u64)).unwrap_or(0);
    let Some(topic) = topics.get(pick) else {
        return;
    };
    let id = topic.id;
    let decide = move |image: &tidemill_cluster::Image| {
        let exists = image.topic(id).is_some();
        let changes = exists.then_some(Change::TopicDeleted { topic: id });
        Ok::<_, Infallible>(changes.into_iter().collect())
    };
    // From here on its outcome may be unknown: nobody is to rely on the topic.
    world.remove_topic(id);
    world.note(&format!("topic {} ({id}) is being deleted", topic.name));
    if broker.started.cluster.commit(decide).await.is_ok() {
        broker.started.leadership.reconcile();
    }
}

async fn delete_records(world: &Arc<World>, broker: &Arc<Broker>, entropy: &Entropy) {
    let Some(id) = world.any_partition(entropy) else {
        return;
    };
    let Some(partition) = broker.started.log.partition(id) else {
        return;
    };
    let (start, high) = (partition.log_start().0, partition.high_watermark().0);
    let span = u64::try_from(high - start).unwrap_or(0);
    let to = start + i64::try_from(entropy.below(span / 2 + 1)).unwrap_or(0);
    let entry = Entry::log_start(id, Offset(to), Latency::Low);
    let Ok(appended) = broker.started.log.append(entry) else {
        return;
    };
    world.note(&format!("log start of {} to {to}", short(id)));
    for part in appended {
        if part.wait().await.is_ok() {
            world.note(&format!("log start of {} is {to}", short(id)));
        }
    }
}
