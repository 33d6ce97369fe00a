//! OffsetCommit: API key 8.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    OffsetCommitRequest, versions 2..=10, flexible 8 {
        group_id: Str [0..];
        #[ignorable] generation_id_or_member_epoch: i32 [1..], default -1;
        #[ignorable] member_id: Str [1..];
        group_instance_id: Option<Str> [7..];
        #[ignorable] retention_time_ms: i64 [2..=4], default -1;
        topics: Vec<OffsetCommitRequestTopic> [0..];
    }
    OffsetCommitRequestTopic {
        #[ignorable] name: Str [0..=9];
        #[ignorable] topic_id: TopicId [10..];
        partitions: Vec<OffsetCommitRequestPartition> [0..];
    }
    OffsetCommitRequestPartition {
        partition_index: i32 [0..];
        committed_offset: i64 [0..];
        #[ignorable] committed_leader_epoch: i32 [6..], default -1;
        committed_metadata: Option<Str> [0..];
    }
}

schema! {
    OffsetCommitResponse, versions 2..=10, flexible 8 {
        #[ignorable] throttle_time_ms: i32 [3..];
        topics: Vec<OffsetCommitResponseTopic> [0..];
    }
    OffsetCommitResponseTopic {
        #[ignorable] name: Str [0..=9];
        #[ignorable] topic_id: TopicId [10..];
        partitions: Vec<OffsetCommitResponsePartition> [0..];
    }
    OffsetCommitResponsePartition {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
    }
}
