//! SyncGroup (key 14), versions 0-5.
//!
//! v3 static members; v4 flexible; v5 protocol type and name, checked if given (KIP-559).

use tidemill_wire::{
    ErrorCode, Str,
    messages::sync_group::{SyncGroupRequest, SyncGroupResponse},
};

use super::{Context, Outcome};
use crate::groups::{machine::Reply, session::Sync};

/// The first version that must name the protocol.
const PROTOCOL_FROM: i16 = 5;

pub(super) async fn handle(
    context: Context,
    request: SyncGroupRequest,
) -> Outcome<SyncGroupResponse> {
    if request.group_id.is_empty() {
        return refused(&context, ErrorCode::INVALID_GROUP_ID).into();
    }
    let nameless = request.protocol_type.is_none() || request.protocol_name.is_none();
    if context.version >= PROTOCOL_FROM && nameless {
        return refused(&context, ErrorCode::INCONSISTENT_GROUP_PROTOCOL).into();
    }
    let coordinator = context.broker.coordinator().clone();
    let group = request.group_id.to_string();
    // The leader's assignment may never come; a broker that stops does not wait for it.
    let result = tokio::select! {
        biased;
        result = coordinator.sync(&group, |reply| sync(reply, request)) => result,
        () = context.broker.draining() => return Outcome::Close,
    };
    if context.fresh().await.is_err() {
        return Outcome::Close;
    }
    match result {
        Ok(Ok(synced)) => SyncGroupResponse {
            error_code: context.error(ErrorCode::NONE),
            protocol_type: synced.protocol_type.map(Str::from),
            protocol_name: synced.protocol_name.map(Str::from),
            assignment: synced.assignment,
            ..SyncGroupResponse::default()
        }
        .into(),
        Ok(Err(error)) => refused(&context, ErrorCode(error.code())).into(),
        Err(code) => refused(&context, code).into(),
    }
}

fn sync(reply: Reply, request: SyncGroupRequest) -> Sync {
    let assignments = request.assignments.into_iter().map(|assignment| {
        let bytes = bytes::Bytes::copy_from_slice(&assignment.assignment);
        (assignment.member_id.to_string(), bytes)
    });
    Sync {
        reply,
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        generation: request.generation_id,
        protocol_type: request.protocol_type.map(|text| text.to_string()),
        protocol_name: request.protocol_name.map(|text| text.to_string()),
        assignments: assignments.collect(),
    }
}

fn refused(context: &Context, code: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse {
        error_code: context.error(code),
        ..SyncGroupResponse::default()
    }
}
