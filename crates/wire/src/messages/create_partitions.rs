//! CreatePartitions: API key 37.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    CreatePartitionsRequest, versions 0..=3, flexible 2 {
        topics: Vec<CreatePartitionsTopic> [0..];
        timeout_ms: i32 [0..];
        validate_only: bool [0..];
    }
    CreatePartitionsTopic {
        name: Str [0..];
        count: i32 [0..];
        assignments: Option<Vec<CreatePartitionsAssignment>> [0..];
    }
    CreatePartitionsAssignment {
        broker_ids: Vec<i32> [0..];
    }
}

schema! {
    CreatePartitionsResponse, versions 0..=3, flexible 2 {
        throttle_time_ms: i32 [0..];
        results: Vec<CreatePartitionsTopicResult> [0..];
    }
    CreatePartitionsTopicResult {
        name: Str [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
