//! ShareGroupHeartbeat: API key 76.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    ShareGroupHeartbeatRequest, versions 1..=1, flexible 0 {
        group_id: Str [0..];
        member_id: Str [0..];
        member_epoch: i32 [0..];
        rack_id: Option<Str> [0..];
        subscribed_topic_names: Option<Vec<Str>> [0..];
    }
}

schema! {
    ShareGroupHeartbeatResponse, versions 1..=1, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        member_id: Option<Str> [0..];
        member_epoch: i32 [0..];
        heartbeat_interval_ms: i32 [0..];
        assignment: Option<Assignment> [0..];
    }
    Assignment {
        topic_partitions: Vec<TopicPartitions> [0..];
    }
    TopicPartitions {
        topic_id: TopicId [0..];
        partitions: Vec<i32> [0..];
    }
}
