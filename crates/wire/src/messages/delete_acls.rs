//! DeleteAcls: API key 31.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DeleteAclsRequest, versions 1..=3, flexible 2 {
        filters: Vec<DeleteAclsFilter> [0..];
    }
    DeleteAclsFilter {
        resource_type_filter: i8 [0..];
        resource_name_filter: Option<Str> [0..];
        pattern_type_filter: i8 [1..], default 3;
        principal_filter: Option<Str> [0..];
        host_filter: Option<Str> [0..];
        operation: i8 [0..];
        permission_type: i8 [0..];
    }
}

schema! {
    DeleteAclsResponse, versions 1..=3, flexible 2 {
        throttle_time_ms: i32 [0..];
        filter_results: Vec<DeleteAclsFilterResult> [0..];
    }
    DeleteAclsFilterResult {
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        matching_acls: Vec<DeleteAclsMatchingAcl> [0..];
    }
    DeleteAclsMatchingAcl {
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        resource_type: i8 [0..];
        resource_name: Str [0..];
        pattern_type: i8 [1..], default 3;
        principal: Str [0..];
        host: Str [0..];
        operation: i8 [0..];
        permission_type: i8 [0..];
    }
}
