//! DeleteTopics: API key 20.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    DeleteTopicsRequest, versions 1..=6, flexible 4 {
        topics: Vec<DeleteTopicState> [6..];
        #[ignorable] topic_names: Vec<Str> [0..=5];
        timeout_ms: i32 [0..];
    }
    DeleteTopicState {
        name: Option<Str> [6..];
        topic_id: TopicId [6..];
    }
}

schema! {
    DeleteTopicsResponse, versions 1..=6, flexible 4 {
        #[ignorable] throttle_time_ms: i32 [1..];
        responses: Vec<DeletableTopicResult> [0..];
    }
    DeletableTopicResult {
        name: Option<Str> [0..], null [6..];
        #[ignorable] topic_id: TopicId [6..];
        error_code: ErrorCode [0..];
        #[ignorable] error_message: Option<Str> [5..];
    }
}
