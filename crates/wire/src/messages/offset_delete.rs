//! OffsetDelete: API key 47.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::{NEVER, schema};

schema! {
    OffsetDeleteRequest, versions 0..=0, flexible NEVER {
        group_id: Str [0..];
        topics: Vec<OffsetDeleteRequestTopic> [0..];
    }
    OffsetDeleteRequestTopic {
        name: Str [0..];
        partitions: Vec<OffsetDeleteRequestPartition> [0..];
    }
    OffsetDeleteRequestPartition {
        partition_index: i32 [0..];
    }
}

schema! {
    OffsetDeleteResponse, versions 0..=0, flexible NEVER {
        error_code: ErrorCode [0..];
        #[ignorable] throttle_time_ms: i32 [0..];
        topics: Vec<OffsetDeleteResponseTopic> [0..];
    }
    OffsetDeleteResponseTopic {
        name: Str [0..];
        partitions: Vec<OffsetDeleteResponsePartition> [0..];
    }
    OffsetDeleteResponsePartition {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
    }
}
