//! DescribeShareGroupOffsets: API key 90.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    DescribeShareGroupOffsetsRequest, versions 0..=1, flexible 0 {
        groups: Vec<DescribeShareGroupOffsetsRequestGroup> [0..];
    }
    DescribeShareGroupOffsetsRequestGroup {
        group_id: Str [0..];
        topics: Option<Vec<DescribeShareGroupOffsetsRequestTopic>> [0..];
    }
    DescribeShareGroupOffsetsRequestTopic {
        topic_name: Str [0..];
        partitions: Vec<i32> [0..];
    }
}

schema! {
    DescribeShareGroupOffsetsResponse, versions 0..=1, flexible 0 {
        throttle_time_ms: i32 [0..];
        groups: Vec<DescribeShareGroupOffsetsResponseGroup> [0..];
    }
    DescribeShareGroupOffsetsResponseGroup {
        group_id: Str [0..];
        topics: Vec<DescribeShareGroupOffsetsResponseTopic> [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
    DescribeShareGroupOffsetsResponseTopic {
        topic_name: Str [0..];
        topic_id: TopicId [0..];
        partitions: Vec<DescribeShareGroupOffsetsResponsePartition> [0..];
    }
    DescribeShareGroupOffsetsResponsePartition {
        partition_index: i32 [0..];
        start_offset: i64 [0..];
        leader_epoch: i32 [0..];
        #[ignorable] lag: i64 [1..], default -1;
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
