//! DeleteGroups: API key 42.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DeleteGroupsRequest, versions 0..=3, flexible 2 {
        groups_names: Vec<Str> [0..];
    }
}

schema! {
    DeleteGroupsResponse, versions 0..=3, flexible 2 {
        throttle_time_ms: i32 [0..];
        results: Vec<DeletableGroupResult> [0..];
    }
    DeletableGroupResult {
        group_id: Str [0..];
        error_code: ErrorCode [0..];
        #[ignorable] error_message: Option<Str> [3..];
    }
}
