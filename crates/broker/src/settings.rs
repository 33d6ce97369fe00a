//! Interim.
use crate::{errors::Refusal, net::NetLimits};
use std::collections::BTreeMap;
use tidemill_cluster::image::Configs;
use tidemill_log::{Latency, PartitionConfig};
use tidemill_wire::{Str, batch::ValidateOptions, ids::NodeId};

#[derive(Debug)]
pub struct BrokerConfig {
    pub node_id: NodeId,
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub auto_create_topics: bool,
    pub delete_topics: bool,
    pub fetch_max_bytes: usize,
    pub data_location: String,
}
impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            node_id: NodeId(1),
            num_partitions: 1,
            default_replication_factor: 1,
            auto_create_topics: true,
            delete_topics: true,
            fetch_max_bytes: 57671680,
            data_location: "memory:".into(),
        }
    }
}
impl BrokerConfig {
    pub fn rack(&self) -> Option<Str> {
        None
    }
    pub(crate) fn topic(&self, _own: &Configs, _c: &Configs, _n: &Configs) -> TopicConfig {
        TopicConfig {
            latency: Latency::Low,
        }
    }
    pub(crate) fn check_topic_configs(
        &self,
        _c: &mut BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        Ok(())
    }
}
impl From<&BrokerConfig> for NetLimits {
    fn from(_: &BrokerConfig) -> Self {
        Self::default()
    }
}
pub struct TopicConfig {
    pub latency: Latency,
}
impl TopicConfig {
    pub fn validate_options(&self) -> ValidateOptions {
        ValidateOptions::default()
    }
    pub fn partition(&self) -> PartitionConfig {
        PartitionConfig::default()
    }
}
