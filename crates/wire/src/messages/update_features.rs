//! UpdateFeatures: API key 57.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    UpdateFeaturesRequest, versions 0..=2, flexible 0 {
        timeout_ms: i32 [0..], default 60000;
        feature_updates: Vec<FeatureUpdateKey> [0..];
        validate_only: bool [1..];
    }
    FeatureUpdateKey {
        feature: Str [0..];
        max_version_level: i16 [0..];
        allow_downgrade: bool [0];
        upgrade_type: i8 [1..], default 1;
    }
}

schema! {
    UpdateFeaturesResponse, versions 0..=2, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        #[ignorable] results: Vec<UpdatableFeatureResult> [0..=1];
    }
    UpdatableFeatureResult {
        feature: Str [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
