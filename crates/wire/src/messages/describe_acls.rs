//! DescribeAcls: API key 29.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DescribeAclsRequest, versions 1..=3, flexible 2 {
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
    DescribeAclsResponse, versions 1..=3, flexible 2 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        resources: Vec<DescribeAclsResource> [0..];
    }
    DescribeAclsResource {
        resource_type: i8 [0..];
        resource_name: Str [0..];
        pattern_type: i8 [1..], default 3;
        acls: Vec<AclDescription> [0..];
    }
    AclDescription {
        principal: Str [0..];
        host: Str [0..];
        operation: i8 [0..];
        permission_type: i8 [0..];
    }
}
