//! InitProducerId: API key 22.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    InitProducerIdRequest, versions 0..=5, flexible 2 {
        transactional_id: Option<Str> [0..];
        transaction_timeout_ms: i32 [0..];
        producer_id: i64 [3..], default -1;
        producer_epoch: i16 [3..], default -1;
        enable2_pc: bool [6..];
        keep_prepared_txn: bool [6..];
    }
}

schema! {
    InitProducerIdResponse, versions 0..=5, flexible 2 {
        #[ignorable] throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        producer_id: i64 [0..], default -1;
        producer_epoch: i16 [0..];
        ongoing_txn_producer_id: i64 [6..], default -1;
        ongoing_txn_producer_epoch: i16 [6..], default -1;
    }
}
