//! Heartbeat: API key 12.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    HeartbeatRequest, versions 0..=4, flexible 4 {
        group_id: Str [0..];
        generation_id: i32 [0..];
        member_id: Str [0..];
        group_instance_id: Option<Str> [3..];
    }
}

schema! {
    HeartbeatResponse, versions 0..=4, flexible 4 {
        #[ignorable] throttle_time_ms: i32 [1..];
        error_code: ErrorCode [0..];
    }
}
