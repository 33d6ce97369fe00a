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
        let deleted = if group_id.is_empty() {
            Err(ErrorCode::INVALID_GROUP_ID)
        } else if coordinator.is_led() {
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
