//! Heartbeat (key 12), versions 0-4.
//!
//! v1 throttle time; v3 static members; v4 flexible. Nothing is written for a heartbeat.

use tidemill_wire::{
    ErrorCode,
    messages::heartbeat::{HeartbeatRequest, HeartbeatResponse},
};

use super::{Context, Outcome};

pub(super) async fn handle(
    context: Context,
    request: HeartbeatRequest,
) -> Outcome<HeartbeatResponse> {
    let coordinator = context.broker.coordinator();
    let instance_id = request.group_instance_id.as_deref();
    // Counted before the proof below: a store that does not answer must not cost a session.
    let beat = coordinator
        .heartbeat(
            &request.group_id,
            &request.member_id,
            instance_id,
            request.generation_id,
        )
        .await;
    if context.fresh_within().await.is_err() {
        return Outcome::Close;
    }
    let error_code = context.error(beat.err().unwrap_or(ErrorCode::NONE));
    HeartbeatResponse {
        error_code,
        ..HeartbeatResponse::default()
    }
    .into()
}
