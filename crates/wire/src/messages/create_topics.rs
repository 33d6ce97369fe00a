//! CreateTopics: API key 19.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    CreateTopicsRequest, versions 2..=7, flexible 5 {
        topics: Vec<CreatableTopic> [0..];
        timeout_ms: i32 [0..], default 60000;
        validate_only: bool [1..];
    }
    CreatableTopic {
        name: Str [0..];
        num_partitions: i32 [0..];
        replication_factor: i16 [0..];
        assignments: Vec<CreatableReplicaAssignment> [0..];
        configs: Vec<CreatableTopicConfig> [0..];
    }
    CreatableReplicaAssignment {
        partition_index: i32 [0..];
        broker_ids: Vec<i32> [0..];
    }
    CreatableTopicConfig {
        name: Str [0..];
        value: Option<Str> [0..];
    }
}

schema! {
    CreateTopicsResponse, versions 2..=7, flexible 5 {
        #[ignorable] throttle_time_ms: i32 [2..];
        topics: Vec<CreatableTopicResult> [0..];
    }
    CreatableTopicResult {
        name: Str [0..];
        #[ignorable] topic_id: TopicId [7..];
        error_code: ErrorCode [0..];
        #[ignorable] error_message: Option<Str> [1..];
        #[ignorable] num_partitions: i32 [5..], default -1;
        #[ignorable] replication_factor: i16 [5..], default -1;
        #[ignorable] configs: Option<Vec<CreatableTopicConfigs>> [5..];
        #[ignorable] topic_config_error_code: ErrorCode [5..], tag 0;
    }
    CreatableTopicConfigs {
        name: Str [5..];
        value: Option<Str> [5..];
        read_only: bool [5..];
        #[ignorable] config_source: i8 [5..], default -1;
        is_sensitive: bool [5..];
    }
}
