//! JoinGroup: API key 11.

use bytes::Bytes;

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    JoinGroupRequest, versions 0..=9, flexible 6 {
        group_id: Str [0..];
        session_timeout_ms: i32 [0..];
        #[ignorable] rebalance_timeout_ms: i32 [1..], default -1;
        member_id: Str [0..];
        group_instance_id: Option<Str> [5..];
        protocol_type: Str [0..];
        protocols: Vec<JoinGroupRequestProtocol> [0..];
        #[ignorable] reason: Option<Str> [8..];
    }
    JoinGroupRequestProtocol {
        name: Str [0..];
        metadata: Bytes [0..];
    }
}

schema! {
    JoinGroupResponse, versions 0..=9, flexible 6 {
        #[ignorable] throttle_time_ms: i32 [2..];
        error_code: ErrorCode [0..];
        generation_id: i32 [0..], default -1;
        #[ignorable] protocol_type: Option<Str> [7..];
        protocol_name: Option<Str> [0..], null [7..];
        leader: Str [0..];
        skip_assignment: bool [9..];
        member_id: Str [0..];
        members: Vec<JoinGroupResponseMember> [0..];
    }
    JoinGroupResponseMember {
        member_id: Str [0..];
        #[ignorable] group_instance_id: Option<Str> [5..];
        metadata: Bytes [0..];
    }
}
