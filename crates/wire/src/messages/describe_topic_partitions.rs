//! DescribeTopicPartitions: API key 75.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    DescribeTopicPartitionsRequest, versions 0..=0, flexible 0 {
        topics: Vec<TopicRequest> [0..];
        response_partition_limit: i32 [0..], default 2000;
        cursor: Option<Cursor> [0..];
    }
    TopicRequest {
        name: Str [0..];
    }
    Cursor {
        topic_name: Str [0..];
        partition_index: i32 [0..];
    }
}

schema! {
    DescribeTopicPartitionsResponse, versions 0..=0, flexible 0 {
        #[ignorable] throttle_time_ms: i32 [0..];
        topics: Vec<DescribeTopicPartitionsResponseTopic> [0..];
        next_cursor: Option<Cursor> [0..];
    }
    DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode [0..];
        name: Option<Str> [0..];
        #[ignorable] topic_id: TopicId [0..];
        #[ignorable] is_internal: bool [0..];
        partitions: Vec<DescribeTopicPartitionsResponsePartition> [0..];
        topic_authorized_operations: i32 [0..], default i32::MIN;
    }
    DescribeTopicPartitionsResponsePartition {
        error_code: ErrorCode [0..];
        partition_index: i32 [0..];
        leader_id: i32 [0..];
        #[ignorable] leader_epoch: i32 [0..], default -1;
        replica_nodes: Vec<i32> [0..];
        isr_nodes: Vec<i32> [0..];
        eligible_leader_replicas: Option<Vec<i32>> [0..];
        last_known_elr: Option<Vec<i32>> [0..];
        #[ignorable] offline_replicas: Vec<i32> [0..];
    }
}
