//! DeleteGroups (key 42), versions 0-2.
//!
//! v2 flexible. Groups with members stay.

use tidemill_wire::{
    ErrorCode,
    messages::delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse},
};

use super::Context;

pub(super) async fn handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let coordinator = context.broker.coordinator();
    let mut results = Vec::with_capacity(request.groups_names.len());
    for group_id in request.groups_names {
        // The empty id is one like others here: old simple consumers commit under it.
        let deleted = if coordinator.is_led() {
            coordinator.delete(&group_id).await
        } else {
            Err(ErrorCode::GROUP_ID_NOT_FOUND)
        };
        let error_code = context.error(deleted.err().unwrap_or(ErrorCode::NONE));
        results.push(DeletableGroupResult {
            group_id,
            error_code,
            ..DeletableGroupResult::default()
        });
    }
    DeleteGroupsResponse {
        results,
        ..DeleteGroupsResponse::default()
    }
}
