//! ApiVersions: API key 18.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    ApiVersionsRequest, versions 0..=5, flexible 3 {
        #[ignorable] client_software_name: Str [3..];
        #[ignorable] client_software_version: Str [3..];
        #[ignorable] cluster_id: Option<Str> [5..];
        #[ignorable] node_id: i32 [5..], default -1;
    }
}

schema! {
    ApiVersionsResponse, versions 0..=5, flexible 3 {
        error_code: ErrorCode [0..];
        api_keys: Vec<ApiVersion> [0..];
        #[ignorable] throttle_time_ms: i32 [1..];
        #[ignorable] supported_features: Vec<SupportedFeatureKey> [3..], tag 0;
        #[ignorable] finalized_features_epoch: i64 [3..], tag 1, default -1;
        #[ignorable] finalized_features: Vec<FinalizedFeatureKey> [3..], tag 2;
        #[ignorable] zk_migration_ready: bool [3..], tag 3;
    }
    ApiVersion {
        api_key: i16 [0..];
        min_version: i16 [0..];
        max_version: i16 [0..];
    }
    SupportedFeatureKey {
        name: Str [3..];
        min_version: i16 [3..];
        max_version: i16 [3..];
    }
    FinalizedFeatureKey {
        name: Str [3..];
        max_version_level: i16 [3..];
        min_version_level: i16 [3..];
    }
}
