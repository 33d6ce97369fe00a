//! SaslAuthenticate: API key 36.

use bytes::Bytes;

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    SaslAuthenticateRequest, versions 0..=2, flexible 2 {
        auth_bytes: Bytes [0..];
    }
}

schema! {
    SaslAuthenticateResponse, versions 0..=2, flexible 2 {
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        auth_bytes: Bytes [0..];
        #[ignorable] session_lifetime_ms: i64 [1..];
    }
}
