//! Offsets in `__consumer_offsets`: key type 1.

use crate::codec::Str;
use crate::ids::TopicId;
use crate::schema::{NEVER, schema};

schema! {
    OffsetCommitKey, versions 0..=0, flexible NEVER {
        group: Str [0];
        topic: Str [0];
        partition: i32 [0];
    }
}

schema! {
    OffsetCommitValue, versions 0..=4, flexible 4 {
        offset: i64 [0..];
        #[ignorable] leader_epoch: i32 [3..], default -1;
        metadata: Str [0..];
        commit_timestamp: i64 [0..];
        #[ignorable] expire_timestamp: i64 [1], default -1;
        #[ignorable] topic_id: TopicId [4..], tag 0;
    }
}
