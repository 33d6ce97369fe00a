//! DescribeGroups (key 15), versions 0-6.
//!
//! v3 authorized operations; v4 static members; v5 flexible; v6 GROUP_ID_NOT_FOUND with a message
//! instead of a dead group.

use std::collections::BTreeSet;

use tidemill_wire::{
    ErrorCode, Str,
    messages::describe_groups::{
        DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
    },
};

use super::{Context, Outcome};
use crate::groups::{cell::Cell, machine::GroupState, member::Member};

/// The first version in which an unknown group is an error.
const NOT_FOUND_FROM: i16 = 6;
/// Read, delete, describe, and describe and alter configurations (KIP-430), as bits.
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

pub(super) async fn handle(
    context: Context,
    request: DescribeGroupsRequest,
) -> Outcome<DescribeGroupsResponse> {
    if context.fresh().await.is_err() {
        return Outcome::Close;
    }
    let mut groups = Vec::with_capacity(request.groups.len());
    let mut seen = BTreeSet::new();
    for id in request.groups {
        let mut group = if seen.insert(id.clone()) {
            one(&context, id).await
        } else {
            // All its members again for a few bytes.
            refused(&context, id, ErrorCode::INVALID_REQUEST)
        };
        if request.include_authorized_operations {
            group.authorized_operations = GROUP_OPERATIONS;
        }
        groups.push(group);
    }
    DescribeGroupsResponse {
        groups,
        ..DescribeGroupsResponse::default()
    }
    .into()
}

async fn one(context: &Context, id: Str) -> DescribedGroup {
    let coordinator = context.broker.coordinator();
    if !coordinator.is_led() {
        return unknown(context, id);
    }
    let view = |cell: &Cell| (!cell.is_void()).then(|| describe(cell));
    match coordinator.view(&id, view).await {
        Ok(Some(Some(group))) => group,
        Ok(_) => unknown(context, id),
        Err(code) => refused(context, id, code),
    }
}

fn describe(cell: &Cell) -> DescribedGroup {
    let group = &cell.machine;
    let is_stable = group.state() == GroupState::Stable;
    let protocol = group
        .protocol_name()
        .filter(|_| is_stable)
        .unwrap_or_default();
    let member = |member: &Member| DescribedGroupMember {
        member_id: member.id.clone().into(),
        group_instance_id: member.instance_id.clone().map(Str::from),
        client_id: member.client_id.clone().into(),
        client_host: member.client_host.clone().into(),
        member_metadata: if is_stable {
            member.metadata(protocol)
        } else {
            bytes::Bytes::new()
        },
        member_assignment: if is_stable {
            member.assignment.clone()
        } else {
            bytes::Bytes::new()
        },
    };
    DescribedGroup {
        group_id: group.id.clone().into(),
        group_state: group.state().name().into(),
        protocol_type: group.protocol_type().unwrap_or_default().to_owned().into(),
        protocol_data: protocol.to_owned().into(),
        members: group.members().map(member).collect(),
        ..DescribedGroup::default()
    }
}

fn unknown(context: &Context, id: Str) -> DescribedGroup {
    if context.version < NOT_FOUND_FROM {
        return DescribedGroup {
            group_id: id,
            group_state: GroupState::Dead.name().into(),
            ..DescribedGroup::default()
        };
    }
    let message = format!("group `{id}` does not exist");
    DescribedGroup {
        error_message: Some(message.into()),
        group_state: GroupState::Dead.name().into(),
        ..refused(context, id, ErrorCode::GROUP_ID_NOT_FOUND)
    }
}

fn refused(context: &Context, group_id: Str, code: ErrorCode) -> DescribedGroup {
    DescribedGroup {
        error_code: context.error(code),
        group_id,
        ..DescribedGroup::default()
    }
}
