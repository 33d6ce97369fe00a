//! SaslHandshake: API key 17.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::{NEVER, schema};

schema! {
    SaslHandshakeRequest, versions 0..=1, flexible NEVER {
        mechanism: Str [0..];
    }
}

schema! {
    SaslHandshakeResponse, versions 0..=1, flexible NEVER {
        error_code: ErrorCode [0..];
        mechanisms: Vec<Str> [0..];
    }
}
