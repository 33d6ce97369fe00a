//! DescribeDelegationToken: API key 41.

use bytes::Bytes;

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DescribeDelegationTokenRequest, versions 1..=3, flexible 2 {
        owners: Option<Vec<DescribeDelegationTokenOwner>> [0..];
    }
    DescribeDelegationTokenOwner {
        principal_type: Str [0..];
        principal_name: Str [0..];
    }
}

schema! {
    DescribeDelegationTokenResponse, versions 1..=3, flexible 2 {
        error_code: ErrorCode [0..];
        tokens: Vec<DescribedDelegationToken> [0..];
        throttle_time_ms: i32 [0..];
    }
    DescribedDelegationToken {
        principal_type: Str [0..];
        principal_name: Str [0..];
        token_requester_principal_type: Str [3..];
        token_requester_principal_name: Str [3..];
        issue_timestamp: i64 [0..];
        expiry_timestamp: i64 [0..];
        max_timestamp: i64 [0..];
        token_id: Str [0..];
        hmac: Bytes [0..];
        renewers: Vec<DescribedDelegationTokenRenewer> [0..];
    }
    DescribedDelegationTokenRenewer {
        principal_type: Str [0..];
        principal_name: Str [0..];
    }
}
