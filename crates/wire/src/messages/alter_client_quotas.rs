//! AlterClientQuotas: API key 49.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    AlterClientQuotasRequest, versions 0..=1, flexible 1 {
        entries: Vec<EntryData> [0..];
        validate_only: bool [0..];
    }
    EntryData {
        entity: Vec<EntityData> [0..];
        ops: Vec<OpData> [0..];
    }
    EntityData {
        entity_type: Str [0..];
        entity_name: Option<Str> [0..];
    }
    OpData {
        key: Str [0..];
        value: f64 [0..];
        remove: bool [0..];
    }
}

schema! {
    AlterClientQuotasResponse, versions 0..=1, flexible 1 {
        throttle_time_ms: i32 [0..];
        entries: Vec<ResponseEntryData> [0..];
    }
    ResponseEntryData {
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        entity: Vec<EntityData> [0..];
    }
}
