//! Transactions in `__transaction_state`: key type 0.

use crate::codec::Str;
use crate::schema::{NEVER, schema};

schema! {
    TransactionLogKey, versions 0..=0, flexible NEVER {
        transactional_id: Str [0];
    }
}

schema! {
    TransactionLogValue, versions 0..=1, flexible 1 {
        producer_id: i64 [0..];
        producer_epoch: i16 [0..];
        transaction_timeout_ms: i32 [0..];
        transaction_status: i8 [0..];
        transaction_partitions: Option<Vec<PartitionsSchema>> [0..];
        transaction_last_update_timestamp_ms: i64 [0..];
        transaction_start_timestamp_ms: i64 [0..];
        previous_producer_id: i64 [1..], tag 0, default -1;
        next_producer_id: i64 [1..], tag 1, default -1;
        client_transaction_version: i16 [1..], tag 2;
        next_producer_epoch: i16 [1..], tag 3, default -1;
    }
    PartitionsSchema {
        topic: Str [0..];
        partition_ids: Vec<i32> [0..];
    }
}
