//! ApiVersions (key 18), versions 0-5.
//!
//! v1 throttle time; v3 flexible, client software name and version in, features out; v5 cluster and
//! node id in the request (KIP-1242). No features are finalized: `transaction.version` comes with
//! transactions, `group.version` with KIP-848. A cluster id that is not ours is answered all the
//! same: REBOOTSTRAP_REQUIRED would send clients of a single broker nowhere.

use tidemill_wire::{
    ApiKey, ErrorCode,
    messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse},
};

use super::{Call, Context, SERVED, Weight, encode};

pub(super) async fn handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse {
    let named = |text: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let inner = |c: char| c.is_ascii_alphanumeric();
        text.chars().all(allowed) && text.starts_with(inner) && text.ends_with(inner)
    };
    let names = [
        &request.client_software_name,
        &request.client_software_version,
    ];
    // As in Kafka (KIP-511): the names end up in logs and metrics.
    if context.version >= 3 && !names.iter().all(|name| named(name)) {
        return answer(context.error(ErrorCode::INVALID_REQUEST), Vec::new());
    }
    answer(ErrorCode::NONE, versions())
}

/// The answer to a version that is not known: in the layout of version 0, which every client reads
/// (K1).
pub(super) fn unsupported(context: &Context) -> Call {
    let own = range(ApiKey::ApiVersions).into_iter().collect();
    let response = answer(context.error(ErrorCode::UNSUPPORTED_VERSION), own);
    let reply = encode(context, 0, &response);
    Call {
        reply: Box::pin(std::future::ready(reply)),
        weight: Weight::Light,
    }
}

fn answer(error_code: ErrorCode, api_keys: Vec<ApiVersion>) -> ApiVersionsResponse {
    ApiVersionsResponse {
        error_code,
        api_keys,
        ..ApiVersionsResponse::default()
    }
}

fn versions() -> Vec<ApiVersion> {
    SERVED.iter().filter_map(|key| range(*key)).collect()
}

fn range(key: ApiKey) -> Option<ApiVersion> {
    let versions = key.advertised()?;
    Some(ApiVersion {
        api_key: key.code(),
        min_version: *versions.start(),
        max_version: *versions.end(),
    })
}
