//! LeaveGroup: API key 13.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    LeaveGroupRequest, versions 0..=5, flexible 4 {
        group_id: Str [0..];
        member_id: Str [0..=2];
        members: Vec<MemberIdentity> [3..];
    }
    MemberIdentity {
        member_id: Str [3..];
        group_instance_id: Option<Str> [3..];
        #[ignorable] reason: Option<Str> [5..];
    }
}

schema! {
    LeaveGroupResponse, versions 0..=5, flexible 4 {
        #[ignorable] throttle_time_ms: i32 [1..];
        error_code: ErrorCode [0..];
        members: Vec<MemberResponse> [3..];
    }
    MemberResponse {
        member_id: Str [3..];
        group_instance_id: Option<Str> [3..];
        error_code: ErrorCode [3..];
    }
}
