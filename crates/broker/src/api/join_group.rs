//! JoinGroup (key 11), versions 0-9.
//!
//! v1 rebalance time-out; v4 a member id is required first (KIP-394); v5 static members (KIP-345);
//! v6 flexible; v7 protocol type; v8 reason (logged by nobody, so left out); v9 skip_assignment
//! (KIP-814).

use std::time::Duration;

use tidemill_wire::{
    ErrorCode, Str,
    messages::join_group::{
        JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember,
    },
};

use super::{Context, Outcome};
use crate::groups::{
    join::Join,
    machine::{JoinRefused, Joined, Reply},
    member::Protocol,
};

/// The first version with a rebalance time-out of its own.
const REBALANCE_TIMEOUT_FROM: i16 = 1;
/// The first version that must know its member id.
const KNOWN_ID_FROM: i16 = 4;
/// The first version in which the leader may be told to keep the assignment.
const SKIP_FROM: i16 = 9;

pub(super) async fn handle(
    context: Context,
    request: JoinGroupRequest,
) -> Outcome<JoinGroupResponse> {
    let member_id = request.member_id.clone();
    if request.group_id.is_empty() {
        return refused(&context, ErrorCode::INVALID_GROUP_ID, member_id).into();
    }
    if let Err(code) = context.broker.ensure_offsets_topic().await {
        return refused(&context, code, member_id).into();
    }
    let coordinator = context.broker.coordinator().clone();
    let group = request.group_id.to_string();
    let instance_id = request.group_instance_id.clone();
    let is_known = !request.member_id.is_empty();
    let join = |reply| join(&context, reply, request);
    // A rebalance may take minutes; a broker that stops does not wait for it.
    let result = tokio::select! {
        biased;
        result = coordinator.join(&group, is_known, join) => result,
        () = context.broker.draining() => return Outcome::Close,
    };
    let clock = &context.broker.runtime().clock;
    let before = clock.monotonic();
    if context.fresh().await.is_err() {
        return Outcome::Close;
    }
    if clock.monotonic() > before
        && let Ok(Ok(joined)) = &result
    {
        // The member's session begins with the answer, however long the proof took.
        let (id, instance) = (&joined.member_id, instance_id.as_deref());
        let beat = coordinator.heartbeat(&group, id, instance, joined.generation, Duration::ZERO);
        // If it is out already it will hear so from its first own beat.
        let _ = beat.await;
    }
    match result {
        Ok(Ok(joined)) => answer(&context, joined).into(),
        Ok(Err(JoinRefused { error, member_id })) => {
            refused(&context, ErrorCode(error.code()), member_id.into()).into()
        }
        Err(code) => refused(&context, code, member_id).into(),
    }
}

fn join(context: &Context, reply: Reply, request: JoinGroupRequest) -> Join {
    let name = request
        .group_instance_id
        .as_ref()
        .or(context.client_id.as_ref());
    let uuid = tidemill_wire::ids::TopicId(context.broker.runtime().entropy.uuid());
    let protocol = |protocol: JoinGroupRequestProtocol| Protocol {
        name: protocol.name.to_string(),
        metadata: bytes::Bytes::copy_from_slice(&protocol.metadata),
    };
    let rebalance_timeout_ms = match context.version {
        REBALANCE_TIMEOUT_FROM.. => request.rebalance_timeout_ms,
        _ => request.session_timeout_ms,
    };
    Join {
        reply,
        member_id: request.member_id.to_string(),
        fresh_id: format!("{}-{uuid}", name.map(Str::as_str).unwrap_or_default()),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        require_known_id: context.version >= KNOWN_ID_FROM,
        knows_skip: context.version >= SKIP_FROM,
        client_id: context.client_id.as_deref().unwrap_or_default().to_owned(),
        client_host: format!("/{}", context.peer.host()),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type: request.protocol_type.to_string(),
        protocols: request.protocols.into_iter().map(protocol).collect(),
    }
}

fn answer(context: &Context, joined: Joined) -> JoinGroupResponse {
    let members = joined
        .members
        .into_iter()
        .map(|member| JoinGroupResponseMember {
            member_id: member.member_id.into(),
            group_instance_id: member.instance_id.map(Str::from),
            metadata: member.metadata,
        });
    JoinGroupResponse {
        error_code: context.error(ErrorCode::NONE),
        generation_id: joined.generation,
        protocol_type: joined.protocol_type.map(Str::from),
        protocol_name: Some(joined.protocol_name.unwrap_or_default().into()),
        leader: joined.leader.into(),
        skip_assignment: joined.skip_assignment,
        member_id: joined.member_id.into(),
        members: members.collect(),
        ..JoinGroupResponse::default()
    }
}

fn refused(context: &Context, code: ErrorCode, member_id: Str) -> JoinGroupResponse {
    // Null protocol names are known from v7 only; older clients get an empty one.
    let protocol_name = (context.version < 7).then(Str::default);
    JoinGroupResponse {
        error_code: context.error(code),
        generation_id: -1,
        protocol_name,
        member_id,
        ..JoinGroupResponse::default()
    }
}
