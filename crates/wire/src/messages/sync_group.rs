//! SyncGroup: API key 14.

use bytes::Bytes;

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    SyncGroupRequest, versions 0..=5, flexible 4 {
        group_id: Str [0..];
        generation_id: i32 [0..];
        member_id: Str [0..];
        group_instance_id: Option<Str> [3..];
        #[ignorable] protocol_type: Option<Str> [5..];
        #[ignorable] protocol_name: Option<Str> [5..];
        assignments: Vec<SyncGroupRequestAssignment> [0..];
    }
    SyncGroupRequestAssignment {
        member_id: Str [0..];
        assignment: Bytes [0..];
    }
}

schema! {
    SyncGroupResponse, versions 0..=5, flexible 4 {
        #[ignorable] throttle_time_ms: i32 [1..];
        error_code: ErrorCode [0..];
        #[ignorable] protocol_type: Option<Str> [5..];
        #[ignorable] protocol_name: Option<Str> [5..];
        assignment: Bytes [0..];
    }
}
