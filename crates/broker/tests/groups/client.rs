//! A broker that can start again over its store, and what group clients send.

use std::time::Duration;

use bytes::Bytes;
use tidemill_broker::config::BrokerConfig;
use tidemill_wire::{
    Encoder, ErrorCode, Message, Str,
    messages::{
        delete_groups::DeleteGroupsRequest,
        describe_groups::{DescribeGroupsRequest, DescribedGroup},
        heartbeat::HeartbeatRequest,
        join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse},
        leave_group::{LeaveGroupRequest, MemberIdentity},
        offset_commit::{
            OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
        },
        offset_fetch::{OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponsePartition},
        sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse},
    },
    records::consumer_protocol::ConsumerProtocolSubscription,
};

pub use crate::common::stored::{restart_with, start_with};
use crate::common::{Client, Harness};

pub fn text(text: &str) -> Str {
    Str::from(text.to_owned())
}

/// One partition of `__consumer_offsets`, so that tests know where records are.
pub fn config() -> BrokerConfig {
    let mut config = BrokerConfig::default();
    config.groups.offsets_partitions = 1;
    config.groups.offsets_check_interval = Duration::from_secs(10);
    config
}

pub async fn start() -> Harness {
    start_with(config()).await
}

/// Another broker over the same store; the one before is sealed off.
pub async fn restart(before: &Harness) -> Harness {
    restart_with(before, config()).await
}

/// A consumer's subscription as its protocol has it.
pub fn subscription(topics: &[&str]) -> Bytes {
    let mut encoder = Encoder::new();
    encoder.i16(0);
    let message = ConsumerProtocolSubscription {
        topics: topics.iter().map(|name| text(name)).collect(),
        ..ConsumerProtocolSubscription::default()
    };
    message.encode(&mut encoder, 0).expect("small");
    encoder.finish().to_bytes()
}

pub fn join_request(group: &str, member: &str, topics: &[&str]) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: text(group),
        session_timeout_ms: 45_000,
        rebalance_timeout_ms: 300_000,
        member_id: text(member),
        protocol_type: text("consumer"),
        protocols: vec![JoinGroupRequestProtocol {
            name: text("range"),
            metadata: subscription(topics),
        }],
        ..JoinGroupRequest::default()
    }
}

/// Joins as a client would, with the second round that KIP-394 asks for.
pub async fn join(client: &mut Client, version: i16, group: &str) -> JoinGroupResponse {
    let mut request = join_request(group, "", &["t"]);
    let first = client.call(version, &request).await;
    if first.error_code != ErrorCode::MEMBER_ID_REQUIRED {
        return first;
    }
    request.member_id = first.member_id;
    client.call(version, &request).await
}

pub async fn sync(
    client: &mut Client,
    version: i16,
    group: &str,
    joined: &JoinGroupResponse,
) -> SyncGroupResponse {
    sync_as(client, version, "consumer", group, joined).await
}

pub async fn sync_as(
    client: &mut Client,
    version: i16,
    protocol_type: &str,
    group: &str,
    joined: &JoinGroupResponse,
) -> SyncGroupResponse {
    let assignment = |member: &Str| SyncGroupRequestAssignment {
        member_id: member.clone(),
        assignment: Bytes::from(format!("for {member}")),
    };
    let request = SyncGroupRequest {
        group_id: text(group),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        protocol_type: (version >= 5).then(|| text(protocol_type)),
        protocol_name: (version >= 5).then(|| text("range")),
        assignments: joined
            .members
            .iter()
            .map(|member| assignment(&member.member_id))
            .collect(),
        ..SyncGroupRequest::default()
    };
    client.call(version, &request).await
}

pub async fn beat(client: &mut Client, group: &str, joined: &JoinGroupResponse) -> ErrorCode {
    client.call(3, &heartbeat(group, joined)).await.error_code
}

pub fn heartbeat(group: &str, joined: &JoinGroupResponse) -> HeartbeatRequest {
    HeartbeatRequest {
        group_id: text(group),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..HeartbeatRequest::default()
    }
}

pub async fn leave(client: &mut Client, version: i16, group: &str, member: &Str) -> ErrorCode {
    let request = LeaveGroupRequest {
        group_id: text(group),
        member_id: if version < 3 {
            member.clone()
        } else {
            Str::default()
        },
        members: match version {
            3.. => vec![MemberIdentity {
                member_id: member.clone(),
                ..MemberIdentity::default()
            }],
            _ => Vec::new(),
        },
    };
    let response = client.call(version, &request).await;
    let own = response.members.first().map(|member| member.error_code);
    own.unwrap_or(response.error_code)
}

pub fn commit_request(group: &str, topic: &str, offsets: &[(i32, i64)]) -> OffsetCommitRequest {
    let part = |(index, offset): &(i32, i64)| OffsetCommitRequestPartition {
        partition_index: *index,
        committed_offset: *offset,
        committed_leader_epoch: 7,
        committed_metadata: Some(text("words")),
    };
    OffsetCommitRequest {
        group_id: text(group),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: text(topic),
            partitions: offsets.iter().map(part).collect(),
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    }
}

/// A commit by nobody's member, such as of tools; the first partition's error.
pub async fn commit(client: &mut Client, group: &str, offsets: &[(i32, i64)]) -> ErrorCode {
    let response = client.call(7, &commit_request(group, "t", offsets)).await;
    response.topics[0].partitions[0].error_code
}

/// One partition's offset of a group by OffsetFetch v7.
pub async fn committed(
    client: &mut Client,
    group: &str,
    index: i32,
) -> OffsetFetchResponsePartition {
    let request = OffsetFetchRequest {
        group_id: text(group),
        topics: Some(vec![OffsetFetchRequestTopic {
            name: text("t"),
            partition_indexes: vec![index],
        }]),
        ..OffsetFetchRequest::default()
    };
    let mut response = client.call(7, &request).await;
    assert_eq!(response.error_code, ErrorCode::NONE);
    response.topics.remove(0).partitions.remove(0)
}

pub async fn describe(client: &mut Client, version: i16, group: &str) -> DescribedGroup {
    let request = DescribeGroupsRequest {
        groups: vec![text(group)],
        ..DescribeGroupsRequest::default()
    };
    client.call(version, &request).await.groups.remove(0)
}

pub async fn delete(client: &mut Client, group: &str) -> ErrorCode {
    let request = DeleteGroupsRequest {
        groups_names: vec![text(group)],
    };
    client.call(2, &request).await.results[0].error_code
}
