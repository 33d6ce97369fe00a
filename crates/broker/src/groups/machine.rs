//! The classic group's state machine: no I/O, no clock, no locks.
//!
//! Requests come in with the time; answers come out as [`Effect`]s, at once or later. Parked
//! requests are named by a [`Reply`] of the caller's choosing. What must be durable before anybody
//! hears of it is an [`Effect::Store`], answered by [`Group::assignment_stored`] or
//! [`Group::static_stored`]. Follows KIP-62 (rebalance time-out), KIP-134 (initial delay), KIP-345
//! (static members), KIP-394 (member id required), KIP-559 (protocol in Sync), KIP-814 (skip
//! assignment).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{error::GroupError, member::Member};

/// A parked request, named by whoever will answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reply(pub u64);

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// No members; offsets may remain.
    Empty,
    /// Waits for the members to join again.
    PreparingRebalance,
    /// Waits for the leader's assignment.
    CompletingRebalance,
    /// Every member has its assignment.
    Stable,
    /// Deleted; anybody who still holds it must look again.
    Dead,
}

impl GroupState {
    /// Kafka's name of the state.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

/// The answer to a JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The generation joined.
    pub generation: i32,
    /// The group's protocol type, such as `consumer`.
    pub protocol_type: Option<String>,
    /// The protocol voted for.
    pub protocol_name: Option<String>,
    /// The leader's member id.
    pub leader: String,
    /// This member's id.
    pub member_id: String,
    /// The leader must not assign anew (KIP-814).
    pub skip_assignment: bool,
    /// For the leader: every member with instance id and metadata, ordered by member id.
    pub members: Vec<JoinedMember>,
}

/// A member as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// The member's id.
    pub member_id: String,
    /// Its static name.
    pub instance_id: Option<String>,
    /// Its metadata for the protocol voted for.
    pub metadata: Bytes,
}

/// The answer to a SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// The group's protocol type.
    pub protocol_type: Option<String>,
    /// The protocol voted for.
    pub protocol_name: Option<String>,
    /// The leader's bytes for this member, unchanged (K46).
    pub assignment: Bytes,
}

/// A refused JoinGroup; the id goes back with it (KIP-394, KIP-345).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRefused {
    /// Why.
    pub error: GroupError,
    /// The member id for the answer.
    pub member_id: String,
}

/// What the caller must do, in order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Answer a JoinGroup.
    Join(Reply, Result<Joined, JoinRefused>),
    /// Answer a SyncGroup.
    Sync(Reply, Result<Synced, GroupError>),
    /// Make the group as it is now durable, then report back.
    Store(StoreReason),
}

/// Why a group must be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReason {
    /// The leader's assignment: the members hear of it afterwards, by [`Group::assignment_stored`].
    Assignment {
        /// The generation it belongs to.
        generation: i32,
        /// The leader's bytes per member id, not yet part of the group.
        assignments: BTreeMap<String, Bytes>,
    },
    /// A static member was replaced: it is answered afterwards, by [`Group::static_stored`].
    StaticMember {
        /// The parked JoinGroup.
        reply: Reply,
        /// The answer.
        joined: Joined,
    },
    /// The last member left; nobody waits for it.
    Empty,
}

