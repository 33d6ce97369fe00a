//! LeaveGroup (key 13), versions 0-5.
//!
//! v3 several members, static ones by instance id alone (KIP-345); v4 flexible; v5 reason (left
//! out).

use tidemill_wire::{
    ErrorCode,
    messages::leave_group::{
        LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse,
    },
};

use super::{Context, Outcome};
use crate::groups::session::Leave;

/// The first version with several members.
const MEMBERS_FROM: i16 = 3;

pub(super) async fn handle(
    context: Context,
    request: LeaveGroupRequest,
) -> Outcome<LeaveGroupResponse> {
    if request.group_id.is_empty() {
        return refused(&context, ErrorCode::INVALID_GROUP_ID).into();
    }
    let coordinator = context.broker.coordinator();
    let leave = |member: &MemberIdentity| Leave {
        member_id: member.member_id.to_string(),
        instance_id: member.group_instance_id.as_ref().map(ToString::to_string),
    };
    let leaving: Vec<Leave> = if context.version >= MEMBERS_FROM {
        request.members.iter().map(leave).collect()
    } else {
        vec![Leave {
            member_id: request.member_id.to_string(),
            instance_id: None,
        }]
    };
    let turn = context.group_turn().await;
    let left = coordinator.leave(&request.group_id, &leaving).await;
    drop(turn);
    if context.fresh().await.is_err() {
        return Outcome::Close;
    }
    let codes: Vec<ErrorCode> = match left {
        Ok(results) => {
            let code = |error: crate::groups::error::GroupError| ErrorCode(error.code());
            results
                .into_iter()
                .map(|left| left.err().map_or(ErrorCode::NONE, code))
                .collect()
        }
        Err(code) => return refused(&context, code).into(),
    };
    if context.version < MEMBERS_FROM {
        return refused(&context, codes.first().copied().unwrap_or_default()).into();
    }
    let answer = |(member, code): (MemberIdentity, ErrorCode)| MemberResponse {
        member_id: member.member_id,
        group_instance_id: member.group_instance_id,
        error_code: context.error(code),
    };
    LeaveGroupResponse {
        members: request.members.into_iter().zip(codes).map(answer).collect(),
        ..LeaveGroupResponse::default()
    }
    .into()
}

fn refused(context: &Context, code: ErrorCode) -> LeaveGroupResponse {
    LeaveGroupResponse {
        error_code: context.error(code),
        ..LeaveGroupResponse::default()
    }
}
