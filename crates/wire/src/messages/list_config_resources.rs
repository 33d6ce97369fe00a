//! ListConfigResources: API key 74.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    ListConfigResourcesRequest, versions 0..=1, flexible 0 {
        resource_types: Vec<i8> [1..];
    }
}

schema! {
    ListConfigResourcesResponse, versions 0..=1, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        config_resources: Vec<ConfigResource> [0..];
    }
    ConfigResource {
        resource_name: Str [0..];
        #[ignorable] resource_type: i8 [1..], default 16;
    }
}
