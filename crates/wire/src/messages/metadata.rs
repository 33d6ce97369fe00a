//! Metadata: API key 3.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    MetadataRequest, versions 0..=13, flexible 9 {
        topics: Option<Vec<MetadataRequestTopic>> [0..], null [1..];
        allow_auto_topic_creation: bool [4..], default true;
        include_cluster_authorized_operations: bool [8..=10];
        include_topic_authorized_operations: bool [8..];
    }
    MetadataRequestTopic {
        #[ignorable] topic_id: TopicId [10..];
        name: Option<Str> [0..], null [10..];
    }
}

schema! {
    MetadataResponse, versions 0..=13, flexible 9 {
        #[ignorable] throttle_time_ms: i32 [3..];
        brokers: Vec<MetadataResponseBroker> [0..];
        #[ignorable] cluster_id: Option<Str> [2..];
        #[ignorable] controller_id: i32 [1..], default -1;
        topics: Vec<MetadataResponseTopic> [0..];
        cluster_authorized_operations: i32 [8..=10], default i32::MIN;
        #[ignorable] error_code: ErrorCode [13..];
    }
    MetadataResponseBroker {
        node_id: i32 [0..];
        host: Str [0..];
        port: i32 [0..];
        #[ignorable] rack: Option<Str> [1..];
    }
    MetadataResponseTopic {
        error_code: ErrorCode [0..];
        name: Option<Str> [0..], null [12..];
        #[ignorable] topic_id: TopicId [10..];
        #[ignorable] is_internal: bool [1..];
        partitions: Vec<MetadataResponsePartition> [0..];
        topic_authorized_operations: i32 [8..], default i32::MIN;
    }
    MetadataResponsePartition {
        error_code: ErrorCode [0..];
        partition_index: i32 [0..];
        leader_id: i32 [0..];
        #[ignorable] leader_epoch: i32 [7..], default -1;
        replica_nodes: Vec<i32> [0..];
        isr_nodes: Vec<i32> [0..];
        #[ignorable] offline_replicas: Vec<i32> [5..];
    }
}
