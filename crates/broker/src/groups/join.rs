//! JoinGroup: who is in, and the rebalance that follows.

use std::collections::BTreeMap;

use super::{
    error::GroupError,
    machine::{
        Effect, Group, GroupLimits, GroupState, JoinRefused, JoinWait, Joined, JoinedMember,
        NEW_MEMBER_JOIN_TIMEOUT_MS, Reply, StoreReason,
    },
    member::{Member, Protocol},
};

/// Ids given out and not used yet, a group: far more than members that start at once, and a bound.
const PENDING_IDS_MAX: usize = 10_000;
/// A rebalance waits at least so long, whatever clients say: a time-out of nothing would spin.
const REBALANCE_TIMEOUT_MIN_MS: i64 = 1_000;

/// Who offers what, counted once, as a member may offer many protocols.
#[derive(Default)]
struct Offered<'a> {
    members: usize,
    /// How many offer it, and the last one counted: a name may come twice.
    protocols: BTreeMap<&'a str, (usize, usize)>,
}

impl<'a> Offered<'a> {
    fn by(members: impl Iterator<Item = &'a Member>) -> Self {
        let mut offered = Self::default();
        for member in members {
            offered.members += 1;
            for protocol in &member.protocols {
                let (count, last) = offered.protocols.entry(&protocol.name).or_default();
                *count += usize::from(*last < offered.members);
                *last = offered.members;
            }
        }
        offered
    }

    /// True if all of the members offer it.
    fn is_common(&self, name: &str) -> bool {
        let count = self.protocols.get(name).map_or(0, |(count, _)| *count);
        count == self.members
    }
}

/// A JoinGroup request.
#[derive(Clone, Debug)]
pub struct Join {
    /// The parked request.
    pub reply: Reply,
    /// Empty for a new member.
    pub member_id: String,
    /// The static name.
    pub instance_id: Option<String>,
    /// The id to use if the member needs one, unique.
    pub fresh_id: String,
    /// The request's version demands a known id first (v4, KIP-394).
    pub require_known_id: bool,
    /// The request's version knows `skip_assignment` (v9, KIP-814).
    pub knows_skip: bool,
    /// For reports.
    pub client_id: String,
    /// For reports.
    pub client_host: String,
    /// Session time-out in milliseconds.
    pub session_timeout_ms: i32,
    /// Rebalance time-out in milliseconds.
    pub rebalance_timeout_ms: i32,
    /// Such as `consumer`.
    pub protocol_type: String,
    /// In order of preference.
    pub protocols: Vec<Protocol>,
}

impl Group {
    /// A member joins, for the first time or again. The answer is an effect, now or later.
    pub fn join(&mut self, join: Join, limits: &GroupLimits, now_ms: i64) {
        let reply = join.reply;
        let echoed = join.member_id.clone();
        let result = if join.member_id.is_empty() {
            self.join_new(join, limits, now_ms)
        } else {
            self.join_known(join, limits, now_ms)
                .map_err(|error| JoinRefused {
                    error,
                    member_id: echoed,
                })
        };
        if let Err(refused) = result {
            self.effects.push(Effect::Join(reply, Err(refused)));
        }
        self.try_complete_join(limits, now_ms);
    }

