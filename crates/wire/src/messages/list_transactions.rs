//! ListTransactions: API key 66.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    ListTransactionsRequest, versions 0..=2, flexible 0 {
        state_filters: Vec<Str> [0..];
        producer_id_filters: Vec<i64> [0..];
        duration_filter: i64 [1..], default -1;
        transactional_id_pattern: Option<Str> [2..];
    }
}

schema! {
    ListTransactionsResponse, versions 0..=2, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        unknown_state_filters: Vec<Str> [0..];
        transaction_states: Vec<TransactionState> [0..];
    }
    TransactionState {
        transactional_id: Str [0..];
        producer_id: i64 [0..];
        transaction_state: Str [0..];
    }
}
