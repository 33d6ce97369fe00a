//! The broker under load, and its topics.

use std::time::Duration;

use tidemill_client::{Client, Options};
use tidemill_runtime::Runtime;
use tidemill_wire::{
    codec::Str,
    errors::ErrorCode,
    messages::{
        create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest},
        delete_topics::{DeleteTopicState, DeleteTopicsRequest},
        list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic},
    },
};

use crate::error::BenchError;

/// Kafka's timestamp for "the high watermark".
pub const LATEST: i64 = -1;
/// Kafka's timestamp for "the log start".
pub const EARLIEST: i64 = -2;
/// A topic just created is led a moment later.
const LED_WITHIN: Duration = Duration::from_secs(60);
const LED_RETRY: Duration = Duration::from_millis(20);
const CREATE_TIMEOUT_MS: i32 = 60_000;

/// The broker under load. One broker: all partitions are asked of it.
#[derive(Clone, Debug)]
pub struct Target {
    /// `HOST:PORT`.
    pub address: String,
    /// Clock, entropy and tasks.
    pub runtime: Runtime,
}

impl Target {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there, or no Kafka broker.
    pub async fn connect(&self) -> Result<Client, BenchError> {
        let options = Options {
            client_id: "tidemill-bench".to_owned(),
            ..Options::default()
        };
        Ok(Client::open(&self.address, options, self.runtime.clone()).await?)
    }

    /// Creates a topic unless it exists, and waits until all of it is led.
    ///
    /// # Errors
    /// The broker refuses, or does not lead it in time.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Result<(), BenchError> {
        let client = self.connect().await?;
        let config = |(key, value): &(&str, &str)| CreatableTopicConfig {
            name: Str::from((*key).to_owned()),
            value: Some(Str::from((*value).to_owned())),
        };
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: Str::from(name.to_owned()),
                num_partitions: partitions,
                replication_factor: 1,
                configs: configs.iter().map(config).collect(),
                ..CreatableTopic::default()
            }],
            timeout_ms: CREATE_TIMEOUT_MS,
            ..CreateTopicsRequest::default()
        };
        let answer = client.call(&request).await?;
        for topic in &answer.topics {
            if topic.error_code != ErrorCode::TOPIC_ALREADY_EXISTS {
                BenchError::check(name, topic.error_code)?;
            }
        }
        let deadline = self.runtime.clock.monotonic() + LED_WITHIN;
        loop {
            match offsets(&client, name, partitions, LATEST).await {
                Ok(_) => return Ok(()),
                Err(error) if self.runtime.clock.monotonic() >= deadline => return Err(error),
                Err(BenchError::Refused { .. }) => self.runtime.clock.sleep(LED_RETRY).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes a topic; one that does not exist is success.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn delete_topic(&self, name: &str) -> Result<(), BenchError> {
        let client = self.connect().await?;
        let name = Str::from(name.to_owned());
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some(name.clone()),
                ..DeleteTopicState::default()
            }],
            topic_names: vec![name.clone()],
            timeout_ms: CREATE_TIMEOUT_MS,
        };
        let answer = client.call(&request).await?;
        for topic in &answer.responses {
            if topic.error_code != ErrorCode::UNKNOWN_TOPIC_OR_PARTITION {
                BenchError::check(name.as_str(), topic.error_code)?;
            }
        }
        Ok(())
    }

    /// The port of its address.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.address.rsplit_once(':')?.1.parse().ok()
    }
}

/// The offset of every partition, from 0, at `timestamp` ([`EARLIEST`], [`LATEST`], or Unix
/// milliseconds).
///
/// # Errors
/// The broker refuses one of them.
pub async fn offsets(
    client: &Client,
    topic: &str,
    partitions: i32,
    timestamp: i64,
) -> Result<Vec<i64>, BenchError> {
    let ask = |partition_index: i32| ListOffsetsPartition {
        partition_index,
        timestamp,
        ..ListOffsetsPartition::default()
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: Str::from(topic.to_owned()),
            partitions: (0..partitions).map(ask).collect(),
        }],
        ..ListOffsetsRequest::default()
    };
    let answer = client.call(&request).await?;
    let mut found = vec![0; partitions as usize];
    for part in answer.topics.iter().flat_map(|topic| &topic.partitions) {
        BenchError::check(
            &format!("{topic}-{}", part.partition_index),
            part.error_code,
        )?;
        if let Some(slot) = found.get_mut(part.partition_index as usize) {
            *slot = part.offset;
        }
    }
    Ok(found)
}
