//! AddOffsetsToTxn: API key 25.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    AddOffsetsToTxnRequest, versions 0..=4, flexible 3 {
        transactional_id: Str [0..];
        producer_id: i64 [0..];
        producer_epoch: i16 [0..];
        group_id: Str [0..];
    }
}

schema! {
    AddOffsetsToTxnResponse, versions 0..=4, flexible 3 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
    }
}
