//! TxnOffsetCommit: API key 28.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    TxnOffsetCommitRequest, versions 0..=6, flexible 3 {
        transactional_id: Str [0..];
        group_id: Str [0..];
        producer_id: i64 [0..];
        producer_epoch: i16 [0..];
        generation_id_or_member_epoch: i32 [3..], default -1;
        member_id: Str [3..];
        group_instance_id: Option<Str> [3..];
        topics: Vec<TxnOffsetCommitRequestTopic> [0..];
    }
    TxnOffsetCommitRequestTopic {
        #[ignorable] name: Str [0..=5];
        #[ignorable] topic_id: TopicId [6..];
        partitions: Vec<TxnOffsetCommitRequestPartition> [0..];
    }
    TxnOffsetCommitRequestPartition {
        partition_index: i32 [0..];
        committed_offset: i64 [0..];
        #[ignorable] committed_leader_epoch: i32 [2..], default -1;
        committed_metadata: Option<Str> [0..];
    }
}

schema! {
    TxnOffsetCommitResponse, versions 0..=6, flexible 3 {
        throttle_time_ms: i32 [0..];
        topics: Vec<TxnOffsetCommitResponseTopic> [0..];
    }
    TxnOffsetCommitResponseTopic {
        #[ignorable] name: Str [0..=5];
        #[ignorable] topic_id: TopicId [6..];
        partitions: Vec<TxnOffsetCommitResponsePartition> [0..];
    }
    TxnOffsetCommitResponsePartition {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
    }
}
