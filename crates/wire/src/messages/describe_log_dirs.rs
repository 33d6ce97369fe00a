//! DescribeLogDirs: API key 35.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DescribeLogDirsRequest, versions 1..=5, flexible 2 {
        topics: Option<Vec<DescribableLogDirTopic>> [0..];
    }
    DescribableLogDirTopic {
        topic: Str [0..];
        partitions: Vec<i32> [0..];
    }
}

schema! {
    DescribeLogDirsResponse, versions 1..=5, flexible 2 {
        throttle_time_ms: i32 [0..];
        #[ignorable] error_code: ErrorCode [3..];
        results: Vec<DescribeLogDirsResult> [0..];
    }
    DescribeLogDirsResult {
        error_code: ErrorCode [0..];
        log_dir: Str [0..];
        topics: Vec<DescribeLogDirsTopic> [0..];
        #[ignorable] total_bytes: i64 [4..], default -1;
        #[ignorable] usable_bytes: i64 [4..], default -1;
        #[ignorable] is_cordoned: bool [5..];
    }
    DescribeLogDirsTopic {
        name: Str [0..];
        partitions: Vec<DescribeLogDirsPartition> [0..];
    }
    DescribeLogDirsPartition {
        partition_index: i32 [0..];
        partition_size: i64 [0..];
        offset_lag: i64 [0..];
        is_future_key: bool [0..];
    }
}
