//! OffsetForLeaderEpoch: API key 23.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    OffsetForLeaderEpochRequest, versions 2..=4, flexible 4 {
        #[ignorable] replica_id: i32 [3..], default -2;
        topics: Vec<OffsetForLeaderTopic> [0..];
    }
    OffsetForLeaderTopic {
        topic: Str [0..];
        partitions: Vec<OffsetForLeaderPartition> [0..];
    }
    OffsetForLeaderPartition {
        partition: i32 [0..];
        #[ignorable] current_leader_epoch: i32 [2..], default -1;
        leader_epoch: i32 [0..];
    }
}

schema! {
    OffsetForLeaderEpochResponse, versions 2..=4, flexible 4 {
        #[ignorable] throttle_time_ms: i32 [2..];
        topics: Vec<OffsetForLeaderTopicResult> [0..];
    }
    OffsetForLeaderTopicResult {
        topic: Str [0..];
        partitions: Vec<EpochEndOffset> [0..];
    }
    EpochEndOffset {
        error_code: ErrorCode [0..];
        partition: i32 [0..];
        #[ignorable] leader_epoch: i32 [1..], default -1;
        end_offset: i64 [0..], default -1;
    }
}
