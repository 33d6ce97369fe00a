//! DescribeCluster (key 60), versions 0-2.
//!
//! v1 endpoint type; v2 fenced brokers (there are none).

use tidemill_wire::{
    ErrorCode,
    messages::describe_cluster::{
        DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
    },
};

use super::{Context, metadata::CLUSTER_OPERATIONS};

/// Endpoint type of brokers.
const BROKERS: i8 = 1;
/// Endpoint type of controllers.
const CONTROLLERS: i8 = 2;

pub(super) async fn handle(
    context: Context,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let wrong = match request.endpoint_type {
        BROKERS => None,
        CONTROLLERS => Some(ErrorCode::MISMATCHED_ENDPOINT_TYPE),
        _ => Some(ErrorCode::UNSUPPORTED_ENDPOINT_TYPE),
    };
    if let Some(code) = wrong {
        return DescribeClusterResponse {
            error_code: context.error(code),
            error_message: Some(code.message().into()),
            endpoint_type: request.endpoint_type,
            ..DescribeClusterResponse::default()
        };
    }
    let config = context.broker.config();
    let broker = DescribeClusterBroker {
        broker_id: config.node_id.0,
        host: context.peer.advertised.host.clone().into(),
        port: i32::from(context.peer.advertised.port),
        rack: config.rack(),
        is_fenced: false,
    };
    let mut response = DescribeClusterResponse {
        cluster_id: context.broker.cluster_id(),
        controller_id: config.node_id.0,
        brokers: vec![broker],
        ..DescribeClusterResponse::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}
