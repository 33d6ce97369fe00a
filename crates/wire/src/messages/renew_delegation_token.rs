//! RenewDelegationToken: API key 39.

use bytes::Bytes;

use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    RenewDelegationTokenRequest, versions 1..=2, flexible 2 {
        hmac: Bytes [0..];
        renew_period_ms: i64 [0..];
    }
}

schema! {
    RenewDelegationTokenResponse, versions 1..=2, flexible 2 {
        error_code: ErrorCode [0..];
        expiry_timestamp_ms: i64 [0..];
        throttle_time_ms: i32 [0..];
    }
}
