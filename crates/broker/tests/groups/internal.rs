//! K84: a topic of the broker's own is what its owner needs, whoever names it first.

use std::{sync::Arc, time::Duration};

use tidemill_broker::config::{BrokerConfig, Host, Layer, Settings};
use tidemill_cluster::{Change, format::NewTopic};
use tidemill_log::roll::{Roll, SoleLeader};
use tidemill_wire::{
    ErrorCode,
    ids::{LeaderEpoch, TopicId},
};

use crate::{
    client::*,
    common::{
        Harness,
        admin::{alter, asked, config as config_of, creatable, create, metadata},
    },
};

const TOPIC: &str = "__consumer_offsets";

/// Everything that users put into topics goes after five seconds, and topics get three partitions.
fn forgetful() -> BrokerConfig {
    let host = Host {
        memory_bytes: 1 << 30,
    };
    let flags = Layer::flags(["log.retention.ms=5000", "num.partitions=3"]).expect("well-formed");
    let settings = Settings::new(&[flags], host).expect("known settings");
    BrokerConfig {
        groups: config().groups,
        ..BrokerConfig::new(settings).expect("they fit")
    }
}

/// A commit is acknowledged, rolled, looked at by retention, and asked for after a restart.
async fn a_commit_stays(h: &Harness) {
    let mut client = h.connect();
    assert_eq!(commit(&mut client, "g", &[(0, 9)]).await, ErrorCode::NONE);
    let roll = Roll::start(h.log.clone(), Arc::new(SoleLeader));
    roll.round().await.expect("a healthy store");
    // Retention looks every five minutes, and what it lets go is gone with the next round.
    h.sleep(Duration::from_secs(700)).await;
    roll.round().await.expect("a healthy store");
    let h = restart_with(h, forgetful()).await;
    let found = committed(&mut h.connect(), "g", 0).await.committed_offset;
    assert_eq!(found, 9, "an acknowledged commit");
}

#[tokio::test(start_paused = true)]
async fn k84_the_topic_that_create_topics_made_loses_no_commit() {
    let h = start_with(forgetful()).await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let asked = [
        ("retention.ms", Some("5000")),
        ("cleanup.policy", Some("compact")),
    ];
    let made = create(&mut client, vec![creatable(TOPIC, 7, &asked)]).await;
    assert_eq!(made[0].error_code, ErrorCode::NONE);
    assert_eq!(made[0].num_partitions, 1, "as the coordinator needs it");
    let told = made[0].configs.as_deref().unwrap_or_default();
    let told = told.iter().find(|config| config.name == *"retention.ms");
    assert_eq!(
        told.and_then(|config| config.value.clone()),
        Some(text("-1"))
    );
    a_commit_stays(&h).await;
}

#[tokio::test(start_paused = true)]
async fn k84_the_topic_that_metadata_made_loses_no_commit() {
    let h = start_with(forgetful()).await;
    h.topic("t", 1).await;
    let made = metadata(&mut h.connect(), 9, asked(&[TOPIC]), true).await;
    assert_eq!(made.topics[0].error_code, ErrorCode::NONE);
    assert!(made.topics[0].is_internal);
    assert_eq!(made.topics[0].partitions.len(), 1);
    a_commit_stays(&h).await;
}

/// One that was made with the users' defaults, before it was known to harm, keeps what it has; so
/// does any when the broker's retention is changed while it runs.
#[tokio::test(start_paused = true)]
async fn k84_no_retention_of_the_brokers_reaches_the_topic() {
    let h = start_with(forgetful()).await;
    h.topic("t", 1).await;
    let (leader, first_wal) = (h.log.writer(), h.log.next_number());
    let create = move |_: &_| {
        Ok::<_, std::convert::Infallible>(vec![Change::TopicCreated(NewTopic {
            id: TopicId([7; 16]),
            name: TOPIC.to_owned(),
            partitions: 3,
            replication_factor: 1,
            configs: [("retention.ms".to_owned(), "5000".to_owned())].into(),
            leader,
            epoch: LeaderEpoch(0),
            first_wal,
        })])
    };
    h.cluster.commit(create).await.expect("a healthy store");
    let set = [("log.retention.ms", 0, "1000")];
    let mut client = h.connect();
    assert_eq!(alter(&mut client, 4, "", &set).await, 0);
    let told = config_of(&mut client, TOPIC, "retention.ms").await;
    assert_eq!(told.value, Some(text("-1")), "what is in force");
    a_commit_stays(&h).await;
}

/// Made with settings that nobody chose, they would meet their owner when it comes.
#[tokio::test(start_paused = true)]
async fn k84_topics_whose_owner_is_to_come_are_nobodys_to_create() {
    let h = start().await;
    let mut client = h.connect();
    for name in [
        "__transaction_state",
        "__share_group_state",
        "__schedules",
        "__runs",
    ] {
        let made = create(&mut client, vec![creatable(name, 1, &[])]).await;
        let code = made[0].error_code;
        assert_eq!(code, ErrorCode::INVALID_TOPIC_EXCEPTION, "{name}");
        let found = metadata(&mut client, 9, asked(&[name]), true).await;
        let code = found.topics[0].error_code;
        assert_eq!(code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "{name}");
    }
    let all = metadata(&mut client, 9, None, false).await;
    assert_eq!(all.topics.len(), 0);
}
