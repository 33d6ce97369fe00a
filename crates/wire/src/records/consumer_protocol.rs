//! What members of a consumer group tell each other.

use bytes::Bytes;

use crate::codec::Str;
use crate::schema::{NEVER, schema};

schema! {
    ConsumerProtocolSubscription, versions 0..=3, flexible NEVER {
        topics: Vec<Str> [0..];
        user_data: Option<Bytes> [0..];
        #[ignorable] owned_partitions: Vec<TopicPartition> [1..];
        #[ignorable] generation_id: i32 [2..], default -1;
        #[ignorable] rack_id: Option<Str> [3..];
    }
    TopicPartition {
        topic: Str [1..];
        partitions: Vec<i32> [1..];
    }
}

schema! {
    ConsumerProtocolAssignment, versions 0..=3, flexible NEVER {
        assigned_partitions: Vec<AssignmentTopicPartition> [0..];
        user_data: Option<Bytes> [0..];
    }
    AssignmentTopicPartition {
        topic: Str [0..];
        partitions: Vec<i32> [0..];
    }
}