/// Limits and delays, from Kafka's settings of the same names.
#[derive(Clone, Debug)]
pub struct GroupLimits {
    /// `group.min.session.timeout.ms`
    pub session_timeout_min_ms: i32,
    /// `group.max.session.timeout.ms`
    pub session_timeout_max_ms: i32,
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`
    pub size_max: usize,
    /// Longest member metadata of all protocols together, in bytes.
    pub metadata_bytes_max: usize,
    /// Most protocols that a member may offer. Clients offer a handful.
    pub protocols_max: usize,
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self {
            session_timeout_min_ms: 6_000,
            session_timeout_max_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            size_max: usize::try_from(i32::MAX).unwrap_or(usize::MAX),
            metadata_bytes_max: 16 << 20,
            protocols_max: 1_000,
        }
    }
}

/// How long a member that has joined for the first time may stay parked without being seen again.
/// Its client has no session to keep alive yet, so a client that went away would stay for ever.
pub const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1_000;

/// The end of waiting for members to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinWait {
    /// A new group: wait a little for more members, even if all that are known have joined
    /// (KIP-134).
    Initial { until_ms: i64, left_ms: i64 },
    /// Until all have joined, at most to the rebalance time-out.
    Rejoin { until_ms: i64 },
}

/// What is stored of a group.
#[derive(Clone, Debug)]
pub(super) struct Restored {
    pub id: String,
    pub generation: i32,
    pub protocol_type: Option<String>,
    pub protocol_name: Option<String>,
    pub leader: Option<String>,
    pub members: Vec<Member>,
}

/// A classic group.
#[derive(Clone, Debug)]
pub struct Group {
    /// The group's id.
    pub id: String,
    pub(super) state: GroupState,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol_name: Option<String>,
    pub(super) leader: Option<String>,
    pub(super) members: BTreeMap<String, Member>,
    /// Static name -> member id.
    pub(super) instances: BTreeMap<String, String>,
    /// Ids given out with MEMBER_ID_REQUIRED -> when they lapse.
    pub(super) pending: BTreeMap<String, i64>,
    pub(super) join_wait: Option<JoinWait>,
    /// A member joined during the initial delay, which is then extended.
    pub(super) member_added: bool,
    /// When members that have not sent SyncGroup are given up.
    pub(super) sync_until_ms: Option<i64>,
    /// The leader's assignment is being stored.
    pub(super) storing: bool,
    pub(super) effects: Vec<Effect>,
}

impl Group {
    /// A group without members.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            state: GroupState::Empty,
            generation: 0,
            protocol_type: None,
            protocol_name: None,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            join_wait: None,
            member_added: false,
            sync_until_ms: None,
            storing: false,
            effects: Vec::new(),
        }
    }

    /// A group as it was stored.
    #[must_use]
    pub(super) fn restore(stored: Restored) -> Self {
        let instance = |member: &Member| Some((member.instance_id.clone()?, member.id.clone()));
        Self {
            state: match stored.members.is_empty() {
                true => GroupState::Empty,
                false => GroupState::Stable,
            },
            generation: stored.generation,
            protocol_type: stored.protocol_type,
            protocol_name: stored.protocol_name.filter(|_| !stored.members.is_empty()),
            leader: stored.leader.filter(|_| !stored.members.is_empty()),
            instances: stored.members.iter().filter_map(instance).collect(),
            members: stored
                .members
                .into_iter()
                .map(|member| (member.id.clone(), member))
                .collect(),
            ..Self::new(stored.id)
        }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> GroupState {
        self.state
    }

    /// The generation.
    #[must_use]
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// The protocol type, such as `consumer`; none before the first member.
    #[must_use]
    pub fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    /// The protocol voted for.
    #[must_use]
    pub fn protocol_name(&self) -> Option<&str> {
        self.protocol_name.as_deref()
    }

    /// The leader's member id.
    #[must_use]
    pub fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    /// The members, ordered by id.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// One member.
    #[must_use]
    pub fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    /// Number of members and of ids given out.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len() + self.pending.len()
    }

    /// What the caller must do since the last call, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Marks an empty group deleted.
    ///
    /// # Errors
    /// [`GroupError::NonEmptyGroup`] while it has members.
    pub fn delete(&mut self) -> Result<(), GroupError> {
        match self.state {
            GroupState::Dead => Err(GroupError::GroupIdNotFound),
            GroupState::Empty => {
                // Whoever holds an id of the group must ask for another.
                self.pending.clear();
                self.state = GroupState::Dead;
                Ok(())
            }
            _ => Err(GroupError::NonEmptyGroup),
        }
    }

    /// The coordinator goes away: every parked request is told to look for another one.
    pub fn unload(&mut self) {
        let error = GroupError::CoordinatorNotAvailable;
        for (id, member) in &mut self.members {
            if let Some(reply) = member.awaiting_join.take() {
                let refused = JoinRefused {
                    error,
                    member_id: id.clone(),
                };
                self.effects.push(Effect::Join(reply, Err(refused)));
            }
            if let Some(reply) = member.awaiting_sync.take() {
                self.effects.push(Effect::Sync(reply, Err(error)));
            }
        }
        self.state = GroupState::Dead;
    }

    /// Checks that `member_id` may act, and in which role (KIP-345).
    pub(super) fn check_member(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), GroupError> {
        if let Some(instance) = instance_id {
            match self.instances.get(instance) {
                None => return Err(GroupError::UnknownMemberId),
                Some(current) if current != member_id => return Err(GroupError::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) {
            Ok(())
        } else {
            Err(GroupError::UnknownMemberId)
        }
    }

    pub(super) fn check_generation(&self, generation: i32) -> Result<(), GroupError> {
        if generation == self.generation {
            Ok(())
        } else {
            Err(GroupError::IllegalGeneration)
        }
    }

    /// Starts the member's session anew.
    pub(super) fn touch(&mut self, member_id: &str, now_ms: i64) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.expires_ms = now_ms
                + match member.is_new {
                    true => NEW_MEMBER_JOIN_TIMEOUT_MS,
                    false => i64::from(member.session_timeout_ms),
                };
        }
    }
}
