//! Groups and offsets as records of `__consumer_offsets`, in Kafka's own formats.
//!
//! A key opens with an int16: 0 or 1 an offset, 2 a group; a value opens with its version. Readers
//! of the topic (lag monitors, console formatters) rely on both.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidemill_wire::{
    DecodeError, Decoder, EncodeError, Encoder, Message, Str,
    records::{
        group_metadata::{GroupMetadataKey, GroupMetadataValue, MemberMetadata},
        offset_commit::{OffsetCommitKey, OffsetCommitValue},
    },
};

use super::{
    machine::{Group, Restored},
    member::{Member, Protocol},
};

const OFFSET_KEY: i16 = 1;
const GROUP_KEY: i16 = 2;
/// Carries a leader epoch; no expiry.
const OFFSET_VALUE: i16 = 3;
/// The only version with an expiry of its own.
const OFFSET_VALUE_EXPIRING: i16 = 1;
const GROUP_VALUE: i16 = 3;

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OffsetValue {
    /// The next offset to be consumed.
    pub offset: i64,
    /// Leader epoch of the record before it, or -1.
    pub leader_epoch: i32,
    /// The client's own words.
    pub metadata: Str,
    /// When it was committed, Unix milliseconds.
    pub commit_ms: i64,
    /// When it expires by its own retention time (v2 commits), Unix milliseconds.
    pub expire_ms: Option<i64>,
}

/// What a record says.
#[derive(Debug)]
pub(crate) enum Fact {
    /// An offset, or that it is gone.
    Offset(OffsetCommitKey, Option<OffsetValue>),
    /// A group, or that it is gone.
    Group(Str, Option<GroupMetadataValue>),
    /// A kind that is not known here.
    Unknown(i16),
}

fn encode<M: Message>(tag: i16, message: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut encoder = Encoder::new();
    encoder.i16(tag);
    message.encode(&mut encoder, version)?;
    Ok(encoder.finish().to_bytes())
}

/// The key of an offset.
pub(crate) fn offset_key(group: &str, topic: &Str, index: i32) -> Result<Bytes, EncodeError> {
    let group = Str::from(group.to_owned());
    let key = OffsetCommitKey {
        group,
        topic: topic.clone(),
        partition: index,
    };
    encode(OFFSET_KEY, &key, 0)
}

/// The key of a group.
pub(crate) fn group_key(group: &str) -> Result<Bytes, EncodeError> {
    let group = Str::from(group.to_owned());
    encode(GROUP_KEY, &GroupMetadataKey { group }, 0)
}

/// The value of an offset.
pub(crate) fn offset_value(value: &OffsetValue) -> Result<Bytes, EncodeError> {
    let version = match value.expire_ms {
        Some(_) => OFFSET_VALUE_EXPIRING,
        None => OFFSET_VALUE,
    };
    let message = OffsetCommitValue {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata.clone(),
        commit_timestamp: value.commit_ms,
        expire_timestamp: value.expire_ms.unwrap_or(-1),
        ..OffsetCommitValue::default()
    };
    encode(version, &message, version)
}

/// The value of a group; `assignments` are the leader's, not yet part of the group.
pub(crate) fn group_value(
    group: &Group,
    assignments: Option<&BTreeMap<String, Bytes>>,
    now_ms: i64,
) -> Result<Bytes, EncodeError> {
    let protocol = group.protocol_name().unwrap_or_default();
    let member = |member: &Member| {
        let assigned = assignments.map(|all| all.get(&member.id).cloned().unwrap_or_default());
        MemberMetadata {
            member_id: Str::from(member.id.clone()),
            group_instance_id: member.instance_id.clone().map(Str::from),
            client_id: Str::from(member.client_id.clone()),
            client_host: Str::from(member.client_host.clone()),
            rebalance_timeout: member.rebalance_timeout_ms,
            session_timeout: member.session_timeout_ms,
            subscription: member.metadata(protocol),
            assignment: assigned.unwrap_or_else(|| member.assignment.clone()),
        }
    };
    let message = GroupMetadataValue {
        protocol_type: Str::from(group.protocol_type().unwrap_or_default().to_owned()),
        generation: group.generation(),
        protocol: group.protocol_name().map(|name| Str::from(name.to_owned())),
        leader: group.leader().map(|leader| Str::from(leader.to_owned())),
        current_state_timestamp: now_ms,
        members: group.members().map(member).collect(),
    };
    encode(GROUP_VALUE, &message, GROUP_VALUE)
}

/// Reads a record.
pub(crate) fn decode(key: &Bytes, value: Option<&Bytes>) -> Result<Fact, DecodeError> {
    let mut key = Decoder::new(key.clone());
    match key.i16()? {
        0 | OFFSET_KEY => {
            let key = OffsetCommitKey::decode(&mut key, 0)?;
            let value = value.map(versioned::<OffsetCommitValue>).transpose()?;
            Ok(Fact::Offset(key, value.map(OffsetValue::from)))
        }
        GROUP_KEY => {
            let key = GroupMetadataKey::decode(&mut key, 0)?;
            let value = value.map(versioned::<GroupMetadataValue>).transpose()?;
            Ok(Fact::Group(key.group, value))
        }
        other => Ok(Fact::Unknown(other)),
    }
}

fn versioned<M: Message>(value: &Bytes) -> Result<M, DecodeError> {
    let mut value = Decoder::new(value.clone());
    let version = value.i16()?;
    M::decode(&mut value, version)
}

impl From<OffsetCommitValue> for OffsetValue {
    fn from(value: OffsetCommitValue) -> Self {
        Self {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: value.metadata,
            commit_ms: value.commit_timestamp,
            expire_ms: (value.expire_timestamp >= 0).then_some(value.expire_timestamp),
        }
    }
}

/// A group as it was stored; its members' sessions begin at `now_ms` (monotonic).
pub(crate) fn restore(id: &str, value: &GroupMetadataValue, now_ms: i64) -> Group {
    let protocol = value.protocol.as_deref().unwrap_or_default();
    let member = |member: &MemberMetadata| {
        let protocol = Protocol {
            name: protocol.to_owned(),
            metadata: member.subscription.clone(),
        };
        Member {
            id: member.member_id.to_string(),
            instance_id: member.group_instance_id.as_ref().map(ToString::to_string),
            client_id: member.client_id.to_string(),
            client_host: member.client_host.to_string(),
            session_timeout_ms: member.session_timeout,
            rebalance_timeout_ms: match member.rebalance_timeout {
                -1 => member.session_timeout,
                given => given,
            },
            protocols: vec![protocol],
            assignment: member.assignment.clone(),
            is_new: false,
            awaiting_join: None,
            awaiting_sync: None,
            pending_sync: false,
            expires_ms: now_ms + i64::from(member.session_timeout),
        }
    };
    Group::restore(Restored {
        id: id.to_owned(),
        generation: value.generation,
        protocol_type: Some(value.protocol_type.to_string()).filter(|text| !text.is_empty()),
        protocol_name: value.protocol.as_ref().map(ToString::to_string),
        leader: value.leader.as_ref().map(ToString::to_string),
        members: value.members.iter().map(member).collect(),
    })
}
