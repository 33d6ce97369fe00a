//! AlterPartitionReassignments: API key 45.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    AlterPartitionReassignmentsRequest, versions 0..=1, flexible 0 {
        timeout_ms: i32 [0..], default 60000;
        allow_replication_factor_change: bool [1..], default true;
        topics: Vec<ReassignableTopic> [0..];
    }
    ReassignableTopic {
        name: Str [0..];
        partitions: Vec<ReassignablePartition> [0..];
    }
    ReassignablePartition {
        partition_index: i32 [0..];
        replicas: Option<Vec<i32>> [0..];
    }
}

schema! {
    AlterPartitionReassignmentsResponse, versions 0..=1, flexible 0 {
        throttle_time_ms: i32 [0..];
        #[ignorable] allow_replication_factor_change: bool [1..], default true;
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        responses: Vec<ReassignableTopicResponse> [0..];
    }
    ReassignableTopicResponse {
        name: Str [0..];
        partitions: Vec<ReassignablePartitionResponse> [0..];
    }
    ReassignablePartitionResponse {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
