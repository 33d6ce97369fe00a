//! Metadata, topics, configurations, records: K53-K62, K80-K93 as far as they touch the broker.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{Client, Harness, batch, start, values};
use tidemill_wire::{
    ErrorCode, Str,
    ids::TopicId,
    messages::{
        alter_configs,
        create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic},
        create_topics::{
            CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreatableTopicResult,
            CreateTopicsRequest,
        },
        delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic},
        delete_topics::{DeleteTopicState, DeleteTopicsRequest},
        describe_cluster::DescribeClusterRequest,
        describe_configs::{
            DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
        },
        describe_log_dirs::DescribeLogDirsRequest,
        describe_topic_partitions::{DescribeTopicPartitionsRequest, TopicRequest},
        find_coordinator::FindCoordinatorRequest,
        incremental_alter_configs::{
            AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
        },
        join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse},
        list_offsets::{
            ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest,
            ListOffsetsTopic,
        },
        metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse},
        offset_for_leader_epoch::{
            OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
        },
        produce::ProduceRequest,
    },
};

fn text(text: &str) -> Str {
    Str::from(text.to_owned())
}

fn asked(names: &[&str]) -> Option<Vec<MetadataRequestTopic>> {
    let topic = |name: &&str| MetadataRequestTopic {
        name: Some(text(name)),
        ..Default::default()
    };
    Some(names.iter().map(topic).collect())
}

async fn metadata(
    client: &mut Client,
    version: i16,
    topics: Option<Vec<MetadataRequestTopic>>,
    create: bool,
) -> MetadataResponse {
    let request = MetadataRequest {
        topics,
        allow_auto_topic_creation: create,
        ..MetadataRequest::default()
    };
    client.call(version, &request).await
}

fn creatable(name: &str, partitions: i32, configs: &[(&str, Option<&str>)]) -> CreatableTopic {
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
        name: text(name),
        value: value.map(text),
    });
    CreatableTopic {
        name: text(name),
        num_partitions: partitions,
        replication_factor: -1,
        configs: configs.collect(),
        ..CreatableTopic::default()
    }
}

async fn create(client: &mut Client, topics: Vec<CreatableTopic>) -> Vec<CreatableTopicResult> {
    let request = CreateTopicsRequest {
        topics,
        ..CreateTopicsRequest::default()
    };
    client.call(7, &request).await.topics
}

async fn describe(client: &mut Client, kind: i8, name: &str) -> Vec<DescribeConfigsResourceResult> {
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: kind,
            resource_name: text(name),
            configuration_keys: None,
        }],
        include_synonyms: true,
        include_documentation: true,
    };
    let result = client.call(4, &request).await.results.remove(0);
    assert_eq!(result.error_code, ErrorCode::NONE);
    result.configs
}

async fn config(client: &mut Client, name: &str, key: &str) -> DescribeConfigsResourceResult {
    let configs = describe(client, 2, name).await;
    configs
        .into_iter()
        .find(|config| config.name == *key)
        .expect("known")
}

async fn alter(client: &mut Client, kind: i8, name: &str, changes: &[(&str, i8, &str)]) -> i16 {
    let configs = changes
        .iter()
        .map(|(key, operation, value)| AlterableConfig {
            name: text(key),
            config_operation: *operation,
            value: Some(text(value)),
        });
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: kind,
            resource_name: text(name),
            configs: configs.collect(),
        }],
        validate_only: false,
    };
    client.call(1, &request).await.responses[0].error_code.0
}

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
async fn k91_k92_names_and_numbers() {
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
    for many in [10_001, i32::MAX] {
        let topics = vec![creatable("many", many, &[]), creatable("few", 1, &[])];
        let results = create(&mut client, topics).await;
        assert_eq!(results[0].error_code, ErrorCode::POLICY_VIOLATION);
    }
    let half = vec![
        creatable("half", 6_000, &[]),
        creatable("other", 6_000, &[]),
    ];
    for result in create(&mut client, half).await {
        assert_eq!(result.error_code, ErrorCode::POLICY_VIOLATION);
    }
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
async fn k60_k81_delete_records() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    for value in ["a", "b", "c"] {
        client.produce("t", 0, batch(&[value])).await;
    }
    let mut delete = async |index, offset| {
        let partition = DeleteRecordsPartition {
            partition_index: index,
            offset,
        };
        let topic = DeleteRecordsTopic {
            name: text("t"),
            partitions: vec![partition],
        };
        let request = DeleteRecordsRequest {
            topics: vec![topic],
            timeout_ms: 5_000,
        };
        let response = client.call(2, &request).await;
        let part = &response.topics[0].partitions[0];
        (part.error_code.0, part.low_watermark)
    };
    assert_eq!(delete(0, 1).await, (0, 1));
    assert_eq!(delete(0, 0).await, (0, 1), "never back");
    assert_eq!(delete(0, 4).await, (1, -1));
    assert_eq!(delete(0, -2).await, (1, -1));
    assert_eq!(delete(7, 0).await, (3, -1));
    assert_eq!(delete(0, -1).await, (0, 3), "the high watermark");
    let mut client = h.connect();
    let data = client.fetch("t", 0, 2).await;
    assert_eq!(
        (data.error_code, data.log_start_offset),
        (ErrorCode::OFFSET_OUT_OF_RANGE, -1)
    );
    assert_eq!(client.fetch("t", 0, 3).await.log_start_offset, 3);
}

