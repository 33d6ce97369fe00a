//! ListGroups (key 16), versions 0-5.
//!
//! v3 flexible; v4 filter by state (KIP-518); v5 filter by type (KIP-848). All groups are classic.

use std::collections::BTreeSet;

use tidemill_wire::{
    ErrorCode, Str,
    messages::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup},
};

use super::{Context, Outcome};
use crate::groups::cell::Cell;

const CLASSIC: &str = "classic";

pub(super) async fn handle(
    context: Context,
    request: ListGroupsRequest,
) -> Outcome<ListGroupsResponse> {
    if context.fresh().await.is_err() {
        return Outcome::Close;
    }
    let (states, types) = (set(&request.states_filter), set(&request.types_filter));
    let named = |filter: &BTreeSet<String>, name: &str| {
        filter.is_empty() || filter.contains(&name.to_ascii_lowercase())
    };
    let view = |cell: &Cell| {
        let group = &cell.machine;
        let wanted = named(&states, group.state().name());
        (wanted && !cell.is_void()).then(|| ListedGroup {
            group_id: group.id.clone().into(),
            protocol_type: group.protocol_type().unwrap_or_default().to_owned().into(),
            group_state: group.state().name().into(),
            group_type: CLASSIC.into(),
        })
    };
    let groups = if named(&types, CLASSIC) {
        context.broker.coordinator().views(view)
    } else {
        Ok(Vec::new())
    };
    let error_code = context.error(groups.as_ref().err().copied().unwrap_or(ErrorCode::NONE));
    let groups = groups.unwrap_or_default().into_iter().flatten().collect();
    ListGroupsResponse {
        error_code,
        groups,
        ..ListGroupsResponse::default()
    }
    .into()
}

/// A filter, case ignored.
fn set(filter: &[Str]) -> BTreeSet<String> {
    filter
        .iter()
        .map(|name| name.to_ascii_lowercase())
        .collect()
}
