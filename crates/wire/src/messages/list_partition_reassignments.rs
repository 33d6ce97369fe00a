//! ListPartitionReassignments: API key 46.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    ListPartitionReassignmentsRequest, versions 0..=0, flexible 0 {
        timeout_ms: i32 [0..], default 60000;
        topics: Option<Vec<ListPartitionReassignmentsTopics>> [0..];
    }
    ListPartitionReassignmentsTopics {
        name: Str [0..];
        partition_indexes: Vec<i32> [0..];
    }
}

schema! {
    ListPartitionReassignmentsResponse, versions 0..=0, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        topics: Vec<OngoingTopicReassignment> [0..];
    }
    OngoingTopicReassignment {
        name: Str [0..];
        partitions: Vec<OngoingPartitionReassignment> [0..];
    }
    OngoingPartitionReassignment {
        partition_index: i32 [0..];
        replicas: Vec<i32> [0..];
        adding_replicas: Vec<i32> [0..];
        removing_replicas: Vec<i32> [0..];
    }
}
