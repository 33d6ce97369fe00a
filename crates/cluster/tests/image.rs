//! What entries make of the image.

mod common;

use std::collections::BTreeMap;

use common::{new_topic, registration, sealed, topic_id};
use proptest::prelude::*;
use tidemill_cluster::{Change, Image, format::StartedTenure, image::SharedMap};
use tidemill_wire::ids::{LeaderEpoch, PartitionId, WriterId};

fn started() -> Image {
    let mut image = Image::default();
    image.apply(&[Change::BrokerRegistered(registration(1))]);
    image
}

fn partition(n: u64, index: i32) -> PartitionId {
    PartitionId {
        topic: topic_id(n),
        index,
    }
}

#[test]
fn a_registration_gets_the_number_of_its_entry() {
    let mut image = started();
    image.apply(&[]);
    image.apply(&[Change::BrokerRegistered(registration(1))]);
    let ids: Vec<_> = image.writers().map(|writer| writer.id.0).collect();
    assert_eq!(ids, [1, 3]);
    assert_eq!(image.next(), 4);
}

#[test]
fn topics_are_found_by_name_and_id_and_collide_by_folded_name() {
    let mut image = started();
    image.apply(&[Change::TopicCreated(new_topic(1, "m.n_o", 3, WriterId(1)))]);
    assert_eq!(
        image.topic_by_name("m.n_o").map(|t| t.id),
        Some(topic_id(1))
    );
    assert_eq!(
        image.colliding_topic("m_n.o").map(|t| t.id),
        Some(topic_id(1))
    );
    assert!(image.topic_by_name("m_n.o").is_none());
    assert_eq!(image.partition_count(), 3);
    let topic = image.topic(topic_id(1)).expect("just created");
    assert_eq!(topic.replication_factor, 3);
    assert_eq!(
        topic.configs.get("retention.ms").map(String::as_str),
        Some("1000")
    );
}

#[test]
fn a_deleted_topic_is_kept_until_it_is_forgotten_and_its_name_is_free_at_once() {
    let mut image = started();
    image.apply(&[Change::TopicCreated(new_topic(1, "t", 2, WriterId(1)))]);
    image.apply(&[Change::TopicDeleted { topic: topic_id(1) }]);
    assert!(image.topic(topic_id(1)).is_none() && image.topic_by_name("t").is_none());
    assert_eq!(image.deleted_topics().count(), 1);
    assert_eq!(image.partition_count(), 0);
    image.apply(&[Change::TopicCreated(new_topic(2, "t", 1, WriterId(1)))]);
    assert_eq!(image.topic_by_name("t").map(|t| t.id), Some(topic_id(2)));
    // The old id never comes back.
    image.apply(&[Change::TopicCreated(new_topic(1, "other", 1, WriterId(1)))]);
    assert!(image.topic_by_name("other").is_none());
    image.apply(&[Change::TopicForgotten { topic: topic_id(1) }]);
    assert_eq!(image.deleted_topics().count(), 0);
}

#[test]
fn what_gives_a_partition_to_a_sealed_writer_is_void() {
    let mut image = started();
    image.apply(&[Change::TopicCreated(new_topic(1, "t", 2, WriterId(1)))]);
    image.apply(&[sealed(WriterId(1))]);
    image.apply(&[
        Change::TopicCreated(new_topic(2, "u", 2, WriterId(1))),
        Change::PartitionsAdded {
            topic: topic_id(1),
            total: 5,
            leader: WriterId(1),
            epoch: LeaderEpoch(0),
            first_wal: 0,
        },
        Change::TenuresStarted(vec![StartedTenure {
            partition: partition(1, 0),
            epoch: LeaderEpoch(9),
            writer: WriterId(1),
            first_wal: 0,
        }]),
        Change::TenuresInherited {
            from: WriterId(1),
            to: WriterId(77),
            first_wal: 0,
        },
    ]);
    assert!(image.topic_by_name("u").is_none());
    let topic = image.topic(topic_id(1)).expect("exists");
    assert_eq!(topic.partitions.len(), 2);
    assert_eq!(topic.partitions[0].epoch, LeaderEpoch(0));
    assert_eq!(topic.partitions[0].leader(), WriterId(1));
}

