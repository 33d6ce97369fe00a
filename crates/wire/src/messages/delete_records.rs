//! DeleteRecords: API key 21.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DeleteRecordsRequest, versions 0..=2, flexible 2 {
        topics: Vec<DeleteRecordsTopic> [0..];
        timeout_ms: i32 [0..];
    }
    DeleteRecordsTopic {
        name: Str [0..];
        partitions: Vec<DeleteRecordsPartition> [0..];
    }
    DeleteRecordsPartition {
        partition_index: i32 [0..];
        offset: i64 [0..];
    }
}

schema! {
    DeleteRecordsResponse, versions 0..=2, flexible 2 {
        throttle_time_ms: i32 [0..];
        topics: Vec<DeleteRecordsTopicResult> [0..];
    }
    DeleteRecordsTopicResult {
        name: Str [0..];
        partitions: Vec<DeleteRecordsPartitionResult> [0..];
    }
    DeleteRecordsPartitionResult {
        partition_index: i32 [0..];
        low_watermark: i64 [0..];
        error_code: ErrorCode [0..];
    }
}
