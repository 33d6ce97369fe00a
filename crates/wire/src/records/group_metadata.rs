//! Classic groups in `__consumer_offsets`: key type 2.

use bytes::Bytes;

use crate::codec::Str;
use crate::schema::{NEVER, schema};

schema! {
    GroupMetadataKey, versions 0..=0, flexible NEVER {
        group: Str [0];
    }
}

schema! {
    GroupMetadataValue, versions 0..=4, flexible 4 {
        protocol_type: Str [0..];
        generation: i32 [0..];
        protocol: Option<Str> [0..];
        leader: Option<Str> [0..];
        #[ignorable] current_state_timestamp: i64 [2..], default -1;
        members: Vec<MemberMetadata> [0..];
    }
    MemberMetadata {
        member_id: Str [0..];
        #[ignorable] group_instance_id: Option<Str> [3..];
        client_id: Str [0..];
        client_host: Str [0..];
        #[ignorable] rebalance_timeout: i32 [1..], default -1;
        session_timeout: i32 [0..];
        subscription: Bytes [0..];
        assignment: Bytes [0..];
    }
}
