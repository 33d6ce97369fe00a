//! ListOffsets: API key 2.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    ListOffsetsRequest, versions 1..=11, flexible 6 {
        replica_id: i32 [0..];
        isolation_level: i8 [2..];
        topics: Vec<ListOffsetsTopic> [0..];
        #[ignorable] timeout_ms: i32 [10..];
    }
    ListOffsetsTopic {
        name: Str [0..];
        partitions: Vec<ListOffsetsPartition> [0..];
    }
    ListOffsetsPartition {
        partition_index: i32 [0..];
        #[ignorable] current_leader_epoch: i32 [4..], default -1;
        timestamp: i64 [0..];
    }
}

schema! {
    ListOffsetsResponse, versions 1..=11, flexible 6 {
        #[ignorable] throttle_time_ms: i32 [2..];
        topics: Vec<ListOffsetsTopicResponse> [0..];
    }
    ListOffsetsTopicResponse {
        name: Str [0..];
        partitions: Vec<ListOffsetsPartitionResponse> [0..];
    }
    ListOffsetsPartitionResponse {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
        timestamp: i64 [1..], default -1;
        offset: i64 [1..], default -1;
        leader_epoch: i32 [4..], default -1;
    }
}
