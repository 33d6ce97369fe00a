//! Metadata, creating, growing and deleting topics: K53-K60, K90-K92, F31.

mod common;

use common::{Client, NOW_MS, admin::*, batch, start, start_with, values};
use tidemill_broker::config::BrokerConfig;
use tidemill_runtime::Runtime;
use tidemill_wire::{
    ErrorCode,
    ids::TopicId,
    messages::{
        create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic},
        create_topics::{CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest},
        delete_topics::{DeleteTopicState, DeleteTopicsRequest},
        metadata::{MetadataRequestTopic, MetadataResponse},
    },
};

#[tokio::test(start_paused = true)]
async fn k53_null_is_all_and_empty_is_none() {
    let h = start().await;
    h.topic("b", 1).await;
    h.topic("a", 2).await;
    let mut client = h.connect();
    let names = |response: MetadataResponse| -> Vec<String> {
        response
            .topics
            .into_iter()
            .filter_map(|topic| topic.name)
            .map(String::from)
            .collect()
    };
    assert_eq!(
        names(metadata(&mut client, 0, Some(Vec::new()), true).await),
        ["a", "b"]
    );
    for version in 1..=13 {
        assert_eq!(
            names(metadata(&mut client, version, None, true).await),
            ["a", "b"]
        );
        let none = metadata(&mut client, version, Some(Vec::new()), true).await;
        assert!(none.topics.is_empty());
        assert_eq!(none.controller_id, 1);
        assert_eq!((none.brokers[0].node_id, none.brokers[0].port), (1, 9092));
        assert_eq!(none.brokers[0].host, *"127.0.0.1");
        if version >= 2 {
            assert_eq!(none.cluster_id.as_deref(), Some("wcHBwcHBwcHBwcHBwcHBwQ"));
        }
    }
}

