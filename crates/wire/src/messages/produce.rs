//! Produce: API key 0.

use crate::codec::{Records, Str};
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    ProduceRequest, versions 3..=13, flexible 9 {
        transactional_id: Option<Str> [3..];
        acks: i16 [0..];
        timeout_ms: i32 [0..];
        topic_data: Vec<TopicProduceData> [0..];
    }
    TopicProduceData {
        #[ignorable] name: Str [0..=12];
        #[ignorable] topic_id: TopicId [13..];
        partition_data: Vec<PartitionProduceData> [0..];
    }
    PartitionProduceData {
        index: i32 [0..];
        records: Option<Records> [0..];
    }
}

schema! {
    ProduceResponse, versions 3..=13, flexible 9 {
        responses: Vec<TopicProduceResponse> [0..];
        #[ignorable] throttle_time_ms: i32 [1..];
        node_endpoints: Vec<NodeEndpoint> [10..], tag 0;
    }
    TopicProduceResponse {
        #[ignorable] name: Str [0..=12];
        #[ignorable] topic_id: TopicId [13..];
        partition_responses: Vec<PartitionProduceResponse> [0..];
    }
    PartitionProduceResponse {
        index: i32 [0..];
        error_code: ErrorCode [0..];
        base_offset: i64 [0..];
        #[ignorable] log_append_time_ms: i64 [2..], default -1;
        #[ignorable] log_start_offset: i64 [5..], default -1;
        #[ignorable] record_errors: Vec<BatchIndexAndErrorMessage> [8..];
        #[ignorable] error_message: Option<Str> [8..];
        current_leader: LeaderIdAndEpoch [10..], tag 0;
    }
    BatchIndexAndErrorMessage {
        batch_index: i32 [8..];
        batch_index_error_message: Option<Str> [8..];
    }
    LeaderIdAndEpoch {
        leader_id: i32 [10..], default -1;
        leader_epoch: i32 [10..], default -1;
    }
    NodeEndpoint {
        node_id: i32 [10..];
        host: Str [10..];
        port: i32 [10..];
        rack: Option<Str> [10..];
    }
}
