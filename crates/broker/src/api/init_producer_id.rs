//! InitProducerId (key 22), versions 0-5.
//!
//! v2 flexible; v3 producer id and epoch of a transactional producer that goes on; v4, v5 error
//! codes only. Without a transactional id each call gives a new id at epoch 0, and writes nothing
//! (K28). Transactional ids are refused for good until transactions are served.

use tidemill_wire::{
    ErrorCode,
    messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse},
};

use super::Context;

pub(super) async fn handle(
    context: Context,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    if let Some(id) = request.transactional_id {
        // The response has no field for a reason.
        tracing::warn!(transactional_id = %id, "transactions are not supported, request refused");
        return InitProducerIdResponse {
            error_code: context.error(ErrorCode::INVALID_REQUEST),
            producer_epoch: -1,
            ..InitProducerIdResponse::default()
        };
    }
    InitProducerIdResponse {
        producer_id: context.broker.new_producer_id().0,
        producer_epoch: 0,
        ..InitProducerIdResponse::default()
    }
}
