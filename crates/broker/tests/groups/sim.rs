//! A group on a clock of its own, with all its answers noted.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidemill_broker::groups::{
    error::GroupError,
    join::Join,
    machine::{Effect, Group, GroupLimits, JoinRefused, Joined, Reply, StoreReason, Synced},
    member::Protocol,
    session::{Leave, Sync},
};

pub const SESSION_MS: i32 = 10_000;
pub const REBALANCE_MS: i32 = 60_000;

pub struct Sim {
    pub group: Group,
    pub limits: GroupLimits,
    pub now_ms: i64,
    pub joins: BTreeMap<Reply, Result<Joined, JoinRefused>>,
    pub syncs: BTreeMap<Reply, Result<Synced, GroupError>>,
    /// What is to be stored and is not yet.
    pub stores: Vec<StoreReason>,
    pub store_at_once: bool,
    pub asked: u64,
}

pub fn protocols(names: &[&str]) -> Vec<Protocol> {
    let protocol = |name: &&str| Protocol {
        name: (*name).to_owned(),
        metadata: Bytes::from(format!("meta {name}")),
    };
    names.iter().map(protocol).collect()
}

pub fn leave(member_id: &str, instance_id: Option<&str>) -> Leave {
    Leave {
        member_id: member_id.to_owned(),
        instance_id: instance_id.map(str::to_owned),
    }
}

impl Sim {
    pub fn new() -> Self {
        Self {
            group: Group::new("g"),
            limits: GroupLimits::default(),
            now_ms: 1_000,
            joins: BTreeMap::new(),
            syncs: BTreeMap::new(),
            stores: Vec::new(),
            store_at_once: true,
            asked: 0,
        }
    }

    /// A request of an old version (no id required) for `member_id`, or a new member.
    pub fn request(&mut self, member_id: &str) -> Join {
        self.asked += 1;
        Join {
            reply: Reply(self.asked),
            member_id: member_id.to_owned(),
            instance_id: None,
            fresh_id: format!("m{:04}", self.asked),
            require_known_id: false,
            knows_skip: false,
            client_id: "client".to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            session_timeout_ms: SESSION_MS,
            rebalance_timeout_ms: REBALANCE_MS,
            protocol_type: "consumer".to_owned(),
            protocols: protocols(&["range", "sticky"]),
        }
    }

    pub fn send(&mut self, join: Join) -> Reply {
        let reply = join.reply;
        self.group.join(join, &self.limits, self.now_ms);
        self.settle();
        reply
    }

    pub fn join(&mut self, member_id: &str) -> Reply {
        let join = self.request(member_id);
        self.send(join)
    }

    pub fn join_static(&mut self, instance: &str, member_id: &str, knows_skip: bool) -> Reply {
        let mut join = self.request(member_id);
        join.instance_id = Some(instance.to_owned());
        join.knows_skip = knows_skip;
        self.send(join)
    }

    pub fn sync_with(
        &mut self,
        member_id: &str,
        instance: Option<&str>,
        generation: i32,
        assignments: &[(&str, &str)],
    ) -> Reply {
        self.asked += 1;
        let reply = Reply(self.asked);
        let owned =
            |(id, bytes): &(&str, &str)| ((*id).to_owned(), Bytes::from((*bytes).to_owned()));
        let sync = Sync {
            reply,
            member_id: member_id.to_owned(),
            instance_id: instance.map(str::to_owned),
            generation,
            protocol_type: None,
            protocol_name: None,
            assignments: assignments.iter().map(owned).collect(),
        };
        self.group.sync(sync, self.now_ms);
        self.settle();
        reply
    }

    pub fn sync(&mut self, member_id: &str, assignments: &[(&str, &str)]) -> Reply {
        self.sync_with(member_id, None, self.group.generation(), assignments)
    }

    pub fn beat(&mut self, member_id: &str) -> Result<(), GroupError> {
        let generation = self.group.generation();
        self.group
            .heartbeat(member_id, None, generation, self.now_ms)
    }

    pub fn leave(&mut self, member_id: &str, instance: Option<&str>) -> Result<(), GroupError> {
        let left = self
            .group
            .leave(&leave(member_id, instance), &self.limits, self.now_ms);
        self.settle();
        left
    }

    /// Lets time pass, firing at every deadline on the way.
    pub fn pass(&mut self, ms: i64) {
        let end_ms = self.now_ms + ms;
        while let Some(at_ms) = self
            .group
            .next_deadline_ms()
            .filter(|at_ms| *at_ms <= end_ms)
        {
            self.now_ms = self.now_ms.max(at_ms);
            let before = self.group.next_deadline_ms();
            self.group.tick(&self.limits, self.now_ms);
            self.settle();
            assert_ne!(self.group.next_deadline_ms(), before, "a timer that spins");
        }
        self.now_ms = end_ms;
    }

    pub fn settle(&mut self) {
        loop {
            let effects = self.group.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.carry_out(effect);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Join(reply, result) => {
                assert!(self.joins.insert(reply, result).is_none(), "answered twice");
            }
            Effect::Sync(reply, result) => {
                assert!(self.syncs.insert(reply, result).is_none(), "answered twice");
            }
            Effect::Store(reason) if self.store_at_once => self.report(reason, true),
            Effect::Store(reason) => self.stores.push(reason),
        }
    }

    /// The oldest store ends.
    pub fn stored(&mut self, is_stored: bool) {
        if !self.stores.is_empty() {
            let reason = self.stores.remove(0);
            self.report(reason, is_stored);
            self.settle();
        }
    }

    fn report(&mut self, reason: StoreReason, is_stored: bool) {
        let (limits, now_ms) = (&self.limits, self.now_ms);
        match reason {
            StoreReason::Assignment {
                generation,
                assignments,
            } => {
                self.group
                    .assignment_stored(generation, &assignments, is_stored, limits, now_ms);
            }
            StoreReason::StaticMember { reply, joined } => {
                self.group.static_stored(reply, joined, is_stored);
            }
            StoreReason::Empty => {}
        }
    }

    pub fn joined(&self, reply: Reply) -> &Joined {
        let answer = self.joins.get(&reply).expect("answered");
        answer.as_ref().expect("accepted")
    }

    pub fn refused(&self, reply: Reply) -> &JoinRefused {
        let answer = self.joins.get(&reply).expect("answered");
        answer.as_ref().expect_err("refused")
    }

    pub fn synced(&self, reply: Reply) -> Result<&str, GroupError> {
        let answer = self.syncs.get(&reply).expect("answered").as_ref();
        answer
            .map(|synced| std::str::from_utf8(&synced.assignment).expect("text"))
            .map_err(|error| *error)
    }

    pub fn is_parked(&self, reply: Reply) -> bool {
        !self.joins.contains_key(&reply) && !self.syncs.contains_key(&reply)
    }

    /// A stable group of so many dynamic members; their ids, the leader's first.
    pub fn stable(&mut self, count: usize) -> Vec<String> {
        let replies: Vec<Reply> = (0..count).map(|_| self.join("")).collect();
        while self.is_parked(replies[0]) {
            self.pass(1_000);
        }
        let ids: Vec<String> = replies
            .iter()
            .map(|r| self.joined(*r).member_id.clone())
            .collect();
        for id in ids.iter().rev() {
            self.sync(id, &[(id, "a")]);
        }
        ids
    }
}