async fn offset(
    client: &mut Client,
    version: i16,
    timestamp: i64,
    isolation_level: i8,
) -> ListOffsetsPartitionResponse {
    let partition = ListOffsetsPartition {
        timestamp,
        ..ListOffsetsPartition::default()
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level,
        topics: vec![ListOffsetsTopic {
            name: text("t"),
            partitions: vec![partition],
        }],
        ..ListOffsetsRequest::default()
    };
    client
        .call(version, &request)
        .await
        .topics
        .remove(0)
        .partitions
        .remove(0)
}

async fn three_batches(h: &Harness) -> Client {
    h.topic("t", 1).await;
    let mut client = h.connect();
    for times in [[100, 50], [400, 200], [300, 300]] {
        let mut builder =
            tidemill_wire::batch::BatchBuilder::new(tidemill_wire::batch::Compression::Lz4);
        for time in times {
            builder
                .push(&common::record("v", common::NOW_MS + time))
                .expect("small");
        }
        let batch = builder.build().expect("a batch");
        assert_eq!(
            client.produce("t", 0, batch).await.error_code,
            ErrorCode::NONE
        );
    }
    client
}

#[tokio::test(start_paused = true)]
async fn k16_k17_k18_list_offsets() {
    let h = start().await;
    let mut client = three_batches(&h).await;
    for version in 1..=11 {
        let latest = offset(&mut client, version, -1, 0).await;
        assert_eq!((latest.offset, latest.timestamp), (6, -1));
        assert_eq!(latest.leader_epoch, if version >= 4 { 0 } else { -1 });
        assert_eq!(offset(&mut client, version, -2, 0).await.offset, 0);
        let found = offset(&mut client, version, common::NOW_MS + 150, 0).await;
        assert_eq!((found.offset, found.timestamp), (2, common::NOW_MS + 400));
        let found = offset(&mut client, version, common::NOW_MS + 401, 0).await;
        assert_eq!(
            (found.error_code.0, found.offset, found.timestamp),
            (0, -1, -1)
        );
        let special = [
            (-3, 7, 2),
            (-4, 8, 0),
            (-5, 9, -1),
            (-6, 11, -1),
            (-7, 99, -1),
        ];
        for (timestamp, from, expected) in special {
            let found = offset(&mut client, version, timestamp, 0).await;
            if version < from {
                assert_eq!(
                    found.error_code,
                    ErrorCode::UNSUPPORTED_VERSION,
                    "{timestamp}"
                );
            } else {
                assert_eq!(
                    (found.error_code.0, found.offset),
                    (0, expected),
                    "{timestamp}"
                );
            }
        }
    }
    assert_eq!(offset(&mut client, 2, -1, 1).await.offset, 6, "LSO");
}

