//! SyncGroup, Heartbeat, LeaveGroup, commits' right to be made, and time passing.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    error::GroupError,
    machine::{
        Effect, Group, GroupLimits, GroupState, JoinRefused, JoinWait, Reply, StoreReason, Synced,
    },
    member::Member,
};

/// After a stall nobody is expired for at least so long: clients beat every 3 s unless told
/// otherwise.
const STALL_GRACE_MS: i64 = 6_000;
/// Clients are told to beat at least so often in a session, so one that lives is heard within that
/// part of it.
const HEARTBEATS_IN_SESSION: i64 = 3;

impl Member {
    /// By when it is heard if it lives and what it waits for is answered now.
    fn heard_by_ms(&self, now_ms: i64) -> i64 {
        let session_ms = i64::from(self.session_timeout_ms);
        let heard_ms = STALL_GRACE_MS.max(session_ms / HEARTBEATS_IN_SESSION);
        now_ms + heard_ms.min(session_ms)
    }
}

/// A SyncGroup request.
#[derive(Clone, Debug)]
pub struct Sync {
    /// The parked request.
    pub reply: Reply,
    /// The member.
    pub member_id: String,
    /// Its static name.
    pub instance_id: Option<String>,
    /// The generation it joined.
    pub generation: i32,
    /// Must be the group's, if given (v5).
    pub protocol_type: Option<String>,
    /// Must be the group's, if given (v5).
    pub protocol_name: Option<String>,
    /// From the leader: bytes per member id.
    pub assignments: BTreeMap<String, Bytes>,
}

/// Who leaves.
#[derive(Clone, Debug)]
pub struct Leave {
    /// Empty if a static member is named by its instance id alone.
    pub member_id: String,
    /// The static name.
    pub instance_id: Option<String>,
}

impl Group {
    /// A member asks for its assignment, or the leader hands all of them in.
    pub fn sync(&mut self, sync: Sync, now_ms: i64) {
        let reply = sync.reply;
        if let Err(error) = self.try_sync(sync, now_ms) {
            self.effects.push(Effect::Sync(reply, Err(error)));
        }
    }

    fn try_sync(&mut self, sync: Sync, now_ms: i64) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        self.check_member(&sync.member_id, sync.instance_id.as_deref())?;
        self.check_generation(sync.generation)?;
        let differs = |asked: &Option<String>, ours: &Option<String>| {
            asked.is_some() && ours.is_some() && asked != ours
        };
        if differs(&sync.protocol_type, &self.protocol_type)
            || differs(&sync.protocol_name, &self.protocol_name)
        {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        match self.state {
            GroupState::Empty | GroupState::Dead => Err(GroupError::UnknownMemberId),
            GroupState::PreparingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::Stable => {
                // It came late, but it came: it holds nobody up.
                if let Some(member) = self.members.get_mut(&sync.member_id) {
                    member.pending_sync = false;
                }
                let assignment = self.synced(&sync.member_id);
                self.touch(&sync.member_id, now_ms);
                self.effects.push(Effect::Sync(sync.reply, Ok(assignment)));
                Ok(())
            }
            GroupState::CompletingRebalance => {
                self.park_sync(sync);
                Ok(())
            }
        }
    }

    fn park_sync(&mut self, sync: Sync) {
        let is_leader = self.leader.as_deref() == Some(sync.member_id.as_str());
        if let Some(member) = self.members.get_mut(&sync.member_id) {
            member.pending_sync = false;
            if let Some(older) = member.awaiting_sync.replace(sync.reply) {
                let error = GroupError::RebalanceInProgress;
                self.effects.push(Effect::Sync(older, Err(error)));
            }
        }
        if is_leader && !self.storing {
            self.storing = true;
            let mut assignments = sync.assignments;
            assignments.retain(|id, _| self.members.contains_key(id));
            let generation = self.generation;
            let reason = StoreReason::Assignment {
                generation,
                assignments,
            };
            self.effects.push(Effect::Store(reason));
        }
    }

