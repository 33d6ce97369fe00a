//! ExpireDelegationToken: API key 40.

use bytes::Bytes;

use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    ExpireDelegationTokenRequest, versions 1..=2, flexible 2 {
        hmac: Bytes [0..];
        expiry_time_period_ms: i64 [0..];
    }
}

schema! {
    ExpireDelegationTokenResponse, versions 1..=2, flexible 2 {
        error_code: ErrorCode [0..];
        expiry_timestamp_ms: i64 [0..];
        throttle_time_ms: i32 [0..];
    }
}
