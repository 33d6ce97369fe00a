//! IncrementalAlterConfigs: API key 44.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    IncrementalAlterConfigsRequest, versions 0..=1, flexible 1 {
        resources: Vec<AlterConfigsResource> [0..];
        validate_only: bool [0..];
    }
    AlterConfigsResource {
        resource_type: i8 [0..];
        resource_name: Str [0..];
        configs: Vec<AlterableConfig> [0..];
    }
    AlterableConfig {
        name: Str [0..];
        config_operation: i8 [0..];
        value: Option<Str> [0..];
    }
}

schema! {
    IncrementalAlterConfigsResponse, versions 0..=1, flexible 1 {
        throttle_time_ms: i32 [0..];
        responses: Vec<AlterConfigsResourceResponse> [0..];
    }
    AlterConfigsResourceResponse {
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        resource_type: i8 [0..];
        resource_name: Str [0..];
    }
}
