//! EndTxn: API key 26.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    EndTxnRequest, versions 0..=5, flexible 3 {
        transactional_id: Str [0..];
        producer_id: i64 [0..];
        producer_epoch: i16 [0..];
        committed: bool [0..];
    }
}

schema! {
    EndTxnResponse, versions 0..=5, flexible 3 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        #[ignorable] producer_id: i64 [5..], default -1;
        #[ignorable] producer_epoch: i16 [5..], default -1;
    }
}
