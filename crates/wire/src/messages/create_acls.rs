//! CreateAcls: API key 30.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    CreateAclsRequest, versions 1..=3, flexible 2 {
        creations: Vec<AclCreation> [0..];
    }
    AclCreation {
        resource_type: i8 [0..];
        resource_name: Str [0..];
        resource_pattern_type: i8 [1..], default 3;
        principal: Str [0..];
        host: Str [0..];
        operation: i8 [0..];
        permission_type: i8 [0..];
    }
}

schema! {
    CreateAclsResponse, versions 1..=3, flexible 2 {
        throttle_time_ms: i32 [0..];
        results: Vec<AclCreationResult> [0..];
    }
    AclCreationResult {
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
