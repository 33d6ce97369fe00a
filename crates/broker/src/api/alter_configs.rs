//! AlterConfigs (key 33), versions 0-2.
//!
//! v2 flexible. Replaces all of a resource's configuration: what is not named goes back to its
//! default.

use tidemill_wire::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse,
};

use super::Context;
use crate::alter::{Edit, How, alter};

pub(super) async fn handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let edits: Vec<_> = request
        .resources
        .into_iter()
        .map(|resource| {
            let configs = resource.configs.into_iter();
            let configs = configs.map(|config| (config.name.into(), config.value.map(Into::into)));
            Edit {
                kind: resource.resource_type,
                name: resource.resource_name.into(),
                how: How::Replace(configs.collect()),
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
    AlterConfigsResponse {
        responses: responses.collect(),
        ..AlterConfigsResponse::default()
    }
}
