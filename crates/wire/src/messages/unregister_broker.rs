//! UnregisterBroker: API key 64.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    UnregisterBrokerRequest, versions 0..=0, flexible 0 {
        broker_id: i32 [0..];
    }
}

schema! {
    UnregisterBrokerResponse, versions 0..=0, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
