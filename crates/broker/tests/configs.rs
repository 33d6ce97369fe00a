//! Configurations, described and changed: K61, K62, K83, K89.

mod common;

use common::{Harness, admin::*, batch, start, values};
use tidemill_wire::{
    ErrorCode,
    ids::{PartitionId, TopicId},
    messages::{
        alter_configs,
        describe_configs::{DescribeConfigsRequest, DescribeConfigsResource},
        incremental_alter_configs::{
            AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
        },
    },
};

/// What the log itself goes by.
fn retention_ms(h: &Harness, topic: TopicId) -> i64 {
    let partition = PartitionId { topic, index: 0 };
    let partition = h.log.partition(partition).expect("led here");
    partition.config().retention_ms
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
async fn a_resource_named_twice_is_described_once() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let resource = |kind, name| DescribeConfigsResource {
        resource_type: kind,
        resource_name: text(name),
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource(2, "t"), resource(4, "1"), resource(2, "t")],
        ..DescribeConfigsRequest::default()
    };
    let response = client.call(4, &request).await;
    let codes = response.results.iter().map(|result| result.error_code);
    let codes: Vec<_> = codes.collect();
    let twice = ErrorCode::INVALID_REQUEST;
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::NONE, twice]);
    assert!(response.results[0].configs.len() > 20);
    assert!(response.results[2].configs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn k62_k89_configs_are_changed_as_a_whole_or_not_at_all() {
    let h = start().await;
    let _id = h.topic("t", 1).await;
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
}

#[tokio::test(start_paused = true)]
async fn k62_changes_are_in_force_at_once_and_alter_configs_replaces_all() {
    let h = start().await;
    let id = h.topic("t", 1).await;
    let mut client = h.connect();
    assert_eq!(
        alter(&mut client, 2, "t", &[("retention.ms", 0, "777")]).await,
        0
    );
    assert_eq!(retention_ms(&h, id), 777);
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
    assert_eq!(retention_ms(&h, id), 4242);
    assert_eq!(describe(&mut client, 4, "").await.len(), 1);
    assert_eq!(alter(&mut client, 4, "1", &[("node.id", 0, "9")]).await, 42);
    assert_eq!(
        alter(&mut client, 4, "9", &[("log.retention.ms", 0, "9")]).await,
        42
    );
    // Without meaning here, but Kafka takes it, for one broker: kept, and shown as set.
    let relogin = "sasl.kerberos.min.time.before.relogin";
    let set = [(relogin, 0, "58000")];
    assert_eq!(alter(&mut client, 4, "", &set).await, 42);
    assert_eq!(alter(&mut client, 4, "1", &set).await, 0);
    let all = describe(&mut client, 4, "1").await;
    let shown = all.iter().find(|one| one.name == *relogin).expect("known");
    assert_eq!(shown.value.as_deref(), Some("58000"));
    assert_eq!((shown.config_source, shown.read_only), (2, false));
    assert_eq!(alter(&mut client, 4, "1", &[(relogin, 1, "")]).await, 0);
    let all = describe(&mut client, 4, "1").await;
    let shown = all.iter().find(|one| one.name == *relogin).expect("known");
    assert_eq!(
        (shown.value.as_deref(), shown.config_source),
        (Some("60000"), 5)
    );
}

/// Which of two words on one resource counts would be anybody's guess: neither does, and the others
/// are not held up.
#[tokio::test(start_paused = true)]
async fn a_resource_named_twice_is_refused_each_time_and_alone() {
    let h = start().await;
    let twice = h.topic("twice", 1).await;
    let once = h.topic("once", 1).await;
    let mut client = h.connect();
    let before = retention_ms(&h, twice);
    let resource = |name: &str, value: &str| AlterConfigsResource {
        resource_type: 2,
        resource_name: text(name),
        configs: vec![AlterableConfig {
            name: text("retention.ms"),
            config_operation: 0,
            value: Some(text(value)),
        }],
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![
            resource("twice", "1000"),
            resource("once", "2000"),
            resource("twice", "3000"),
        ],
        validate_only: false,
    };
    let responses = client.call(1, &request).await.responses;
    let codes: Vec<_> = responses.iter().map(|one| one.error_code.0).collect();
    assert_eq!(codes, [42, 0, 42]);
    assert_eq!(retention_ms(&h, twice), before);
    assert_eq!(retention_ms(&h, once), 2_000);
}

#[tokio::test(start_paused = true)]
async fn k61_who_names_keys_gets_those_that_there_are() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let resource = |kind, name: &str, keys: &[&str]| DescribeConfigsResource {
        resource_type: kind,
        resource_name: text(name),
        configuration_keys: Some(keys.iter().map(|key| text(key)).collect()),
    };
    let request = DescribeConfigsRequest {
        resources: vec![
            resource(2, "t", &["retention.ms", "no.such", "cleanup.policy"]),
            resource(2, "t2", &["retention.ms"]),
            resource(4, "1", &["no.such", "num.partitions"]),
            resource(4, "", &["num.partitions"]),
        ],
        ..DescribeConfigsRequest::default()
    };
    let wanted: [(i16, &[&str]); 4] = [
        (0, &["cleanup.policy", "retention.ms"]),
        (3, &[]),
        (0, &["num.partitions"]),
        (0, &[]),
    ];
    for version in 1..=4 {
        let results = client.call(version, &request).await.results;
        assert_eq!(results.len(), 4);
        for (result, (code, keys)) in results.iter().zip(wanted) {
            assert_eq!(result.error_code.0, code);
            let mut told: Vec<_> = result.configs.iter().map(|one| one.name.as_str()).collect();
            told.sort_unstable();
            assert_eq!(told, keys, "version {version}");
        }
    }
}
