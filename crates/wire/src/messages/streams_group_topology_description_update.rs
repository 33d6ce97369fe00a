//! StreamsGroupTopologyDescriptionUpdate: API key 93.

use crate::codec::Str;
use crate::errors::ErrorCode;
use crate::schema::schema;

schema! {
    StreamsGroupTopologyDescriptionUpdateRequest, versions 0..=0, flexible 0 {
        group_id: Str [0..];
        member_id: Str [0..];
        topology_epoch: i32 [0..];
        topology_description: TopologyDescription [0..];
    }
    TopologyDescription {
        subtopologies: Vec<TopologyDescriptionSubtopology> [0..];
        global_stores: Vec<TopologyDescriptionGlobalStore> [0..];
    }
    TopologyDescriptionSubtopology {
        subtopology_id: Str [0..];
        nodes: Vec<TopologyDescriptionNode> [0..];
    }
    TopologyDescriptionNode {
        name: Str [0..];
        node_type: i8 [0..];
        source_topics: Vec<Str> [0..];
        sink_topic: Option<Str> [0..];
        stores: Vec<Str> [0..];
        successors: Vec<Str> [0..];
    }
    TopologyDescriptionGlobalStore {
        source: TopologyDescriptionNode [0..];
        processor: TopologyDescriptionNode [0..];
    }
}

schema! {
    StreamsGroupTopologyDescriptionUpdateResponse, versions 0..=0, flexible 0 {
        throttle_time_ms: i32 [0..];
        error_code: ErrorCode [0..];
        error_message: Option<Str> [0..];
    }
}
