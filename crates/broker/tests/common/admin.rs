//! What the tests of the admin APIs share.

use bytes::Bytes;
use tidemill_wire::{
    ErrorCode, Str,
    messages::{
        create_topics::{
            CreatableTopic, CreatableTopicConfig, CreatableTopicResult, CreateTopicsRequest,
        },
        describe_configs::{
            DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
        },
        incremental_alter_configs::{
            AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
        },
        join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse},
        list_offsets::{
            ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest,
            ListOffsetsTopic,
        },
        metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse},
    },
};

use super::Client;

pub fn text(text: &str) -> Str {
    Str::from(text.to_owned())
}

pub fn asked(names: &[&str]) -> Option<Vec<MetadataRequestTopic>> {
    let topic = |name: &&str| MetadataRequestTopic {
        name: Some(text(name)),
        ..Default::default()
    };
    Some(names.iter().map(topic).collect())
}

pub async fn metadata(
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

pub fn creatable(name: &str, partitions: i32, configs: &[(&str, Option<&str>)]) -> CreatableTopic {
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

pub async fn create(client: &mut Client, topics: Vec<CreatableTopic>) -> Vec<CreatableTopicResult> {
    let request = CreateTopicsRequest {
        topics,
        ..CreateTopicsRequest::default()
    };
    client.call(7, &request).await.topics
}

pub async fn describe(
    client: &mut Client,
    kind: i8,
    name: &str,
) -> Vec<DescribeConfigsResourceResult> {
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

pub async fn config(client: &mut Client, name: &str, key: &str) -> DescribeConfigsResourceResult {
    let configs = describe(client, 2, name).await;
    configs
        .into_iter()
        .find(|config| config.name == *key)
        .expect("known")
}

pub async fn alter(client: &mut Client, kind: i8, name: &str, changes: &[(&str, i8, &str)]) -> i16 {
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

pub async fn offset(
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

pub async fn join(client: &mut Client, member_id: Str) -> JoinGroupResponse {
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
