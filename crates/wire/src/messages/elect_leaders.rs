//! ElectLeaders: API key 43.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    ElectLeadersRequest, versions 0..=2, flexible 2 {
        election_type: i8 [1..];
        topic_partitions: Option<Vec<TopicPartitions>> [0..];
        timeout_ms: i32 [0..], default 60000;
    }
    TopicPartitions {
        topic: Str [0..];
        partitions: Vec<i32> [0..];
    }
}

schema! {
    ElectLeadersResponse, versions 0..=2, flexible 2 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [1..];
        replica_election_results: Vec<ReplicaElectionResult> [0..];
    }
    ReplicaElectionResult {
        topic: Str [0..];
        partition_result: Vec<PartitionResult> [0..];
    }
    PartitionResult {
        partition_id: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
