//! OffsetFetch: API key 9.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    OffsetFetchRequest, versions 1..=10, flexible 6 {
        group_id: Str [0..=7];
        topics: Option<Vec<OffsetFetchRequestTopic>> [0..=7], null [2..=7];
        groups: Vec<OffsetFetchRequestGroup> [8..];
        require_stable: bool [7..];
    }
    OffsetFetchRequestTopic {
        name: Str [0..=7];
        partition_indexes: Vec<i32> [0..=7];
    }
    OffsetFetchRequestGroup {
        group_id: Str [8..];
        #[ignorable] member_id: Option<Str> [9..];
        #[ignorable] member_epoch: i32 [9..], default -1;
        topics: Option<Vec<OffsetFetchRequestTopics>> [8..];
    }
    OffsetFetchRequestTopics {
        #[ignorable] name: Str [8..=9];
        #[ignorable] topic_id: TopicId [10..];
        partition_indexes: Vec<i32> [8..];
    }
}

schema! {
    OffsetFetchResponse, versions 1..=10, flexible 6 {
        #[ignorable] throttle_time_ms: i32 [3..];
        topics: Vec<OffsetFetchResponseTopic> [0..=7];
        #[ignorable] error_code: ErrorCode [2..=7];
        groups: Vec<OffsetFetchResponseGroup> [8..];
    }
    OffsetFetchResponseTopic {
        name: Str [0..=7];
        partitions: Vec<OffsetFetchResponsePartition> [0..=7];
    }
    OffsetFetchResponsePartition {
        partition_index: i32 [0..=7];
        committed_offset: i64 [0..=7];
        #[ignorable] committed_leader_epoch: i32 [5..=7], default -1;
        metadata: Option<Str> [0..=7];
        error_code: ErrorCode [0..=7];
    }
    OffsetFetchResponseGroup {
        group_id: Str [8..];
        topics: Vec<OffsetFetchResponseTopics> [8..];
        error_code: ErrorCode [8..];
    }
    OffsetFetchResponseTopics {
        #[ignorable] name: Str [8..=9];
        #[ignorable] topic_id: TopicId [10..];
        partitions: Vec<OffsetFetchResponsePartitions> [8..];
    }
    OffsetFetchResponsePartitions {
        partition_index: i32 [8..];
        committed_offset: i64 [8..];
        #[ignorable] committed_leader_epoch: i32 [8..], default -1;
        metadata: Option<Str> [8..];
        error_code: ErrorCode [8..];
    }
}
