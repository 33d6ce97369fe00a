//! DeleteShareGroupOffsets: API key 92.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    DeleteShareGroupOffsetsRequest, versions 0..=0, flexible 0 {
        group_id: Str [0..];
        topics: Vec<DeleteShareGroupOffsetsRequestTopic> [0..];
    }
    DeleteShareGroupOffsetsRequestTopic {
        topic_name: Str [0..];
    }
}

schema! {
    DeleteShareGroupOffsetsResponse, versions 0..=0, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        responses: Vec<DeleteShareGroupOffsetsResponseTopic> [0..];
    }
    DeleteShareGroupOffsetsResponseTopic {
        topic_name: Str [0..];
        topic_id: TopicId [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
