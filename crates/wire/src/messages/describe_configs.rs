//! DescribeConfigs: API key 32.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DescribeConfigsRequest, versions 1..=4, flexible 4 {
        resources: Vec<DescribeConfigsResource> [0..];
        include_synonyms: bool [1..];
        include_documentation: bool [3..];
    }
    DescribeConfigsResource {
        resource_type: i8 [0..];
        resource_name: Str [0..];
        configuration_keys: Option<Vec<Str>> [0..];
    }
}

schema! {
    DescribeConfigsResponse, versions 1..=4, flexible 4 {
        throttle_time_ms: i32 [0..];
        results: Vec<DescribeConfigsResult> [0..];
    }
    DescribeConfigsResult {
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        resource_type: i8 [0..];
        resource_name: Str [0..];
        configs: Vec<DescribeConfigsResourceResult> [0..];
    }
    DescribeConfigsResourceResult {
        name: Str [0..];
        value: Option<Str> [0..];
        read_only: bool [0..];
        #[ignorable] config_source: i8 [1..], default -1;
        is_sensitive: bool [0..];
        #[ignorable] synonyms: Vec<DescribeConfigsSynonym> [1..];
        #[ignorable] config_type: i8 [3..];
        #[ignorable] documentation: Option<Str> [3..];
    }
    DescribeConfigsSynonym {
        name: Str [1..];
        value: Option<Str> [1..];
        source: i8 [1..];
    }
}
