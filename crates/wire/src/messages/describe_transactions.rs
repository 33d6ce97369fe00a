//! DescribeTransactions: API key 65.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DescribeTransactionsRequest, versions 0..=0, flexible 0 {
        transactional_ids: Vec<Str> [0..];
    }
}

schema! {
    DescribeTransactionsResponse, versions 0..=0, flexible 0 {
        throttle_time_ms: i32 [0..];
        transaction_states: Vec<TransactionState> [0..];
    }
    TransactionState {
        error_code: ErrorCode [0..];
        transactional_id: Str [0..];
        transaction_state: Str [0..];
        transaction_timeout_ms: i32 [0..];
        transaction_start_time_ms: i64 [0..];
        producer_id: i64 [0..];
        producer_epoch: i16 [0..];
        topics: Vec<TopicData> [0..];
    }
    TopicData {
        topic: Str [0..];
        partitions: Vec<i32> [0..];
    }
}
