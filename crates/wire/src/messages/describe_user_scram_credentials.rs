//! DescribeUserScramCredentials: API key 50.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DescribeUserScramCredentialsRequest, versions 0..=0, flexible 0 {
        users: Option<Vec<UserName>> [0..];
    }
    UserName {
        name: Str [0..];
    }
}

schema! {
    DescribeUserScramCredentialsResponse, versions 0..=0, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        results: Vec<DescribeUserScramCredentialsResult> [0..];
    }
    DescribeUserScramCredentialsResult {
        user: Str [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        credential_infos: Vec<CredentialInfo> [0..];
    }
    CredentialInfo {
        mechanism: i8 [0..];
        iterations: i32 [0..];
    }
}
