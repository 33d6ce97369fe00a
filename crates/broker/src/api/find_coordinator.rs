//! FindCoordinator (key 10), versions 0-6.
//!
//! v1 key type, message; v3 flexible; v4 several keys; v5 transaction error; v6 share groups. A
//! single broker coordinates every group. Transactions and share groups are refused for good: a
//! retriable error would hang clients.

use tidemill_wire::{
    ErrorCode, Str,
    messages::find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse},
};

use super::Context;
use crate::errors::Refusal;

/// Key type of consumer groups.
const GROUP: i8 = 0;
/// Key type of transactional ids.
const TRANSACTION: i8 = 1;
/// The first version with several keys.
const BATCH_FROM: i16 = 4;

pub(super) async fn handle(
    context: Context,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    // The topic must be there before anybody is sent here for a group; a failure is retriable.
    let led = match request.key_type {
        GROUP => context.broker.ensure_offsets_topic().await,
        _ => Ok(()),
    };
    if context.version >= BATCH_FROM {
        let found = |key| coordinator(&context, request.key_type, key, led);
        let coordinators = request.coordinator_keys.into_iter().map(found).collect();
        return FindCoordinatorResponse {
            coordinators,
            ..FindCoordinatorResponse::default()
        };
    }
    let found = coordinator(&context, request.key_type, request.key, led);
    FindCoordinatorResponse {
        error_code: found.error_code,
        error_message: found.error_message,
        node_id: found.node_id,
        host: found.host,
        port: found.port,
        ..FindCoordinatorResponse::default()
    }
}

fn coordinator(
    context: &Context,
    key_type: i8,
    key: Str,
    led: Result<(), ErrorCode>,
) -> Coordinator {
    let checked = check(key_type).and_then(|()| led.map_err(Refusal::from));
    if let Err(refusal) = checked {
        return Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code: context.error(refusal.code),
            error_message: refusal.text(),
            ..Coordinator::default()
        };
    }
    Coordinator {
        key,
        node_id: context.broker.config().node_id.0,
        host: context.peer.advertised.host.clone().into(),
        port: i32::from(context.peer.advertised.port),
        ..Coordinator::default()
    }
}

fn check(key_type: i8) -> Result<(), Refusal> {
    let refuse = |text: &str| Err(Refusal::new(ErrorCode::INVALID_REQUEST, text));
    match key_type {
        // The empty id too: commits and fetches of offsets may name it, as in Kafka.
        GROUP => Ok(()),
        TRANSACTION => refuse("transactions are not supported"),
        _ => refuse("only consumer groups have a coordinator"),
    }
}