    /// Reports that the assignment of `generation` is durable, or is not.
    pub fn assignment_stored(
        &mut self,
        generation: i32,
        assignments: &BTreeMap<String, Bytes>,
        stored: bool,
        limits: &GroupLimits,
        now_ms: i64,
    ) {
        if self.state != GroupState::CompletingRebalance || self.generation != generation {
            // A later generation may be storing its own.
            return;
        }
        self.storing = false;
        if !stored {
            self.refuse_syncs(GroupError::CoordinatorNotAvailable, now_ms);
            self.maybe_rebalance(limits, now_ms);
            return;
        }
        self.state = GroupState::Stable;
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let assignment = assignments.get(&id).cloned().unwrap_or_default();
            self.touch(&id, now_ms);
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.assignment = assignment;
            if let Some(reply) = member.awaiting_sync.take() {
                let synced = self.synced(&id);
                self.effects.push(Effect::Sync(reply, Ok(synced)));
            }
        }
    }

    fn synced(&self, id: &str) -> Synced {
        let assignment = self.members.get(id).map(|member| member.assignment.clone());
        Synced {
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            assignment: assignment.unwrap_or_default(),
        }
    }

    pub(super) fn refuse_syncs(&mut self, error: GroupError, now_ms: i64) {
        self.storing = false;
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
            member.pending_sync = false;
            if let Some(reply) = member.awaiting_sync.take() {
                self.effects.push(Effect::Sync(reply, Err(error)));
                // While it was parked it could not beat.
                member.expires_ms = now_ms + i64::from(member.session_timeout_ms);
            }
        }
    }

    /// A member says that it lives (K49).
    ///
    /// # Errors
    /// The member is unknown, fenced, of another generation, or must join again.
    pub fn heartbeat(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        now_ms: i64,
    ) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        self.check_member(member_id, instance_id)?;
        self.check_generation(generation)?;
        match self.state {
            GroupState::Empty | GroupState::Dead => Err(GroupError::UnknownMemberId),
            GroupState::PreparingRebalance => {
                self.touch(member_id, now_ms);
                Err(GroupError::RebalanceInProgress)
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.touch(member_id, now_ms);
                Ok(())
            }
        }
    }

    /// The same when it is answered after it waited for `waited_ms`. As a sign of life it counts
    /// once more, since the member could not send another meanwhile; unless it waited for longer
    /// than the session: by then clients that count for themselves have given the member up, and
    /// come back as a new one that waits until this is out. If it lives it is heard soon.
    ///
    /// # Errors
    /// As [`Group::heartbeat`].
    pub fn heartbeat_after(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        waited_ms: i64,
        now_ms: i64,
    ) -> Result<(), GroupError> {
        let given_up = |member: &&Member| waited_ms >= member.session_timeout_ms.into();
        let member = self.members.get(member_id).filter(given_up);
        let expires_ms = member.map(|member| member.expires_ms);
        let beat = self.heartbeat(member_id, instance_id, generation, now_ms);
        if let (Some(member), Some(at_ms)) = (self.members.get_mut(member_id), expires_ms) {
            member.expires_ms = at_ms.min(member.heard_by_ms(now_ms));
        }
        beat
    }

    /// Whether a commit may be made (K48, I14). Counts as a sign of life.
    ///
    /// # Errors
    /// The member is unknown, fenced, of another generation, or its group is between generations.
    pub fn check_commit(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        now_ms: i64,
    ) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        if generation < 0 && self.state == GroupState::Empty {
            return Ok(());
        }
        if generation >= 0 || !member_id.is_empty() || instance_id.is_some() {
            self.check_member(member_id, instance_id)?;
            self.check_generation(generation)?;
        } else {
            return Err(GroupError::UnknownMemberId);
        }
        match self.state {
            GroupState::CompletingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::Empty | GroupState::Dead => Err(GroupError::UnknownMemberId),
            GroupState::Stable | GroupState::PreparingRebalance => {
                self.touch(member_id, now_ms);
                Ok(())
            }
        }
    }

    /// A member leaves by itself, or an operator removes a static one.
    ///
    /// # Errors
    /// The member is unknown or fenced.
    pub fn leave(
        &mut self,
        leave: &Leave,
        limits: &GroupLimits,
        now_ms: i64,
    ) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        if leave.instance_id.is_none() && self.pending.remove(&leave.member_id).is_some() {
            self.try_complete_join(limits, now_ms);
            return Ok(());
        }
        let id = match &leave.instance_id {
            Some(instance) if leave.member_id.is_empty() => self
                .instances
                .get(instance)
                .cloned()
                .ok_or(GroupError::UnknownMemberId)?,
            _ => leave.member_id.clone(),
        };
        self.check_member(&id, leave.instance_id.as_deref())?;
        self.remove_member(&id, limits, now_ms);
        Ok(())
    }

    fn remove_member(&mut self, id: &str, limits: &GroupLimits, now_ms: i64) {
        self.drop_member(id);
        self.maybe_rebalance_after_loss(limits, now_ms);
    }

    fn maybe_rebalance_after_loss(&mut self, limits: &GroupLimits, now_ms: i64) {
        if matches!(
            self.state,
            GroupState::Stable | GroupState::CompletingRebalance
        ) {
            self.maybe_rebalance(limits, now_ms);
        }
        self.try_complete_join(limits, now_ms);
    }

    /// Takes a member out and answers what it had parked.
    pub(super) fn drop_member(&mut self, id: &str) {
        let Some(mut member) = self.members.remove(id) else {
            return;
        };
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.dismiss(&mut member);
    }

    fn dismiss(&mut self, member: &mut Member) {
        let error = GroupError::UnknownMemberId;
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

    /// When [`Group::tick`] has something to do next, monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let sessions = self.members.values().filter_map(Self::deadline_of);
        let pending = self.pending.values().copied();
        let wait = self.join_wait.map(|wait| match wait {
            JoinWait::Initial { until_ms, .. } | JoinWait::Rejoin { until_ms } => until_ms,
        });
        sessions
            .chain(pending)
            .chain(wait)
            .chain(self.sync_until_ms)
            .min()
    }

    fn deadline_of(member: &Member) -> Option<i64> {
        // A parked member cannot heartbeat; a new one has a time of its own, parked or not.
        (member.is_new || !member.is_parked()).then_some(member.expires_ms)
    }

    /// Time has passed.
    pub fn tick(&mut self, limits: &GroupLimits, now_ms: i64) {
        self.pending.retain(|_, lapses_ms| *lapses_ms > now_ms);
        self.expire_sessions(limits, now_ms);
        self.expire_syncs(limits, now_ms);
        self.try_complete_join(limits, now_ms);
    }

    fn expire_sessions(&mut self, limits: &GroupLimits, now_ms: i64) {
        let late = |member: &&Member| Self::deadline_of(member).is_some_and(|at| at <= now_ms);
        let gone: Vec<String> = self
            .members
            .values()
            .filter(late)
            .map(|member| member.id.clone())
            .collect();
        if gone.is_empty() {
            return;
        }
        // All at once: no generation is begun with a member that is already known to be gone.
        for id in gone {
            self.drop_member(&id);
        }
        self.maybe_rebalance_after_loss(limits, now_ms);
    }

    /// Members that joined but never asked for their assignment hold the group up: they are out.
    fn expire_syncs(&mut self, limits: &GroupLimits, now_ms: i64) {
        if self.sync_until_ms.is_none_or(|until_ms| now_ms < until_ms) {
            return;
        }
        self.sync_until_ms = None;
        let waits = matches!(
            self.state,
            GroupState::CompletingRebalance | GroupState::Stable
        );
        let gone: Vec<String> = self
            .members
            .values()
            .filter(|member| member.pending_sync)
            .map(|member| member.id.clone())
            .collect();
        if !waits || gone.is_empty() {
            return;
        }
        for id in gone {
            self.drop_member(&id);
        }
        self.maybe_rebalance_after_loss(limits, now_ms);
    }

    /// The coordinator could not prove itself for `stalled_ms` up to now: that time does not count,
    /// and whoever was held up gets a while to be heard again. No longer than that: clients that
    /// count for themselves may have given members up and come back as new ones, which wait until
    /// the old ones are out.
    pub fn excuse(&mut self, stalled_ms: i64, now_ms: i64) {
        let grace_ms = stalled_ms.max(STALL_GRACE_MS);
        let later = |at_ms: &mut i64, longest_ms: i64| {
            *at_ms = (*at_ms + stalled_ms).max(now_ms + grace_ms.min(longest_ms));
        };
        let rebalance_ms = self.rebalance_timeout_ms();
        for member in self.members.values_mut() {
            if member.is_new {
                later(&mut member.expires_ms, member.session_timeout_ms.into());
            } else {
                member.expires_ms = member.expires_ms.max(member.heard_by_ms(now_ms));
            }
        }
        for lapses_ms in self.pending.values_mut() {
            later(lapses_ms, grace_ms);
        }
        if let Some(JoinWait::Rejoin { until_ms }) = &mut self.join_wait {
            later(until_ms, rebalance_ms);
        }
        if let Some(until_ms) = &mut self.sync_until_ms {
            later(until_ms, rebalance_ms);
        }
    }
}
