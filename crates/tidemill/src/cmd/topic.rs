//! `tidemill topic`.

use std::io::Write;

use tidemill_client::Client;
use tidemill_runtime::Runtime;
use tidemill_wire::{
    codec::Str,
    messages::{
        CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
        IncrementalAlterConfigsRequest,
        create_partitions::CreatePartitionsTopic,
        create_topics::{CreatableTopic, CreatableTopicConfig},
        delete_topics::DeleteTopicState,
        describe_configs::DescribeConfigsResource,
        incremental_alter_configs::{AlterConfigsResource, AlterableConfig},
    },
};

use super::{CommandError, check, connect, offsets, pairs};
use crate::cli::{Bootstrap, Topic};

const REQUEST_TIMEOUT_MS: i32 = 30_000;
const RESOURCE_TOPIC: i8 = 2;
const OPERATION_SET: i8 = 0;
const OPERATION_DELETE: i8 = 1;
/// Kafka's "use the broker's default".
const BROKER_DEFAULT: i32 = -1;

/// Runs the command.
pub async fn run(
    to: &Bootstrap,
    action: Topic,
    runtime: &Runtime,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let client = connect(to, runtime).await?;
    match action {
        Topic::List { internal } => list(&client, internal, out).await,
        Topic::Create {
            name,
            partitions,
            configs,
        } => create(&client, &name, partitions, &configs, out).await,
        Topic::Describe { name } => describe(&client, &name, out).await,
        Topic::Alter { name, configs } => alter(&client, &name, &configs, out).await,
        Topic::Grow { name, partitions } => grow(&client, &name, partitions, out).await,
        Topic::Delete { name } => delete(&client, &name, out).await,
    }
}

async fn list(client: &Client, internal: bool, out: &mut impl Write) -> Result<(), CommandError> {
    let metadata = client.metadata(None).await?;
    let mut rows: Vec<(String, usize)> = metadata
        .topics
        .iter()
        .filter(|topic| internal || !topic.is_internal)
        .map(|topic| {
            let name = topic.name.as_ref().map(|name| name.as_str().to_owned());
            (name.unwrap_or_default(), topic.partitions.len())
        })
        .collect();
    rows.sort();
    for (name, partitions) in rows {
        writeln!(out, "{name}\t{partitions}")?;
    }
    Ok(())
}

async fn create(
    client: &Client,
    name: &str,
    partitions: Option<i32>,
    configs: &[String],
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let configs = pairs(configs)?
        .into_iter()
        .map(|(key, value)| CreatableTopicConfig {
            name: Str::from(key),
            value: Some(Str::from(value)),
        })
        .collect();
    let topic = CreatableTopic {
        name: Str::from(name.to_owned()),
        num_partitions: partitions.unwrap_or(BROKER_DEFAULT),
        replication_factor: -1,
        assignments: Vec::new(),
        configs,
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: REQUEST_TIMEOUT_MS,
        validate_only: false,
    };
    let answer = client.call(&request).await?;
    for topic in &answer.topics {
        check(name, topic.error_code, topic.error_message.as_deref())?;
        writeln!(
            out,
            "created `{name}` with {} partitions",
            topic.num_partitions
        )?;
    }
    Ok(())
}

async fn describe(client: &Client, name: &str, out: &mut impl Write) -> Result<(), CommandError> {
    let metadata = client.metadata(Some(&[name.to_owned()])).await?;
    let Some(topic) = metadata.topics.first() else {
        return Err(CommandError(format!("the broker said nothing of `{name}`")));
    };
    check(name, topic.error_code, None)?;
    writeln!(
        out,
        "topic {name} id {} partitions {}",
        topic.topic_id,
        topic.partitions.len()
    )?;
    let mut indexes: Vec<i32> = topic.partitions.iter().map(|p| p.partition_index).collect();
    indexes.sort_unstable();
    let starts = offsets::list(client, name, &indexes, offsets::EARLIEST).await?;
    let ends = offsets::list(client, name, &indexes, offsets::LATEST).await?;
    for index in &indexes {
        let part = topic
            .partitions
            .iter()
            .find(|p| p.partition_index == *index);
        let (leader, epoch) = part.map_or((-1, -1), |p| (p.leader_id, p.leader_epoch));
        let start = starts.get(index).copied().unwrap_or(-1);
        let end = ends.get(index).copied().unwrap_or(-1);
        writeln!(
            out,
            "partition {index} leader {leader} epoch {epoch} log start {start} high watermark {end}"
        )?;
    }
    describe_configs(client, name, out).await
}

async fn describe_configs(
    client: &Client,
    name: &str,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    /// Kafka's source of a value that was set for this topic.
    const SOURCE_TOPIC: i8 = 1;
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: RESOURCE_TOPIC,
            resource_name: Str::from(name.to_owned()),
            configuration_keys: None,
        }],
        include_synonyms: false,
        include_documentation: false,
    };
    let answer = client.call(&request).await?;
    for result in &answer.results {
        check(name, result.error_code, result.error_message.as_deref())?;
        for config in result
            .configs
            .iter()
            .filter(|c| c.config_source == SOURCE_TOPIC)
        {
            let value = config.value.as_deref().unwrap_or_default();
            writeln!(out, "config {}={value}", config.name)?;
        }
    }
    Ok(())
}

async fn alter(
    client: &Client,
    name: &str,
    configs: &[String],
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let configs = pairs(configs)?
        .into_iter()
        .map(|(key, value)| AlterableConfig {
            name: Str::from(key),
            config_operation: if value.is_empty() {
                OPERATION_DELETE
            } else {
                OPERATION_SET
            },
            value: (!value.is_empty()).then(|| Str::from(value)),
        })
        .collect();
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: RESOURCE_TOPIC,
            resource_name: Str::from(name.to_owned()),
            configs,
        }],
        validate_only: false,
    };
    let answer = client.call(&request).await?;
    for result in &answer.responses {
        check(name, result.error_code, result.error_message.as_deref())?;
    }
    writeln!(out, "altered `{name}`")?;
    Ok(())
}

async fn grow(
    client: &Client,
    name: &str,
    partitions: i32,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let request = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: Str::from(name.to_owned()),
            count: partitions,
            assignments: None,
        }],
        timeout_ms: REQUEST_TIMEOUT_MS,
        validate_only: false,
    };
    let answer = client.call(&request).await?;
    for result in &answer.results {
        check(name, result.error_code, result.error_message.as_deref())?;
    }
    writeln!(out, "`{name}` has {partitions} partitions")?;
    Ok(())
}

async fn delete(client: &Client, name: &str, out: &mut impl Write) -> Result<(), CommandError> {
    let name_str = Str::from(name.to_owned());
    let request = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some(name_str.clone()),
            ..DeleteTopicState::default()
        }],
        topic_names: vec![name_str],
        timeout_ms: REQUEST_TIMEOUT_MS,
    };
    let answer = client.call(&request).await?;
    for result in &answer.responses {
        check(name, result.error_code, result.error_message.as_deref())?;
    }
    writeln!(out, "deleted `{name}`")?;
    Ok(())
}
