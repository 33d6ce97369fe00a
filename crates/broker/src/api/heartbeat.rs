//! Heartbeat (key 12), versions 0-4.
//!
//! v1 throttle time; v3 static members; v4 flexible. Nothing is written for a heartbeat.

use std::time::Duration;

use tidemill_wire::{
    ErrorCode,
    messages::heartbeat::{HeartbeatRequest, HeartbeatResponse},
};

use super::{Context, Outcome};

pub(super) async fn handle(
    context: Context,
    request: HeartbeatRequest,
) -> Outcome<HeartbeatResponse> {
    if request.group_id.is_empty() {
        return answer(&context, ErrorCode::INVALID_GROUP_ID).into();
    }
    let coordinator = context.broker.coordinator();
    let instance_id = request.group_instance_id.as_deref();
    let beat = |waited| {
        coordinator.heartbeat(
            &request.group_id,
            &request.member_id,
            instance_id,
            request.generation_id,
            waited,
        )
    };
    // Counted before the proof below: a store that does not answer must not cost a session.
    let mut beaten = beat(Duration::ZERO).await;
    let clock = &context.broker.runtime().clock;
    let before = clock.monotonic();
    if context.fresh_within().await.is_err() {
        return Outcome::Close;
    }
    let waited = clock.monotonic() - before;
    if !waited.is_zero() {
        // And after it: the client could not beat again while it waited for this answer.
        beaten = beat(waited).await;
    }
    answer(&context, beaten.err().unwrap_or(ErrorCode::NONE)).into()
}

fn answer(context: &Context, code: ErrorCode) -> HeartbeatResponse {
    HeartbeatResponse {
        error_code: context.error(code),
        ..HeartbeatResponse::default()
    }
}
