//! AlterReplicaLogDirs: API key 34.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    AlterReplicaLogDirsRequest, versions 1..=2, flexible 2 {
        dirs: Vec<AlterReplicaLogDir> [0..];
    }
    AlterReplicaLogDir {
        path: Str [0..];
        topics: Vec<AlterReplicaLogDirTopic> [0..];
    }
    AlterReplicaLogDirTopic {
        name: Str [0..];
        partitions: Vec<i32> [0..];
    }
}

schema! {
    AlterReplicaLogDirsResponse, versions 1..=2, flexible 2 {
        throttle_time_ms: i32 [0..];
        results: Vec<AlterReplicaLogDirTopicResult> [0..];
    }
    AlterReplicaLogDirTopicResult {
        topic_name: Str [0..];
        partitions: Vec<AlterReplicaLogDirPartitionResult> [0..];
    }
    AlterReplicaLogDirPartitionResult {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
    }
}
