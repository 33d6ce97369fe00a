//! IncrementalAlterConfigs (key 44), versions 0-1.
//!
//! v1 flexible. Sets, deletes, appends to and subtracts from single keys; a resource is changed
//! as a whole or not at all.

use tidemill_wire::messages::incremental_alter_configs::{
    AlterConfigsResourceResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::Context;
use crate::alter::{Edit, How, alter};

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
    let named: Vec<_> = edits
        .iter()
        .map(|edit| (edit.kind, edit.name.clone()))
        .collect();
    let outcomes = alter(&context.broker, edits, request.validate_only).await;
    let responses = named
        .into_iter()
        .zip(outcomes)
        .map(|((resource_type, name), outcome)| {
            let mut response = AlterConfigsResourceResponse {
                resource_type,
                resource_name: name.into(),
                ..AlterConfigsResourceResponse::default()
            };
            if let Err(refusal) = outcome {
                response.error_code = context.error(refusal.code);
                response.error_message = refusal.text();
            }
            response
        });
    let responses = responses.collect();
    IncrementalAlterConfigsResponse {
        responses,
        ..IncrementalAlterConfigsResponse::default()
    }
}
