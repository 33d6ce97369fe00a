//! x
use super::Context;
use tidemill_cluster::image::Topic;
use tidemill_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResourceResult, DescribeConfigsResponse,
};
pub(super) async fn handle(_: Context, _: DescribeConfigsRequest) -> DescribeConfigsResponse {
    DescribeConfigsResponse::default()
}
pub(super) fn topic_entries(_: &Context, _: &Topic) -> Vec<DescribeConfigsResourceResult> {
    Vec::new()
}
