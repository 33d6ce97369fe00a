//! ShareAcknowledge: API key 79.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    ShareAcknowledgeRequest, versions 1..=2, flexible 0 {
        group_id: Option<Str> [0..];
        member_id: Option<Str> [0..];
        share_session_epoch: i32 [0..];
        is_renew_ack: bool [2..];
        topics: Vec<AcknowledgeTopic> [0..];
    }
    AcknowledgeTopic {
        topic_id: TopicId [0..];
        partitions: Vec<AcknowledgePartition> [0..];
    }
    AcknowledgePartition {
        partition_index: i32 [0..];
        acknowledgement_batches: Vec<AcknowledgementBatch> [0..];
    }
    AcknowledgementBatch {
        first_offset: i64 [0..];
        last_offset: i64 [0..];
        acknowledge_types: Vec<i8> [0..];
    }
}

schema! {
    ShareAcknowledgeResponse, versions 1..=2, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        #[ignorable] acquisition_lock_timeout_ms: i32 [2..];
        responses: Vec<ShareAcknowledgeTopicResponse> [0..];
        node_endpoints: Vec<NodeEndpoint> [0..];
    }
    ShareAcknowledgeTopicResponse {
        topic_id: TopicId [0..];
        partitions: Vec<PartitionData> [0..];
    }
    PartitionData {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        current_leader: LeaderIdAndEpoch [0..];
    }
    LeaderIdAndEpoch {
        leader_id: i32 [0..];
        leader_epoch: i32 [0..];
    }
    NodeEndpoint {
        node_id: i32 [0..];
        host: Str [0..];
        port: i32 [0..];
        rack: Option<Str> [0..];
    }
}
