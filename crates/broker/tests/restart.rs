//! What a restart must not change of topics: K58, K89.

mod common;

use std::collections::BTreeMap;

use common::{
    Client,
    admin::*,
    batch,
    stored::{restart_with, start_with},
    values,
};
use tidemill_broker::config::BrokerConfig;
use tidemill_wire::{
    ErrorCode,
    ids::TopicId,
    messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic},
};

async fn ids(client: &mut Client) -> BTreeMap<String, TopicId> {
    let topics = metadata(client, 12, None, false).await.topics.into_iter();
    let named = topics.map(|topic| (topic.name.expect("named").to_string(), topic.topic_id));
    named.collect()
}

#[tokio::test(start_paused = true)]
async fn k58_a_topic_keeps_its_id_over_restarts() {
    let mut h = start_with(BrokerConfig::default()).await;
    let created = BTreeMap::from([
        ("a".to_owned(), h.topic("a", 1).await),
        ("b".to_owned(), h.topic("b", 3).await),
    ]);
    assert!(created.values().all(|id| *id != TopicId::ZERO));
    for _ in 0..3 {
        h = restart_with(&h, BrokerConfig::default()).await;
        assert_eq!(ids(&mut h.connect()).await, created);
    }
    let other = h.topic("c", 1).await;
    assert!(
        created.values().all(|id| *id != other),
        "none is given again"
    );
}

/// What was set of a topic: key, value.
async fn set(client: &mut Client) -> Vec<(String, String)> {
    let own = describe(client, 2, "t").await.into_iter();
    // DYNAMIC_TOPIC_CONFIG
    let own = own.filter(|config| config.config_source == 1);
    let told = own.map(|config| {
        let value = config.value.expect("not sensitive");
        (config.name.to_string(), value.to_string())
    });
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn k89_create_partitions_and_a_restart_keep_all_configs() {
    let h = start_with(BrokerConfig::default()).await;
    let mut client = h.connect();
    let given = [
        ("retention.ms", Some("123456")),
        // The default counts as set, too.
        ("max.message.bytes", Some("1048588")),
    ];
    create(&mut client, vec![creatable("t", 1, &given)]).await;
    let changes = [("segment.bytes", 0, "2000000"), ("flush.ms", 0, "7")];
    assert_eq!(alter(&mut client, 2, "t", &changes).await, 0);
    let before = set(&mut client).await;
    assert_eq!(before.len(), 4, "{before:?}");
    let topic = CreatePartitionsTopic {
        name: text("t"),
        count: 3,
        assignments: None,
    };
    let request = CreatePartitionsRequest {
        topics: vec![topic],
        timeout_ms: 5_000,
        validate_only: false,
    };
    let added = client.call(3, &request).await;
    assert_eq!(added.results[0].error_code, ErrorCode::NONE);
    assert_eq!(set(&mut client).await, before);
    let h = restart_with(&h, BrokerConfig::default()).await;
    let mut client = h.connect();
    assert_eq!(set(&mut client).await, before);
    // They are in force for old partitions and new ones, not merely told.
    for partition in h.log.partitions() {
        assert_eq!(partition.config().retention_ms, 123_456);
    }
    for index in 0..3 {
        let produced = client.produce("t", index, batch(&["a"])).await;
        assert_eq!(produced.error_code, ErrorCode::NONE);
        assert_eq!(values(&client.fetch("t", index, 0).await), ["a"]);
    }
}