    fn check_join(&self, join: &Join, limits: &GroupLimits) -> Result<(), GroupError> {
        let bounds = limits.session_timeout_min_ms..=limits.session_timeout_max_ms;
        if !bounds.contains(&join.session_timeout_ms) {
            return Err(GroupError::InvalidSessionTimeout);
        }
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        let bytes: usize = join
            .protocols
            .iter()
            .map(|p| p.name.len() + p.metadata.len())
            .sum();
        if join.protocol_type.is_empty()
            || join.protocols.is_empty()
            || join.protocols.len() > limits.protocols_max
            || bytes > limits.metadata_bytes_max
            || !self.supports(&join.protocol_type, &join.protocols, &join.member_id)
        {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// True if a member with these protocols leaves at least one that all support.
    fn supports(&self, protocol_type: &str, protocols: &[Protocol], member_id: &str) -> bool {
        if self.members.is_empty() {
            return true;
        }
        let same_type = self.protocol_type.as_deref() == Some(protocol_type);
        let members = self.members.values();
        let offered = Offered::by(members.filter(|member| member.id != member_id));
        same_type && protocols.iter().any(|p| offered.is_common(&p.name))
    }

    /// True if there is room under `group.max.size`. A rebalance sheds what is over it, after the
    /// limit was lowered: then even known members are in only as they come.
    fn accepts(&self, known: Option<&str>, limits: &GroupLimits) -> bool {
        let parked = |member: &Member| member.awaiting_join.is_some();
        if self.state == GroupState::PreparingRebalance {
            let known = known.and_then(|id| self.members.get(id));
            let count = self.members.values().filter(|m| parked(m)).count();
            return known.is_some_and(parked) || count < limits.size_max;
        }
        known.is_some() || self.members.len() < limits.size_max
    }

    fn join_new(
        &mut self,
        join: Join,
        limits: &GroupLimits,
        now_ms: i64,
    ) -> Result<(), JoinRefused> {
        let refuse = |error, member_id: &str| JoinRefused {
            error,
            member_id: member_id.into(),
        };
        self.check_join(&join, limits)
            .map_err(|error| refuse(error, ""))?;
        if let Some(instance) = &join.instance_id
            && let Some(old) = self.instances.get(instance).cloned()
        {
            self.replace_static(&old, join, limits, now_ms);
            return Ok(());
        }
        if !self.accepts(None, limits) {
            return Err(refuse(GroupError::GroupMaxSizeReached, ""));
        }
        if join.instance_id.is_none() && join.require_known_id {
            if self.pending.len() >= PENDING_IDS_MAX {
                return Err(refuse(GroupError::CoordinatorNotAvailable, ""));
            }
            let id = join.fresh_id;
            self.pending
                .insert(id.clone(), now_ms + i64::from(join.session_timeout_ms));
            return Err(refuse(GroupError::MemberIdRequired, &id));
        }
        let id = join.fresh_id.clone();
        self.add_member(id, join, limits, now_ms);
        Ok(())
    }

    fn join_known(
        &mut self,
        join: Join,
        limits: &GroupLimits,
        now_ms: i64,
    ) -> Result<(), GroupError> {
        self.check_join(&join, limits)?;
        let id = join.member_id.clone();
        if self.pending.contains_key(&id) {
            if join.instance_id.is_some() {
                return Err(GroupError::UnknownMemberId);
            }
            self.pending.remove(&id);
            if !self.accepts(None, limits) {
                return Err(GroupError::GroupMaxSizeReached);
            }
            self.add_member(id, join, limits, now_ms);
            return Ok(());
        }
        self.check_member(&id, join.instance_id.as_deref())?;
        if !self.accepts(Some(&id), limits) {
            return Err(GroupError::GroupMaxSizeReached);
        }
        let same = self
            .members
            .get(&id)
            .is_some_and(|m| m.protocols == join.protocols);
        let is_leader = self.leader.as_deref() == Some(id.as_str());
        match self.state {
            GroupState::PreparingRebalance => self.rejoin(&id, join, limits, now_ms),
            // The answer to an earlier try was lost: the generation stands.
            GroupState::CompletingRebalance if same => self.repeat_join(&id, join.reply, now_ms),
            // A leader that joins again wants a rebalance.
            GroupState::Stable if same && !is_leader => self.repeat_join(&id, join.reply, now_ms),
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.rejoin(&id, join, limits, now_ms);
            }
            GroupState::Empty | GroupState::Dead => return Err(GroupError::UnknownMemberId),
        }
        Ok(())
    }

    fn repeat_join(&mut self, id: &str, reply: Reply, now_ms: i64) {
        let joined = self.joined(id);
        self.touch(id, now_ms);
        self.effects.push(Effect::Join(reply, Ok(joined)));
    }

    fn add_member(&mut self, id: String, join: Join, limits: &GroupLimits, now_ms: i64) {
        if self.state == GroupState::PreparingRebalance && self.generation == 0 {
            self.member_added = true;
        }
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type);
        }
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        let member = Member {
            id: id.clone(),
            instance_id: join.instance_id,
            client_id: join.client_id,
            client_host: join.client_host,
            session_timeout_ms: join.session_timeout_ms,
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            protocols: join.protocols,
            assignment: bytes::Bytes::new(),
            is_new: true,
            awaiting_join: Some(join.reply),
            awaiting_sync: None,
            pending_sync: false,
            expires_ms: now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
        };
        self.members.insert(id, member);
        self.maybe_rebalance(limits, now_ms);
    }

    fn rejoin(&mut self, id: &str, join: Join, limits: &GroupLimits, now_ms: i64) {
        if let Some(member) = self.members.get_mut(id) {
            member.protocols = join.protocols;
            member.session_timeout_ms = join.session_timeout_ms;
            member.rebalance_timeout_ms = join.rebalance_timeout_ms;
            member.client_id = join.client_id;
            member.client_host = join.client_host;
            if let Some(older) = member.awaiting_join.replace(join.reply) {
                // The same member joined twice: the earlier request must not hang.
                let error = GroupError::RebalanceInProgress;
                let refused = JoinRefused {
                    error,
                    member_id: id.to_owned(),
                };
                self.effects.push(Effect::Join(older, Err(refused)));
            }
        }
        self.touch(id, now_ms);
        self.maybe_rebalance(limits, now_ms);
    }

    /// A new process takes the place of a static member (K47).
    fn replace_static(&mut self, old: &str, join: Join, limits: &GroupLimits, now_ms: i64) {
        let id = join.fresh_id.clone();
        let Some(mut member) = self.members.remove(old) else {
            return;
        };
        self.fence(&mut member);
        let old_leader = self.leader.clone();
        if old_leader.as_deref() == Some(old) {
            self.leader = Some(id.clone());
        }
        let old_protocols = std::mem::replace(&mut member.protocols, join.protocols);
        member.id.clone_from(&id);
        member.client_id = join.client_id;
        member.client_host = join.client_host;
        member.session_timeout_ms = join.session_timeout_ms;
        member.rebalance_timeout_ms = join.rebalance_timeout_ms;
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        let unchanged = old_protocols == member.protocols;
        self.members.insert(id.clone(), member);
        self.touch(&id, now_ms);
        let stable = self.state == GroupState::Stable;
        let keeps = unchanged || self.vote() == self.protocol_name;
        if stable && keeps {
            let is_leader = self.leader.as_deref() == Some(id.as_str());
            let mut joined = self.joined(&id);
            joined.skip_assignment = is_leader && join.knows_skip;
            if !join.knows_skip {
                // An old client that found itself leader would assign anew; the old id hides it.
                joined.leader = old_leader.unwrap_or_default();
                joined.members.clear();
            }
            let reason = StoreReason::StaticMember {
                reply: join.reply,
                joined,
            };
            self.effects.push(Effect::Store(reason));
            return;
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.awaiting_join = Some(join.reply);
        }
        self.maybe_rebalance(limits, now_ms);
    }

    /// Parked requests of the process that was replaced.
    fn fence(&mut self, member: &mut Member) {
        let error = GroupError::FencedInstanceId;
        if let Some(reply) = member.awaiting_join.take() {
            let refused = JoinRefused {
                error,
                member_id: member.id.clone(),
            };
            self.effects.push(Effect::Join(reply, Err(refused)));
        }
        if let Some(reply) = member.awaiting_sync.take() {
            self.effects.push(Effect::Sync(reply, Err(error)));
        }
    }

    /// Reports that the replaced static member is durable, or is not.
    pub fn static_stored(&mut self, reply: Reply, joined: Joined, stored: bool) {
        let result = if stored {
            Ok(joined)
        } else {
            let error = GroupError::CoordinatorNotAvailable;
            Err(JoinRefused {
                error,
                member_id: joined.member_id,
            })
        };
        self.effects.push(Effect::Join(reply, result));
    }

    pub(super) fn maybe_rebalance(&mut self, limits: &GroupLimits, now_ms: i64) {
        if matches!(
            self.state,
            GroupState::Stable | GroupState::CompletingRebalance | GroupState::Empty
        ) {
            self.prepare_rebalance(limits, now_ms);
        }
    }

    fn prepare_rebalance(&mut self, limits: &GroupLimits, now_ms: i64) {
        if self.state == GroupState::CompletingRebalance {
            self.refuse_syncs(GroupError::RebalanceInProgress, now_ms);
        }
        let rebalance_ms = self.rebalance_timeout_ms();
        self.join_wait = Some(if self.state == GroupState::Empty {
            let delay_ms = i64::from(limits.initial_rebalance_delay_ms);
            let left_ms = (rebalance_ms - delay_ms).max(0);
            JoinWait::Initial {
                until_ms: now_ms + delay_ms,
                left_ms,
            }
        } else {
            JoinWait::Rejoin {
                until_ms: now_ms + rebalance_ms,
            }
        });
        self.sync_until_ms = None;
        self.state = GroupState::PreparingRebalance;
    }

    pub(super) fn rebalance_timeout_ms(&self) -> i64 {
        let longest = self
            .members
            .values()
            .map(|member| member.rebalance_timeout_ms)
            .max();
        i64::from(longest.unwrap_or(0)).max(REBALANCE_TIMEOUT_MIN_MS)
    }

    /// Ends the waiting for members if it is over.
    pub(super) fn try_complete_join(&mut self, limits: &GroupLimits, now_ms: i64) {
        if self.state != GroupState::PreparingRebalance {
            return;
        }
        match self.join_wait {
            Some(JoinWait::Initial { until_ms, left_ms }) => {
                if now_ms < until_ms {
                    return;
                }
                if self.member_added && left_ms > 0 {
                    self.member_added = false;
                    let delay_ms = i64::from(limits.initial_rebalance_delay_ms).min(left_ms);
                    let left_ms = left_ms - delay_ms;
                    let until_ms = now_ms + delay_ms;
                    self.join_wait = Some(JoinWait::Initial { until_ms, left_ms });
                    return;
                }
            }
            Some(JoinWait::Rejoin { until_ms }) => {
                let all_in = self
                    .members
                    .values()
                    .all(|member| member.awaiting_join.is_some());
                let everybody = all_in && self.pending.is_empty();
                if now_ms < until_ms && !everybody {
                    return;
                }
            }
            None => {}
        }
        self.complete_join(now_ms);
    }

    fn complete_join(&mut self, now_ms: i64) {
        // Dynamic members that did not join again are out; static ones may come back later.
        let gone: Vec<String> = self
            .members
            .values()
            .filter(|member| member.awaiting_join.is_none() && member.instance_id.is_none())
            .map(|member| member.id.clone())
            .collect();
        for id in gone {
            self.drop_member(&id);
        }
        if !self.members.is_empty() && !self.elect_joined_leader() {
            // Only static members are left, and none has come back: wait for another round.
            let until_ms = now_ms + self.rebalance_timeout_ms();
            self.join_wait = Some(JoinWait::Rejoin { until_ms });
            return;
        }
        self.join_wait = None;
        self.member_added = false;
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        if self.members.is_empty() {
            self.become_empty();
            return;
        }
        self.protocol_name = self.vote();
        self.state = GroupState::CompletingRebalance;
        self.sync_until_ms = Some(now_ms + self.rebalance_timeout_ms());
        self.answer_joins(now_ms);
    }

    pub(super) fn become_empty(&mut self) {
        self.protocol_name = None;
        self.leader = None;
        self.join_wait = None;
        self.sync_until_ms = None;
        self.state = GroupState::Empty;
        self.effects.push(Effect::Store(StoreReason::Empty));
    }

    fn answer_joins(&mut self, now_ms: i64) {
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let joined = self.joined(&id);
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.is_new = false;
            member.pending_sync = true;
            if let Some(reply) = member.awaiting_join.take() {
                self.effects.push(Effect::Join(reply, Ok(joined)));
            }
            self.touch(&id, now_ms);
        }
    }

    fn elect_joined_leader(&mut self) -> bool {
        let joined = |member: &Member| member.awaiting_join.is_some();
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id));
        if leader.is_some_and(joined) {
            return true;
        }
        let Some(next) = self.members.values().find(|member| joined(member)) else {
            return false;
        };
        self.leader = Some(next.id.clone());
        true
    }

    fn joined(&self, id: &str) -> Joined {
        let leader = self.leader.clone().unwrap_or_default();
        let name = self.protocol_name.clone().unwrap_or_default();
        let members = if leader == id {
            let view = |member: &Member| JoinedMember {
                member_id: member.id.clone(),
                instance_id: member.instance_id.clone(),
                metadata: member.metadata(&name),
            };
            self.members.values().map(view).collect()
        } else {
            Vec::new()
        };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader,
            member_id: id.to_owned(),
            skip_assignment: false,
            members,
        }
    }

    /// The protocol that most members prefer among those all support; ties go to the first by name.
    fn vote(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        let offered = Offered::by(self.members.values());
        for member in self.members.values() {
            let mut protocols = member.protocols.iter();
            if let Some(choice) = protocols.find(|p| offered.is_common(&p.name)) {
                *votes.entry(&choice.name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        let winner = votes.into_iter().find(|(_, count)| *count == most)?;
        Some(winner.0.to_owned())
    }
}
