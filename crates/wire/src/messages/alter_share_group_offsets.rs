//! AlterShareGroupOffsets: API key 91.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    AlterShareGroupOffsetsRequest, versions 0..=0, flexible 0 {
        group_id: Str [0..];
        topics: Vec<AlterShareGroupOffsetsRequestTopic> [0..];
    }
    AlterShareGroupOffsetsRequestTopic {
        topic_name: Str [0..];
        partitions: Vec<AlterShareGroupOffsetsRequestPartition> [0..];
    }
    AlterShareGroupOffsetsRequestPartition {
        partition_index: i32 [0..];
        start_offset: i64 [0..];
    }
}

schema! {
    AlterShareGroupOffsetsResponse, versions 0..=0, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        responses: Vec<AlterShareGroupOffsetsResponseTopic> [0..];
    }
    AlterShareGroupOffsetsResponseTopic {
        topic_name: Str [0..];
        topic_id: TopicId [0..];
        partitions: Vec<AlterShareGroupOffsetsResponsePartition> [0..];
    }
    AlterShareGroupOffsetsResponsePartition {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
