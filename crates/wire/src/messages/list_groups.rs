//! ListGroups: API key 16.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    ListGroupsRequest, versions 0..=5, flexible 3 {
        states_filter: Vec<Str> [4..];
        types_filter: Vec<Str> [5..];
    }
}

schema! {
    ListGroupsResponse, versions 0..=5, flexible 3 {
        #[ignorable] throttle_time_ms: i32 [1..];
        error_code: ErrorCode [0..];
        groups: Vec<ListedGroup> [0..];
    }
    ListedGroup {
        group_id: Str [0..];
        protocol_type: Str [0..];
        #[ignorable] group_state: Str [4..];
        #[ignorable] group_type: Str [5..];
    }
}