#[test]
fn the_first_to_seal_a_writer_wins() {
    let mut image = started();
    image.apply(&[sealed(WriterId(1))]);
    let first = image.writer(WriterId(1)).and_then(|w| w.sealed);
    let Change::WriterSealed { writer, mut closed } = sealed(WriterId(1)) else {
        unreachable!("made above");
    };
    closed.checkpoint = 99;
    image.apply(&[Change::WriterSealed { writer, closed }]);
    assert_eq!(image.writer(WriterId(1)).and_then(|w| w.sealed), first);
}

#[test]
fn inheriting_gives_every_partition_the_next_epoch() {
    let mut image = started();
    image.apply(&[Change::TopicCreated(new_topic(1, "t", 2, WriterId(1)))]);
    image.apply(&[Change::TenuresStarted(vec![StartedTenure {
        partition: partition(1, 1),
        epoch: LeaderEpoch(5),
        writer: WriterId(1),
        first_wal: 8,
    }])]);
    image.apply(&[Change::BrokerRegistered(registration(1))]);
    let heir = WriterId(image.next() - 1);
    image.apply(&[
        sealed(WriterId(1)),
        Change::TenuresInherited {
            from: WriterId(1),
            to: heir,
            first_wal: 1,
        },
    ]);
    let tenures: Vec<_> = [0, 1]
        .map(|index| image.partition(partition(1, index)).expect("exists"))
        .map(|state| {
            state
                .tenures()
                .map(|t| (t.epoch.0, t.writer.0, t.first_wal))
                .collect()
        })
        .into_iter()
        .collect::<Vec<Vec<_>>>();
    assert_eq!(tenures[0], [(1, heir.0, 1), (0, 1, 1)]);
    assert_eq!(tenures[1], [(6, heir.0, 1), (5, 1, 8), (0, 1, 1)]);
    assert_eq!(image.partitions_led_by(heir).count(), 2);
    assert_eq!(image.partitions_led_by(WriterId(1)).count(), 0);
}

#[test]
fn configurations_are_set_and_removed() {
    let mut image = started();
    image.apply(&[Change::TopicCreated(new_topic(1, "t", 1, WriterId(1)))]);
    let before = image.clone();
    let configs = BTreeMap::from([
        ("retention.ms".to_owned(), None),
        ("retention.bytes".to_owned(), Some("7".to_owned())),
    ]);
    image.apply(&[Change::TopicConfigsSet {
        topic: topic_id(1),
        configs: configs.clone(),
    }]);
    image.apply(&[Change::BrokerConfigsSet {
        node: None,
        configs,
    }]);
    let of = |image: &Image| image.topic(topic_id(1)).map(|t| t.configs.clone());
    let expected = BTreeMap::from([("retention.bytes".to_owned(), "7".to_owned())]);
    assert_eq!(of(&image).as_deref(), Some(&expected));
    assert_eq!(*image.broker_configs(None), expected);
    // The image before is as it was.
    assert!(of(&before).is_some_and(|configs| configs.contains_key("retention.ms")));
}

#[test]
fn a_long_history_of_restarts_is_dropped_without_recursion() {
    let mut image = started();
    image.apply(&[Change::TopicCreated(new_topic(1, "t", 1, WriterId(1)))]);
    let mut from = WriterId(1);
    for _ in 0..100_000 {
        let to = WriterId(image.next());
        image.apply(&[
            Change::BrokerRegistered(registration(1)),
            sealed(from),
            Change::TenuresInherited {
                from,
                to,
                first_wal: 1,
            },
        ]);
        from = to;
    }
    let state = image.partition(partition(1, 0)).expect("exists");
    assert_eq!(state.tenures().count(), 100_001);
    drop(image);
}

proptest! {
    #[test]
    fn a_shared_map_is_a_map(
        operations in prop::collection::vec((any::<bool>(), 0u16..600, any::<u8>()), 0..1_500),
    ) {
        let mut map = SharedMap::default();
        let mut model = BTreeMap::new();
        let mut kept = Vec::new();
        for (at, (insert, key, value)) in operations.into_iter().enumerate() {
            if insert {
                map.insert(key, value);
                model.insert(key, value);
            } else {
                prop_assert_eq!(map.remove(&key), model.remove(&key));
            }
            prop_assert_eq!(map.get(&key), model.get(&key));
            if at % 200 == 0 {
                kept.push((map.clone(), model.clone()));
            }
        }
        kept.push((map, model));
        for (map, model) in kept {
            prop_assert_eq!(map.len(), model.len());
            prop_assert!(map.iter().eq(model.iter()));
        }
    }
}
