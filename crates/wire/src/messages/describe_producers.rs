//! DescribeProducers: API key 61.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DescribeProducersRequest, versions 0..=0, flexible 0 {
        topics: Vec<TopicRequest> [0..];
    }
    TopicRequest {
        name: Str [0..];
        partition_indexes: Vec<i32> [0..];
    }
}

schema! {
    DescribeProducersResponse, versions 0..=0, flexible 0 {
        throttle_time_ms: i32 [0..];
        topics: Vec<TopicResponse> [0..];
    }
    TopicResponse {
        name: Str [0..];
        partitions: Vec<PartitionResponse> [0..];
    }
    PartitionResponse {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        active_producers: Vec<ProducerState> [0..];
    }
    ProducerState {
        producer_id: i64 [0..];
        producer_epoch: i32 [0..];
        last_sequence: i32 [0..], default -1;
        last_timestamp: i64 [0..], default -1;
        coordinator_epoch: i32 [0..];
        current_txn_start_offset: i64 [0..], default -1;
    }
}