/// Otherwise a few bytes would cost the topic's partitions each time.
#[tokio::test(start_paused = true)]
async fn a_topic_named_again_and_again_is_described_once() {
    let h = start().await;
    h.topic("t", 2).await;
    let mut client = h.connect();
    for version in 4..=13 {
        let names = asked(&["t", "none", "t", "none", "t"]);
        let response = metadata(&mut client, version, names, false).await;
        assert_eq!(response.topics.len(), 2, "version {version}");
        assert_eq!(response.topics[0].partitions.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn k53_k54_unknown_topics() {
    let h = start().await;
    let mut client = h.connect();
    let response = metadata(&mut client, 9, asked(&["new", "bad/name"]), false).await;
    let codes: Vec<_> = response
        .topics
        .iter()
        .map(|topic| topic.error_code.0)
        .collect();
    assert_eq!(codes, [3, 17]);
    let response = metadata(&mut client, 9, asked(&["new", "bad/name", ".."]), true).await;
    let codes: Vec<_> = response
        .topics
        .iter()
        .map(|topic| topic.error_code.0)
        .collect();
    assert_eq!(codes, [0, 17, 17]);
    assert_eq!(
        client.produce("new", 0, batch(&["a"])).await.error_code,
        ErrorCode::NONE
    );
    let by_id = vec![MetadataRequestTopic {
        topic_id: TopicId([9; 16]),
        name: None,
    }];
    let response = metadata(&mut client, 12, Some(by_id), true).await;
    let topic = &response.topics[0];
    assert_eq!(
        (topic.error_code, &topic.name),
        (ErrorCode::UNKNOWN_TOPIC_ID, &None)
    );
}

#[tokio::test(start_paused = true)]
async fn k55_k58_a_created_topic_can_be_used_at_once() {
    let h = start().await;
    let mut client = h.connect();
    let result = create(&mut client, vec![creatable("t", 3, &[])])
        .await
        .remove(0);
    assert_eq!(result.error_code, ErrorCode::NONE);
    let response = metadata(&mut client, 12, asked(&["t"]), false).await;
    let topic = &response.topics[0];
    assert_eq!(
        (topic.topic_id, topic.partitions.len()),
        (result.topic_id, 3)
    );
    assert_ne!(topic.topic_id, TopicId::ZERO);
    for partition in &topic.partitions {
        assert_eq!((partition.leader_id, partition.leader_epoch), (1, 0), "K21");
        assert_eq!(
            (&partition.replica_nodes, &partition.isr_nodes),
            (&vec![1], &vec![1])
        );
        let index = partition.partition_index;
        assert_eq!(
            client.produce("t", index, batch(&["a"])).await.error_code,
            ErrorCode::NONE
        );
        assert_eq!(values(&client.fetch("t", index, 0).await), ["a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn k59_defaults_echo_and_refusals() {
    let h = start().await;
    let mut client = h.connect();
    let topics = vec![
        creatable("default", -1, &[("retention.ms", None)]),
        CreatableTopic {
            replication_factor: 3,
            ..creatable("three", 2, &[])
        },
        creatable("none", 0, &[]),
        creatable("minus", -2, &[]),
        CreatableTopic {
            replication_factor: 0,
            ..creatable("rf0", 1, &[])
        },
        CreatableTopic {
            replication_factor: -2,
            ..creatable("rf-2", 1, &[])
        },
    ];
    let results = create(&mut client, topics.clone()).await;
    let codes: Vec<_> = results.iter().map(|result| result.error_code.0).collect();
    assert_eq!(codes, [0, 0, 37, 37, 38, 38]);
    assert_eq!(
        (results[0].num_partitions, results[0].replication_factor),
        (1, 1)
    );
    assert_eq!(
        (results[1].num_partitions, results[1].replication_factor),
        (2, 3)
    );
    let configs = results[0].configs.as_ref().expect("v5+");
    assert!(configs.iter().any(|config| config.name == *"retention.ms"));
    let again = create(&mut client, topics[..1].to_vec()).await;
    assert_eq!(again[0].error_code, ErrorCode::TOPIC_ALREADY_EXISTS);
    // Explicit assignments: this cluster's broker only, partitions 0 to n - 1.
    let assigned = |brokers: &[&[i32]]| {
        let parts =
            (0..)
                .zip(brokers)
                .map(|(partition_index, broker_ids)| CreatableReplicaAssignment {
                    partition_index,
                    broker_ids: broker_ids.to_vec(),
                });
        CreatableTopic {
            assignments: parts.collect(),
            ..creatable("assigned", -1, &[])
        }
    };
    for (brokers, code) in [(&[&[1][..], &[2]][..], 39), (&[&[1], &[1]], 0)] {
        assert_eq!(
            create(&mut client, vec![assigned(brokers)]).await[0]
                .error_code
                .0,
            code
        );
    }
}

#[tokio::test(start_paused = true)]
async fn k59_validate_only_creates_nothing() {
    let h = start().await;
    let mut client = h.connect();
    let request = CreateTopicsRequest {
        topics: vec![creatable("t", 4, &[]), creatable("bad name", 1, &[])],
        validate_only: true,
        ..CreateTopicsRequest::default()
    };
    let topics = client.call(7, &request).await.topics;
    assert_eq!((topics[0].error_code.0, topics[0].num_partitions), (0, 4));
    assert_eq!(
        topics[0].topic_id,
        TopicId::ZERO,
        "what is not there has none"
    );
    assert_eq!(topics[1].error_code.0, 17);
    assert!(
        metadata(&mut client, 9, None, false)
            .await
            .topics
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn k90_configurations_at_creation() {
    let h = start().await;
    let mut client = h.connect();
    let good = [
        ("min.insync.replicas", Some("2")),
        ("flush.messages", Some("1")),
        ("unclean.leader.election.enable", Some("true")),
        ("leader.replication.throttled.replicas", Some("*")),
        ("retention.ms", Some(" 1000 ")),
    ];
    assert_eq!(
        create(&mut client, vec![creatable("good", 1, &good)]).await[0]
            .error_code
            .0,
        0
    );
    let bad = [
        ("no.such.key", "1"),
        ("cleanup.policy", "Compact"),
        ("segment.bytes", "10"),
        ("compression.type", "ZSTD"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "compact"),
    ];
    for (key, value) in bad {
        let topic = creatable("bad", 1, &[(key, Some(value))]);
        let result = create(&mut client, vec![topic]).await.remove(0);
        assert_eq!(result.error_code, ErrorCode::INVALID_CONFIG, "{key}");
        assert!(result.error_message.expect("a reason").contains(key));
    }
    let response = metadata(&mut client, 9, asked(&["bad"]), false).await;
    assert_eq!(response.topics[0].error_code.0, 3);
}

#[tokio::test(start_paused = true)]
async fn k91_names() {
    let h = start().await;
    let mut client = h.connect();
    let long = "x".repeat(250);
    for name in ["", ".", "..", &long, " ", "ü", "a/b"] {
        let result = create(&mut client, vec![creatable(name, 1, &[])])
            .await
            .remove(0);
        assert_eq!(
            result.error_code,
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            "{name:?}"
        );
    }
    let pair = vec![creatable("m.n_o", 1, &[]), creatable("m_n.o", 1, &[])];
    let results = create(&mut client, pair).await;
    assert_eq!((results[0].error_code.0, results[1].error_code.0), (0, 17));
    let twice = vec![
        creatable("t", 1, &[]),
        creatable("u", 1, &[]),
        creatable("t", 1, &[]),
    ];
    let results = create(&mut client, twice).await;
    let codes: Vec<_> = results
        .iter()
        .map(|r| (r.name.as_str(), r.error_code.0))
        .collect();
    assert_eq!(codes, [("t", 42), ("u", 0)]);
}

/// Partitions count for the request, by whatever they were asked for; what is sound beside too much
/// is too much as well.
#[tokio::test(start_paused = true)]
async fn k92_of_a_refused_request_nothing_is_created() {
    let config = BrokerConfig {
        num_partitions: 6_000,
        ..BrokerConfig::default()
    };
    let h = start_with(Runtime::simulated(1, NOW_MS), config).await;
    let mut client = h.connect();
    let few = || creatable("few", 1, &[]);
    let assigned = |name: &str, partitions, broker| {
        let assignment = |partition_index| CreatableReplicaAssignment {
            partition_index,
            broker_ids: vec![broker],
        };
        CreatableTopic {
            assignments: (0..partitions).map(assignment).collect(),
            ..creatable(name, -1, &[])
        }
    };
    let requests = [
        vec![creatable("many", 10_001, &[]), few()],
        vec![creatable("many", i32::MAX, &[]), few()],
        vec![
            creatable("half", 6_000, &[]),
            creatable("other", 6_000, &[]),
        ],
        vec![creatable("half", 6_000, &[]), creatable("default", -1, &[])],
        vec![creatable("bad/name", 10_000, &[]), few()],
        vec![
            creatable("bad", 10_000, &[("no.such.key", Some("1"))]),
            few(),
        ],
        vec![assigned("assigned", 10_000, 1), few()],
        vec![assigned("elsewhere", 10_000, 9), few()],
        vec![few(), assigned("million", 1_000_000, 1)],
        vec![few(), assigned("__consumer_offsets", 1_000_000, 1)],
    ];
    for topics in requests {
        let name = topics[0].name.clone();
        for result in create(&mut client, topics).await {
            assert_eq!(result.error_code, ErrorCode::POLICY_VIOLATION, "{name}");
        }
        let all = metadata(&mut client, 9, None, false).await;
        assert!(all.topics.is_empty(), "{name}");
    }
    // What is refused for itself takes no room, nor does a name given twice.
    let most = vec![
        creatable("most", 9_999, &[]),
        creatable("none", 0, &[]),
        creatable("minus", i32::MIN, &[]),
        creatable("twice", 9_999, &[]),
        creatable("twice", 9_999, &[]),
        few(),
    ];
    let results = create(&mut client, most).await;
    let codes: Vec<_> = results.iter().map(|result| result.error_code.0).collect();
    assert_eq!(codes, [0, 37, 37, 42, 0]);
}

#[tokio::test(start_paused = true)]
async fn k60_create_partitions() {
    let h = start().await;
    h.topic("t", 2).await;
    let mut client = h.connect();
    let mut add = async |name: &str, count, validate_only| {
        let topic = CreatePartitionsTopic {
            name: text(name),
            count,
            assignments: None,
        };
        let request = CreatePartitionsRequest {
            topics: vec![topic],
            timeout_ms: 5_000,
            validate_only,
        };
        let results = client.call(3, &request).await.results;
        assert_eq!(results.len(), 1);
        results[0].error_code.0
    };
    assert_eq!(add("t", 4, true).await, 0);
    assert_eq!(add("t", 2, false).await, 37);
    assert_eq!(add("t", 1, false).await, 37);
    assert_eq!(add("nowhere", 4, false).await, 3);
    assert_eq!(add("t", 20_000, false).await, 44);
    assert_eq!(add("t", 4, false).await, 0);
    let mut client = h.connect();
    assert_eq!(
        client.produce("t", 3, batch(&["a"])).await.error_code,
        ErrorCode::NONE
    );
    assert_eq!(values(&client.fetch("t", 3, 0).await), ["a"]);
}

/// Each topic is decided by itself, but for the number of partitions, which counts for the request.
#[tokio::test(start_paused = true)]
async fn k60_k92_several_topics_grow_in_one_request() {
    let h = start().await;
    for name in ["a", "b", "c"] {
        h.topic(name, 1).await;
    }
    let mut client = h.connect();
    let mut add = async |wanted: &[(&str, i32)], validate_only| {
        let topic = |(name, count): &(&str, i32)| CreatePartitionsTopic {
            name: text(name),
            count: *count,
            assignments: None,
        };
        let request = CreatePartitionsRequest {
            topics: wanted.iter().map(topic).collect(),
            timeout_ms: 5_000,
            validate_only,
        };
        let results = client.call(3, &request).await.results;
        let told = results.iter().map(|r| (r.name.to_string(), r.error_code.0));
        told.collect::<Vec<_>>()
    };
    let told = |codes: &[(&str, i16)]| -> Vec<(String, i16)> {
        let one = |(name, code): &(&str, i16)| ((*name).to_owned(), *code);
        codes.iter().map(one).collect()
    };
    for validate_only in [true, false] {
        let many = [("a", 6_001), ("b", 4_002), ("c", 2)];
        let refused = told(&[("a", 44), ("b", 44), ("c", 44)]);
        assert_eq!(add(&many, validate_only).await, refused);
        // One that is named twice takes nobody with it, and is answered once.
        let twice = [("a", 2), ("b", 3), ("a", 3), ("nowhere", 2), ("c", 1)];
        let answers = told(&[("a", 42), ("b", 0), ("nowhere", 3), ("c", 37)]);
        assert_eq!(add(&twice, validate_only).await, answers);
    }
    let image = h.cluster.image();
    let count = |name: &str| {
        image
            .topic_by_name(name)
            .map(|topic| topic.partitions.len())
    };
    assert_eq!(["a", "b", "c"].map(count), [Some(1), Some(3), Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn k60_f31_delete_topics() {
    let h = start().await;
    let id = h.topic("t", 1).await;
    let other = h.topic("other", 1).await;
    let mut client = h.connect();
    assert_eq!(
        client.produce("t", 0, batch(&["old"])).await.error_code,
        ErrorCode::NONE
    );
    let request = DeleteTopicsRequest {
        topic_names: vec![text("t"), text("nowhere"), text("t")],
        timeout_ms: 5_000,
        ..DeleteTopicsRequest::default()
    };
    let responses = client.call(5, &request).await.responses;
    let codes: Vec<_> = responses
        .iter()
        .map(|response| response.error_code.0)
        .collect();
    assert_eq!(codes, [0, 3, 42]);
    let states = [
        (None, other),
        (None, TopicId([9; 16])),
        (None, TopicId::ZERO),
    ];
    let states = states.map(|(name, topic_id)| DeleteTopicState { name, topic_id });
    let request = DeleteTopicsRequest {
        topics: states.to_vec(),
        timeout_ms: 5_000,
        ..DeleteTopicsRequest::default()
    };
    let responses = client.call(6, &request).await.responses;
    let codes: Vec<_> = responses
        .iter()
        .map(|response| response.error_code.0)
        .collect();
    assert_eq!(codes, [0, 100, 42]);
    assert_eq!(responses[0].name.as_deref(), Some("other"));
    assert_eq!(client.produce("t", 0, batch(&["x"])).await.error_code.0, 3);
    assert_ne!(h.topic("t", 1).await, id);
    let data = client.fetch("t", 0, 0).await;
    assert_eq!(
        (data.high_watermark, values(&data).len()),
        (0, 0),
        "none of the old data"
    );
}

#[tokio::test(start_paused = true)]
async fn k54_what_may_not_be_created_is_unknown_in_every_version() {
    let refusing = BrokerConfig {
        auto_create_topics: false,
        ..BrokerConfig::default()
    };
    let h = start_with(Runtime::simulated(1, NOW_MS), refusing).await;
    let mut client = h.connect();
    for version in 0..=13 {
        let found = metadata(&mut client, version, asked(&["new"]), true).await;
        let code = found.topics[0].error_code;
        assert_eq!(code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "{version}");
    }
    assert!(metadata(&mut client, 9, None, true).await.topics.is_empty());
    // Before version 4 a request cannot say that it does not want it.
    let h = start().await;
    let mut client = h.connect();
    for version in 0..=13 {
        let name = format!("new-{version}");
        let found = metadata(&mut client, version, asked(&[&name]), version < 4).await;
        let code = found.topics[0].error_code.0;
        assert_eq!(code, if version < 4 { 0 } else { 3 }, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn k91_nothing_is_created_by_itself_that_would_collide() {
    let h = start().await;
    h.topic("a.b", 1).await;
    let mut client = h.connect();
    for version in [1, 9, 13] {
        let found = metadata(&mut client, version, asked(&["a_b"]), true).await;
        let code = found.topics[0].error_code;
        assert_eq!(code, ErrorCode::INVALID_TOPIC_EXCEPTION, "{version}");
    }
    // Neither is the second of two that are asked for at once.
    let found = metadata(&mut client, 9, asked(&["m.n_o", "m_n.o"]), true).await;
    let mut codes: Vec<_> = found
        .topics
        .iter()
        .map(|topic| topic.error_code.0)
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 17]);
    assert_eq!(metadata(&mut client, 9, None, false).await.topics.len(), 2);
}

/// C18: of those who want the same number one gets it, and what there is then can be used.
#[tokio::test(start_paused = true)]
async fn c18_of_parallel_create_partitions_one_wins() {
    let h = start().await;
    h.topic("t", 1).await;
    for (round, target) in [2, 5, 9, 30].into_iter().enumerate() {
        let mut clients: Vec<_> = (0..8).map(|_| h.connect()).collect();
        let add = async |client: &mut Client| {
            let topic = CreatePartitionsTopic {
                name: text("t"),
                count: target,
                assignments: None,
            };
            let request = CreatePartitionsRequest {
                topics: vec![topic],
                timeout_ms: 5_000,
                validate_only: false,
            };
            client.call(3, &request).await.results[0].error_code
        };
        let mut codes = futures_util::future::join_all(clients.iter_mut().map(add)).await;
        codes.sort_unstable();
        assert_eq!(codes.remove(0), ErrorCode::NONE, "one wins {target}");
        let lost = codes
            .iter()
            .all(|code| *code == ErrorCode::INVALID_PARTITIONS);
        assert!(lost, "{target}: {codes:?}");
        let client = &mut clients[0];
        for index in 0..target {
            let produced = client.produce("t", index, batch(&["a"])).await;
            assert_eq!(produced.error_code, ErrorCode::NONE, "partition {index}");
            let data = client.fetch("t", index, produced.base_offset).await;
            assert_eq!(values(&data), ["a"], "partition {index}");
        }
        let found = metadata(client, 9, asked(&["t"]), false).await;
        let indices = found.topics[0].partitions.iter();
        let mut indices: Vec<_> = indices.map(|part| part.partition_index).collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..target).collect::<Vec<_>>(), "round {round}");
    }
}
