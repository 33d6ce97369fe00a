//! AlterConfigs (key 33), versions 0-2.
//!
//! v2 flexible. Replaces all of a resource's configuration: what is not named goes back to its
//! default.

use tidemill_wire::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse,
};

use super::Context;
use crate::alter::{Edit, How, answered};

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
    let responses = answered(&context, edits, request.validate_only).await;
    let responses = responses.map(|done| AlterConfigsResourceResponse {
        resource_type: done.kind,
        resource_name: done.name,
        error_code: done.code,
        error_message: done.message,
    });
    AlterConfigsResponse {
        responses: responses.collect(),
        ..AlterConfigsResponse::default()
    }
}
