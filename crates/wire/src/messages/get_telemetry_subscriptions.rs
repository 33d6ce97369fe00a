//! GetTelemetrySubscriptions: API key 71.

use crate::codec::{Str, Uuid};
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    GetTelemetrySubscriptionsRequest, versions 0..=0, flexible 0 {
        client_instance_id: Uuid [0..];
    }
}

schema! {
    GetTelemetrySubscriptionsResponse, versions 0..=0, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        client_instance_id: Uuid [0..];
        subscription_id: i32 [0..];
        accepted_compression_types: Vec<i8> [0..];
        push_interval_ms: i32 [0..];
        telemetry_max_bytes: i32 [0..];
        delta_temporality: bool [0..];
        requested_metrics: Vec<Str> [0..];
    }
}