#[tokio::test(start_paused = true)]
async fn k20_ends_of_leader_epochs() {
    let h = start().await;
    let mut client = three_batches(&h).await;
    for (epoch, expected) in [(0, (0, 6)), (1, (-1, -1)), (9, (-1, -1))] {
        let partition = OffsetForLeaderPartition {
            leader_epoch: epoch,
            ..OffsetForLeaderPartition::default()
        };
        let topic = OffsetForLeaderTopic {
            topic: text("t"),
            partitions: vec![partition],
        };
        let request = OffsetForLeaderEpochRequest {
            topics: vec![topic],
            ..Default::default()
        };
        for version in 2..=4 {
            let response = client.call(version, &request).await;
            let end = &response.topics[0].partitions[0];
            assert_eq!((end.leader_epoch, end.end_offset), expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn k61_configs_are_described_with_sources_and_synonyms() {
    let h = start().await;
    let mut client = h.connect();
    let flush = [("flush.messages", Some("1000"))];
    create(&mut client, vec![creatable("t", 1, &flush)]).await;
    let flush = config(&mut client, "t", "flush.messages").await;
    assert_eq!(
        (flush.value.as_deref(), flush.config_source),
        (Some("1000"), 1)
    );
    assert!(flush.synonyms.len() > 1 && flush.documentation.is_some());
    let size = config(&mut client, "t", "max.message.bytes").await;
    assert_eq!(
        (size.value.as_deref(), size.config_source),
        (Some("1048588"), 5)
    );
    assert!(!describe(&mut client, 4, "1").await.is_empty());
    assert!(
        describe(&mut client, 4, "").await.is_empty(),
        "nothing is set for all brokers"
    );
    for (kind, name, code) in [
        (2, "nowhere", 3),
        (2, "a/b", 17),
        (4, "7", 42),
        (4, "x", 42),
        (9, "", 42),
    ] {
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: kind,
                resource_name: text(name),
                configuration_keys: Some(vec![text("retention.ms"), text("no.such")]),
            }],
            ..DescribeConfigsRequest::default()
        };
        for version in 1..=4 {
            assert_eq!(
                client.call(version, &request).await.results[0].error_code.0,
                code
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn k62_k89_configs_are_changed_as_a_whole_or_not_at_all() {
    let h = start().await;
    let id = h.topic("t", 1).await;
    let mut client = h.connect();
    assert_eq!(
        alter(&mut client, 2, "t", &[("retention.ms", 0, "604800000")]).await,
        0
    );
    let set = config(&mut client, "t", "retention.ms").await;
    assert_eq!(
        (set.value.as_deref(), set.config_source),
        (Some("604800000"), 1),
        "K89"
    );
    let bad = [("retention.ms", 0, "5"), ("no.such.key", 0, "1")];
    assert_eq!(alter(&mut client, 2, "t", &bad).await, 40);
    assert_eq!(
        alter(&mut client, 2, "t", &[("retention.ms", 2, "5")]).await,
        40,
        "no list"
    );
    assert_eq!(
        alter(&mut client, 2, "t", &[("retention.ms", 9, "5")]).await,
        42
    );
    assert_eq!(
        alter(&mut client, 2, "nowhere", &[("retention.ms", 0, "5")]).await,
        3
    );
    let kept = config(&mut client, "t", "retention.ms").await;
    assert_eq!(kept.value.as_deref(), Some("604800000"));
    // In force at once.
    assert_eq!(
        alter(&mut client, 2, "t", &[("retention.ms", 0, "777")]).await,
        0
    );
    let partition = tidemill_wire::ids::PartitionId {
        topic: id,
        index: 0,
    };
    assert_eq!(
        h.log
            .partition(partition)
            .expect("led here")
            .config()
            .retention_ms,
        777
    );
    assert_eq!(
        alter(&mut client, 2, "t", &[("max.message.bytes", 0, "100")]).await,
        0
    );
    let large = batch(&[&"x".repeat(100)]);
    assert_eq!(client.produce("t", 0, large.clone()).await.error_code.0, 10);
    assert_eq!(
        alter(&mut client, 2, "t", &[("max.message.bytes", 1, "")]).await,
        0
    );
    assert_eq!(client.produce("t", 0, large).await.error_code.0, 0);
    assert_eq!(
        config(&mut client, "t", "max.message.bytes")
            .await
            .config_source,
        5
    );
    // AlterConfigs replaces all.
    let request = alter_configs::AlterConfigsRequest {
        resources: vec![alter_configs::AlterConfigsResource {
            resource_type: 2,
            resource_name: text("t"),
            configs: vec![alter_configs::AlterableConfig {
                name: text("segment.bytes"),
                value: Some(text("2097152")),
            }],
        }],
        validate_only: false,
    };
    assert_eq!(
        client.call(2, &request).await.responses[0].error_code,
        ErrorCode::NONE
    );
    assert_eq!(
        config(&mut client, "t", "retention.ms").await.config_source,
        5
    );
    assert_eq!(
        config(&mut client, "t", "segment.bytes")
            .await
            .config_source,
        1
    );
}

#[tokio::test(start_paused = true)]
async fn k83_what_was_legal_stays_readable_under_a_smaller_limit() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let value = "x".repeat(5_000);
    client.produce("t", 0, batch(&[&value])).await;
    assert_eq!(
        alter(&mut client, 2, "t", &[("max.message.bytes", 0, "100")]).await,
        0
    );
    assert_eq!(values(&client.fetch("t", 0, 0).await), [value]);
}

#[tokio::test(start_paused = true)]
async fn broker_defaults_of_topics_change_while_it_runs() {
    let h = start().await;
    let id = h.topic("t", 1).await;
    let mut client = h.connect();
    assert_eq!(
        alter(&mut client, 4, "", &[("log.retention.ms", 0, "4242")]).await,
        0
    );
    let partition = tidemill_wire::ids::PartitionId {
        topic: id,
        index: 0,
    };
    assert_eq!(
        h.log
            .partition(partition)
            .expect("led here")
            .config()
            .retention_ms,
        4242
    );
    assert_eq!(describe(&mut client, 4, "").await.len(), 1);
    assert_eq!(alter(&mut client, 4, "1", &[("node.id", 0, "9")]).await, 42);
    assert_eq!(
        alter(&mut client, 4, "9", &[("log.retention.ms", 0, "9")]).await,
        42
    );
}

#[tokio::test(start_paused = true)]
async fn the_cluster_its_directories_and_partitions_are_described() {
    let h = start().await;
    for (name, partitions) in [("a", 3), ("b", 2)] {
        h.topic(name, partitions).await;
    }
    let mut client = h.connect();
    client.produce("a", 1, batch(&["x"])).await;
    let cluster = client.call(2, &DescribeClusterRequest::default()).await;
    assert_eq!((cluster.controller_id, cluster.brokers.len()), (1, 1));
    let dirs = client
        .call(4, &DescribeLogDirsRequest { topics: None })
        .await;
    let sizes: Vec<_> = dirs.results[0]
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|partition| partition.partition_size)
        .collect();
    assert_eq!(sizes.len(), 5);
    assert!(sizes[1] > 0, "{sizes:?}");
    let mut request = DescribeTopicPartitionsRequest {
        response_partition_limit: 2,
        ..DescribeTopicPartitionsRequest::default()
    };
    let mut seen = Vec::new();
    loop {
        let page = client.call(0, &request).await;
        for topic in page.topics {
            let name = topic.name.expect("named");
            seen.extend(
                topic
                    .partitions
                    .iter()
                    .map(|part| (name.to_string(), part.partition_index)),
            );
        }
        let Some(cursor) = page.next_cursor else {
            break;
        };
        request.cursor = Some(cursor);
    }
    let expected: Vec<_> = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
        .map(|(name, index)| (name.to_owned(), index))
        .to_vec();
    assert_eq!(seen, expected);
    request.cursor = None;
    request.topics = vec![TopicRequest {
        name: text("nowhere"),
    }];
    assert_eq!(client.call(0, &request).await.topics[0].error_code.0, 3);
}

#[tokio::test(start_paused = true)]
async fn coordinators_of_groups_only() {
    let h = start().await;
    let mut client = h.connect();
    for version in 0..=3 {
        let request = FindCoordinatorRequest {
            key: text("g"),
            ..Default::default()
        };
        let found = client.call(version, &request).await;
        assert_eq!(
            (found.error_code.0, found.node_id, found.port),
            (0, 1, 9092)
        );
    }
    for (key_type, key, code) in [(0, "g", 0), (0, "", 24), (1, "tx", 42), (2, "s", 42)] {
        let request = FindCoordinatorRequest {
            key_type,
            coordinator_keys: vec![text(key)],
            ..FindCoordinatorRequest::default()
        };
        let found = client.call(6, &request).await.coordinators.remove(0);
        assert_eq!(found.error_code.0, code);
        assert_eq!(found.error_message.is_some(), code != 0);
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_answers_waiting_fetches_and_closes() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let mut request = common::fetch_request("t", &[(0, 0)]);
    request.max_wait_ms = 300_000;
    let sent = client.send(11, &request).await;
    h.sleep(Duration::from_secs(1)).await;
    let began = h.runtime.clock.monotonic();
    h.broker.shutdown(began + Duration::from_secs(30)).await;
    assert!(h.runtime.clock.monotonic() - began < Duration::from_secs(1));
    let (id, _) = client
        .receive::<tidemill_wire::messages::fetch::FetchRequest>(11)
        .await;
    assert_eq!(id, sent);
    assert!(client.closed().await);
}

#[tokio::test(start_paused = true)]
async fn shutdown_with_the_store_down_tells_producers_in_time() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    h.backend.pause();
    let request = common::produce_request("t", &[(0, batch(&["a"]))]);
    client
        .send(
            9,
            &ProduceRequest {
                timeout_ms: 600_000,
                ..request
            },
        )
        .await;
    h.sleep(Duration::from_secs(1)).await;
    let began = h.runtime.clock.monotonic();
    h.broker.shutdown(began + Duration::from_secs(30)).await;
    assert!(h.runtime.clock.monotonic() - began <= Duration::from_secs(30));
    let (_, response) = client.receive::<ProduceRequest>(9).await;
    let part = &response.responses[0].partition_responses[0];
    assert_eq!(part.error_code, ErrorCode::REQUEST_TIMED_OUT);
    assert!(client.closed().await);
}

#[tokio::test(start_paused = true)]
async fn metrics_count_requests_errors_and_bytes() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    client.produce("t", 0, batch(&["a", "b"])).await;
    client.produce("nowhere", 0, batch(&["a"])).await;
    client.fetch("t", 0, 0).await;
    let mut text = String::new();
    h.broker.render_metrics(&mut text);
    for line in [
        "tidemill_requests_total{api=\"Produce\"} 2",
        "tidemill_request_errors_total{api=\"Produce\",error=\"UNKNOWN_TOPIC_OR_PARTITION\"} 1",
        "tidemill_produced_records_total 2",
        "tidemill_request_duration_seconds_count{api=\"Fetch\"} 1",
        "tidemill_connections_total 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

async fn join(client: &mut Client, member_id: Str) -> JoinGroupResponse {
    let request = JoinGroupRequest {
        group_id: text("g"),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 300_000,
        member_id,
        protocol_type: text("consumer"),
        protocols: vec![JoinGroupRequestProtocol {
            name: text("range"),
            metadata: Bytes::from_static(b"m"),
        }],
        ..JoinGroupRequest::default()
    };
    client.call(9, &request).await
}

#[tokio::test(start_paused = true)]
async fn k84_internal_topics_are_the_brokers_alone() {
    let h = start().await;
    let mut client = h.connect();
    let member = join(&mut client, Str::EMPTY).await.member_id;
    assert_eq!(join(&mut client, member).await.error_code, ErrorCode::NONE);
    let name = "__consumer_offsets";
    let listed = metadata(&mut client, 9, asked(&[name]), false)
        .await
        .topics
        .remove(0);
    assert!(listed.error_code == ErrorCode::NONE && listed.is_internal);
    assert_eq!(
        client.produce(name, 0, batch(&["x"])).await.error_code.0,
        17
    );
    assert_eq!(
        alter(&mut client, 2, name, &[("retention.ms", 0, "1")]).await,
        17
    );
    let topic = CreatePartitionsTopic {
        name: text(name),
        count: 500,
        assignments: None,
    };
    let request = CreatePartitionsRequest {
        topics: vec![topic],
        timeout_ms: 5_000,
        validate_only: false,
    };
    assert_eq!(client.call(3, &request).await.results[0].error_code.0, 17);
    let partition = DeleteRecordsPartition {
        partition_index: 0,
        offset: -1,
    };
    let topic = DeleteRecordsTopic {
        name: text(name),
        partitions: vec![partition],
    };
    let request = DeleteRecordsRequest {
        topics: vec![topic],
        timeout_ms: 5_000,
    };
    let response = client.call(2, &request).await;
    assert_eq!(response.topics[0].partitions[0].error_code.0, 17);
    let request = DeleteTopicsRequest {
        topic_names: vec![text(name)],
        timeout_ms: 5_000,
        ..DeleteTopicsRequest::default()
    };
    assert_eq!(client.call(5, &request).await.responses[0].error_code.0, 17);
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_rebalance() {
    let h = start().await;
    let (mut one, mut two) = (h.connect(), h.connect());
    let member = join(&mut one, Str::EMPTY).await.member_id;
    join(&mut one, member).await;
    // The second member waits until the first has joined again, which it never does.
    let member = join(&mut two, Str::EMPTY).await.member_id;
    let joining = async {
        h.runtime
            .clock
            .timeout(Duration::from_secs(20), join(&mut two, member))
            .await
    };
    assert!(joining.await.is_err());
    let began = h.runtime.clock.monotonic();
    h.broker.shutdown(began + Duration::from_secs(30)).await;
    assert!(h.runtime.clock.monotonic() - began < Duration::from_secs(1));
    assert!(two.closed().await);
}
