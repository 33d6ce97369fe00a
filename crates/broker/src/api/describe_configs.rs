//! DescribeConfigs (key 32), versions 1-4.
//!
//! v1 sources and synonyms; v3 types and documentation; v4 flexible. Topics and this broker; a
//! broker's empty name shows what was set for all brokers (K61).

use std::collections::BTreeSet;

use tidemill_cluster::image::Topic;
use tidemill_wire::{
    ErrorCode, Str,
    messages::describe_configs::{
        DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
        DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
    },
};

use super::Context;
use crate::{
    alter::{BROKER, TOPIC, broker_named},
    config::{DescribedConfig, describe_broker, describe_default_broker, describe_topic},
    errors::Refusal,
    topics::{check_name, configs_of},
};

pub(super) async fn handle(
    context: Context,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let (synonyms, documentation) = (request.include_synonyms, request.include_documentation);
    let mut seen = BTreeSet::new();
    let results = request.resources.into_iter().map(|resource| {
        let found = if seen.insert((resource.resource_type, resource.resource_name.clone())) {
            find(&context, &resource)
        } else {
            // All of it again for a few bytes.
            let message = "a resource is named twice";
            Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
        };
        let DescribeConfigsResource {
            resource_type,
            resource_name,
            configuration_keys,
        } = resource;
        let mut result = DescribeConfigsResult {
            resource_type,
            resource_name,
            ..DescribeConfigsResult::default()
        };
        match found {
            Ok(configs) => {
                let keys: Option<BTreeSet<Str>> =
                    configuration_keys.map(|keys| keys.into_iter().collect());
                let wanted = |config: &DescribedConfig| {
                    let keys = keys.as_ref();
                    keys.is_none_or(|keys| keys.contains(config.name))
                };
                let configs = configs.into_iter().filter(wanted);
                let entry = |config| entry(config, synonyms, documentation);
                result.configs = configs.map(entry).collect();
            }
            Err(refusal) => {
                result.error_code = context.error(refusal.code);
                result.error_message = refusal.text();
            }
        }
        result
    });
    let results = results.collect();
    DescribeConfigsResponse {
        results,
        ..DescribeConfigsResponse::default()
    }
}

fn find(
    context: &Context,
    resource: &DescribeConfigsResource,
) -> Result<Vec<DescribedConfig>, Refusal> {
    let name = &resource.resource_name;
    let image = context.broker.cluster().image();
    let config = context.broker.config();
    let (default, own) = (
        image.broker_configs(None),
        image.broker_configs(Some(config.node_id)),
    );
    let view = config.settings.with(&default, &own);
    match resource.resource_type {
        TOPIC => {
            check_name(name)
                .map_err(|reason| Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, reason))?;
            let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            let topic = image.topic_by_name(name).ok_or(unknown)?;
            Ok(describe_topic(&configs_of(topic), &view))
        }
        BROKER => match broker_named(name, config.node_id)? {
            Some(_) => Ok(describe_broker(&view)),
            None => Ok(describe_default_broker(&view)),
        },
        kind => {
            let message = format!("resources of type {kind} have no configuration here");
            Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
        }
    }
}

/// All configurations of a topic, without synonyms and documentation.
pub(super) fn topic_entries(
    context: &Context,
    topic: &Topic,
) -> Vec<DescribeConfigsResourceResult> {
    let image = context.broker.cluster().image();
    let config = context.broker.config();
    let (default, own) = (
        image.broker_configs(None),
        image.broker_configs(Some(config.node_id)),
    );
    let described = describe_topic(&configs_of(topic), &config.settings.with(&default, &own));
    described
        .into_iter()
        .map(|config| entry(config, false, false))
        .collect()
}

fn entry(
    config: DescribedConfig,
    synonyms: bool,
    documentation: bool,
) -> DescribeConfigsResourceResult {
    let listed = config.synonyms.into_iter().filter(|_| synonyms);
    let listed = listed.map(|synonym| DescribeConfigsSynonym {
        name: Str::from(synonym.name),
        value: synonym.value.map(Str::from),
        source: synonym.source.code(),
    });
    DescribeConfigsResourceResult {
        name: Str::from(config.name),
        value: config.value.map(Str::from),
        read_only: config.read_only,
        config_source: config.source.code(),
        is_sensitive: config.sensitive,
        synonyms: listed.collect(),
        config_type: config.kind.code(),
        documentation: documentation.then(|| Str::from(config.documentation)),
    }
}
