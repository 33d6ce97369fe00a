//! IncrementalAlterConfigs (key 44), versions 0-1.
//!
//! v1 flexible. Sets, deletes, appends to and subtracts from single keys; a resource is changed
//! as a whole or not at all.

use tidemill_wire::messages::incremental_alter_configs::{
    AlterConfigsResourceResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::Context;
use crate::alter::{Edit, How, answered};

pub(super) async fn handle(
    context: Context,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let edits: Vec<_> = request
        .resources
        .into_iter()
        .map(|resource| {
            let changes = resource.configs.into_iter().map(|config| {
                (
                    config.name.into(),
                    config.config_operation,
                    config.value.map(Into::into),
                )
            });
            Edit {
                kind: resource.resource_type,
                name: resource.resource_name.into(),
                how: How::Change(changes.collect()),
            }
        })
        .collect();
    let responses = answered(&context, edits, request.validate_only).await;
    let responses = responses.map(|done| AlterConfigsResourceResponse {
        resource_type: done.kind,
        resource_name: done.name,
        error_code: done.code,
        error_message: done.message,
    });
    IncrementalAlterConfigsResponse {
        responses: responses.collect(),
        ..IncrementalAlterConfigsResponse::default()
    }
}
