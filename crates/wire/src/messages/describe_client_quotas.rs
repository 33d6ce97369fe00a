//! DescribeClientQuotas: API key 48.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    DescribeClientQuotasRequest, versions 0..=1, flexible 1 {
        components: Vec<ComponentData> [0..];
        strict: bool [0..];
    }
    ComponentData {
        entity_type: Str [0..];
        match_type: i8 [0..];
        r#match: Option<Str> [0..];
    }
}

schema! {
    DescribeClientQuotasResponse, versions 0..=1, flexible 1 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
        entries: Option<Vec<EntryData>> [0..];
    }
    EntryData {
        entity: Vec<EntityData> [0..];
        values: Vec<ValueData> [0..];
    }
    EntityData {
        entity_type: Str [0..];
        entity_name: Option<Str> [0..];
    }
    ValueData {
        key: Str [0..];
        value: f64 [0..];
    }
}
