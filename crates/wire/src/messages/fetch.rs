//! Fetch: API key 1.

use crate::codec::{Records, Str, Uuid};
use crate::errors::ErrorCode;
use crate::ids::TopicId;
use crate::schema::schema;

schema! {
    FetchRequest, versions 4..=18, flexible 12 {
        replica_id: i32 [0..=14], default -1;
        max_wait_ms: i32 [0..];
        min_bytes: i32 [0..];
        #[ignorable] max_bytes: i32 [3..], default i32::MAX;
        #[ignorable] isolation_level: i8 [4..];
        #[ignorable] session_id: i32 [7..];
        #[ignorable] session_epoch: i32 [7..], default -1;
        topics: Vec<FetchTopic> [0..];
        forgotten_topics_data: Vec<ForgottenTopic> [7..];
        #[ignorable] rack_id: Str [11..];
        #[ignorable] cluster_id: Option<Str> [12..], tag 0;
        replica_state: ReplicaState [15..], tag 1;
    }
    ReplicaState {
        replica_id: i32 [15..], default -1;
        replica_epoch: i64 [15..], default -1;
    }
    FetchTopic {
        #[ignorable] topic: Str [0..=12];
        #[ignorable] topic_id: TopicId [13..];
        partitions: Vec<FetchPartition> [0..];
    }
    FetchPartition {
        partition: i32 [0..];
        #[ignorable] current_leader_epoch: i32 [9..], default -1;
        fetch_offset: i64 [0..];
        last_fetched_epoch: i32 [12..], default -1;
        #[ignorable] log_start_offset: i64 [5..], default -1;
        partition_max_bytes: i32 [0..];
        #[ignorable] replica_directory_id: Uuid [17..], tag 0;
        #[ignorable] high_watermark: i64 [18..], tag 1, default i64::MAX;
    }
    ForgottenTopic {
        #[ignorable] topic: Str [7..=12];
        #[ignorable] topic_id: TopicId [13..];
        partitions: Vec<i32> [7..];
    }
}

schema! {
    FetchResponse, versions 4..=18, flexible 12 {
        #[ignorable] throttle_time_ms: i32 [1..];
        #[ignorable] error_code: ErrorCode [7..];
        session_id: i32 [7..];
        responses: Vec<FetchableTopicResponse> [0..];
        node_endpoints: Vec<NodeEndpoint> [16..], tag 0;
    }
    FetchableTopicResponse {
        #[ignorable] topic: Str [0..=12];
        #[ignorable] topic_id: TopicId [13..];
        partitions: Vec<PartitionData> [0..];
    }
    PartitionData {
        partition_index: i32 [0..];
        error_code: ErrorCode [0..];
        high_watermark: i64 [0..];
        #[ignorable] last_stable_offset: i64 [4..], default -1;
        #[ignorable] log_start_offset: i64 [5..], default -1;
        #[ignorable] aborted_transactions: Option<Vec<AbortedTransaction>> [4..];
        preferred_read_replica: i32 [11..], default -1;
        records: Option<Records> [0..];
        diverging_epoch: EpochEndOffset [12..], tag 0;
        current_leader: LeaderIdAndEpoch [12..], tag 1;
        snapshot_id: SnapshotId [12..], tag 2;
    }
    EpochEndOffset {
        epoch: i32 [12..], default -1;
        end_offset: i64 [12..], default -1;
    }
    LeaderIdAndEpoch {
        leader_id: i32 [12..], default -1;
        leader_epoch: i32 [12..], default -1;
    }
    SnapshotId {
        end_offset: i64 [0..], default -1;
        epoch: i32 [0..], default -1;
    }
    AbortedTransaction {
        producer_id: i64 [4..];
        first_offset: i64 [4..];
    }
    NodeEndpoint {
        node_id: i32 [16..];
        host: Str [16..];
        port: i32 [16..];
        rack: Option<Str> [16..];
    }
}
