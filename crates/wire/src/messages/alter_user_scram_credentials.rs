//! AlterUserScramCredentials: API key 51.

use bytes::Bytes;

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    AlterUserScramCredentialsRequest, versions 0..=0, flexible 0 {
        deletions: Vec<ScramCredentialDeletion> [0..];
        upsertions: Vec<ScramCredentialUpsertion> [0..];
    }
    ScramCredentialDeletion {
        name: Str [0..];
        mechanism: i8 [0..];
    }
    ScramCredentialUpsertion {
        name: Str [0..];
        mechanism: i8 [0..];
        iterations: i32 [0..];
        salt: Bytes [0..];
        salted_password: Bytes [0..];
    }
}

schema! {
    AlterUserScramCredentialsResponse, versions 0..=0, flexible 0 {
        throttle_time_ms: i32 [0..];
        results: Vec<AlterUserScramCredentialsResult> [0..];
    }
    AlterUserScramCredentialsResult {
        user: Str [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
