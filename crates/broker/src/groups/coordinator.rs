//! The group coordinator: shards by partition of `__consumer_offsets`, and what clients ask of
//! them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use tidemill_cluster::{Cluster, Image};
use tidemill_log::{Log, partition::Partition};
use tidemill_runtime::Runtime;
use tidemill_wire::{ErrorCode, Str};
use tokio::sync::oneshot;

use super::{
    cell::{Cell, Offsets},
    commit::{Appended, Commit},
    error::GroupError,
    join::Join,
    load::load,
    machine::{GroupLimits, GroupState, JoinRefused, Joined, Reply, Synced},
    record::{self, OffsetValue},
    session::{Leave, Sync},
    shard::{Change, Phase, Shard, Then},
    subscription::Subscribed,
};
use crate::config::GroupSettings;

/// A coordinator waits so long for a shard that is being loaded before it says so (14).
const LOAD_PATIENCE: Duration = Duration::from_millis(500);
/// A proof of leadership may be so old when members are expired (R7).
const FRESH_WITHIN: Duration = Duration::from_secs(10);
/// A proof that took longer says that the store was stalled: members are excused for that time.
const STALL_MIN_MS: i64 = 200;

/// Bytes of records in one commit: each repeats group and topic, so that a request can grow
/// twentyfold. Enough for 40,000 partitions with long names; Kafka takes 1 MiB.
const COMMIT_BYTES_MAX: usize = 16 << 20;

/// True if `topic` is in both images, and is the same one.
pub(super) fn is_same(image: &Image, other: &Image, topic: &str) -> bool {
    let id = |image: &Image| image.topic_by_name(topic).map(|topic| topic.id);
    id(image).is_some() && id(image) == id(other)
}

/// The records of a commit; none if they are too large to be one.
fn offset_changes(group: &str, items: &[(Str, i32, OffsetValue)]) -> Option<Vec<Change>> {
    let mut bytes = 0;
    let change = |(topic, index, value): &(Str, i32, OffsetValue)| {
        let key = record::offset_key(group, topic, *index).ok()?;
        let value = record::offset_value(value).ok()?;
        bytes += key.len() + value.len();
        (bytes <= COMMIT_BYTES_MAX).then_some(Change {
            key,
            value: Some(value),
        })
    };
    items.iter().map(change).collect()
}

/// Coordinates all groups whose partition this broker leads.
pub(crate) struct Coordinator {
    log: Arc<Log>,
    cluster: Arc<Cluster>,
    runtime: Runtime,
    /// Settings.
    pub settings: GroupSettings,
    limits: Arc<GroupLimits>,
    shards: RwLock<BTreeMap<i32, Arc<Shard>>>,
    /// Partitions of `__consumer_offsets`; 0 before there are any.
    partitions: AtomicI32,
    /// Held while the topic is created.
    pub creating: tokio::sync::Mutex<()>,
}

/// The partition of a group: Java's hash of the id, made positive, modulo the partitions.
pub(crate) fn partition_of(group: &str, partitions: i32) -> i32 {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    let hash = group.encode_utf16().fold(0i32, step);
    (hash & i32::MAX) % partitions.max(1)
}

impl Coordinator {
    /// A coordinator without shards.
    pub fn new(
        log: Arc<Log>,
        cluster: Arc<Cluster>,
        runtime: Runtime,
        settings: GroupSettings,
    ) -> Arc<Self> {
        let limits = GroupLimits {
            session_timeout_min_ms: settings.session_timeout_min_ms,
            session_timeout_max_ms: settings.session_timeout_max_ms,
            initial_rebalance_delay_ms: settings.initial_rebalance_delay_ms,
            size_max: settings.size_max,
            ..GroupLimits::default()
        };
        Arc::new(Self {
            log,
            cluster,
            runtime,
            settings,
            limits: Arc::new(limits),
            shards: RwLock::default(),
            partitions: AtomicI32::new(0),
            creating: tokio::sync::Mutex::new(()),
        })
    }

    /// Leads these partitions of `__consumer_offsets`, of `count` that there are.
    pub fn lead_all(self: &Arc<Self>, led: Vec<Arc<Partition>>, count: i32) {
        for partition in led {
            self.lead(partition);
        }
        self.partitions.store(count, Ordering::Release);
    }

    /// Leads a partition: loads its groups and serves them.
    fn lead(self: &Arc<Self>, partition: Arc<Partition>) {
        let id = partition.id();
        let mut shards = self.shards.write();
        if shards
            .get(&id.index)
            .is_some_and(|shard| shard.partition == id)
        {
            return;
        }
        let shard = Shard::new(id, self.log.clone(), self.runtime.clone());
        shards.insert(id.index, shard.clone());
        drop(shards);
        let tasks = &self.runtime.tasks;
        tasks.spawn("group records", shard.clone().apply(self.limits.clone()));
        tasks.spawn(
            "group timers",
            Self::time(Arc::downgrade(self), shard.clone()),
        );
        let load = load(shard, partition, self.cluster.clone(), self.limits.clone());
        tasks.spawn("group load", load);
    }

    /// The shard of a group, once it serves.
    ///
    /// # Errors
    /// NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
    async fn shard(&self, group: &str) -> Result<Arc<Shard>, ErrorCode> {
        let shard = self.shard_of(group)?;
        let phase = *shard.phase.borrow();
        match phase {
            Phase::Serving => Ok(shard),
            Phase::Failed => Err(ErrorCode::NOT_COORDINATOR),
            Phase::Loading => {
                let mut phase = shard.phase.subscribe();
                let loaded = phase.wait_for(|phase| *phase != Phase::Loading);
                match self.runtime.clock.timeout(LOAD_PATIENCE, loaded).await {
                    Ok(Ok(phase)) if *phase == Phase::Serving => {}
                    Ok(_) => return Err(ErrorCode::NOT_COORDINATOR),
                    Err(_) => return Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
                }
                Ok(shard)
            }
        }
    }

    fn shard_of(&self, group: &str) -> Result<Arc<Shard>, ErrorCode> {
        let index = partition_of(group, self.partitions.load(Ordering::Acquire));
        self.shards
            .read()
            .get(&index)
            .cloned()
            .ok_or(ErrorCode::NOT_COORDINATOR)
    }

    /// True once `__consumer_offsets` is led, whatever the phases of its shards.
    pub fn is_led(&self) -> bool {
        self.partitions.load(Ordering::Acquire) > 0
    }

    /// JoinGroup. `join` makes the request of the reply to park it under.
    pub async fn join(
        &self,
        group: &str,
        is_known: bool,
        join: impl FnOnce(Reply) -> Join,
    ) -> Result<Result<Joined, JoinRefused>, ErrorCode> {
        let shard = self.shard(group).await?;
        let answered = {
            let cell = match is_known {
                true => shard.group(group).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?,
                false => shard.group_or_new(group),
            };
            let mut cell = cell.lock();
            let (reply, answered) = cell.park_join();
            cell.machine.join(join(reply), &self.limits, shard.now_ms());
            cell.settle(&shard, &self.limits);
            cell.sweep(&shard);
            answered
        };
        answered.await.map_err(|_| ErrorCode::NOT_COORDINATOR)
    }

    /// SyncGroup.
    pub async fn sync(
        &self,
        group: &str,
        sync: impl FnOnce(Reply) -> Sync,
    ) -> Result<Result<Synced, GroupError>, ErrorCode> {
        let shard = self.shard(group).await?;
        let answered = {
            let cell = shard.group(group).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            let mut cell = cell.lock();
            let (reply, answered) = cell.park_sync();
            cell.machine.sync(sync(reply), shard.now_ms());
            cell.settle(&shard, &self.limits);
            answered
        };
        answered.await.map_err(|_| ErrorCode::NOT_COORDINATOR)
    }

    /// Heartbeat, or what it comes to after it has `waited` for its answer.
    pub async fn heartbeat(
        &self,
        group: &str,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        waited: Duration,
    ) -> Result<(), ErrorCode> {
        let shard = self.shard(group).await?;
        let cell = shard.group(group).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let mut cell = cell.lock();
        let now_ms = shard.now_ms();
        let waited_ms = i64::try_from(waited.as_millis()).unwrap_or(i64::MAX);
        let machine = &mut cell.machine;
        let beat = machine.heartbeat_after(member_id, instance_id, generation, waited_ms, now_ms);
        cell.settle(&shard, &self.limits);
        beat.map_err(|error| ErrorCode(error.code()))
    }

    /// LeaveGroup: one result a member.
    pub async fn leave(
        &self,
        group: &str,
        leaving: &[Leave],
    ) -> Result<Vec<Result<(), GroupError>>, ErrorCode> {
        let shard = self.shard(group).await?;
        let Some(cell) = shard.group(group) else {
            return Ok(vec![Err(GroupError::UnknownMemberId); leaving.len()]);
        };
        let mut cell = cell.lock();
        let now_ms = shard.now_ms();
        let one = |leave: &Leave| cell.machine.leave(leave, &self.limits, now_ms);
        let results = leaving.iter().map(one).collect();
        cell.settle(&shard, &self.limits);
        Ok(results)
    }

    /// OffsetCommit: checks and appends it.
    pub async fn commit(&self, group: &str, commit: Commit) -> Result<Appended, ErrorCode> {
        let shard = self.shard(group).await?;
        self.append_commit(&shard, group, commit).map(Appended)
    }

    fn append_commit(
        &self,
        shard: &Shard,
        group: &str,
        commit: Commit,
    ) -> Result<Option<oneshot::Receiver<Result<(), ErrorCode>>>, ErrorCode> {
        let cell = match shard.group(group) {
            Some(cell) => cell,
            None if commit.generation < 0 => shard.group_or_new(group),
            None => return Err(ErrorCode::ILLEGAL_GENERATION),
        };
        let mut guard = cell.lock();
        let appended = self.append_to(shard, &cell, &mut guard, commit);
        guard.sweep(shard);
        appended
    }

    fn append_to(
        &self,
        shard: &Shard,
        cell: &Arc<Mutex<Cell>>,
        guard: &mut Cell,
        mut commit: Commit,
    ) -> Result<Option<oneshot::Receiver<Result<(), ErrorCode>>>, ErrorCode> {
        let group = guard.machine.id.clone();
        let (member_id, instance_id) = (&commit.member_id, commit.instance_id.as_deref());
        let now_ms = shard.now_ms();
        guard
            .machine
            .check_commit(member_id, instance_id, commit.generation, now_ms)
            .map_err(|error| ErrorCode(error.code()))?;
        guard.settle(shard, &self.limits);
        // Under the group's lock, which a deletion takes after it is in the image: what is deleted
        // meanwhile gets no record behind those that make it forgotten.
        let image = self.cluster.image();
        if !Arc::ptr_eq(&image, &commit.image) {
            let is_there = |topic: &str| is_same(&image, &commit.image, topic);
            commit.items.retain(|(topic, ..)| is_there(topic));
        }
        if commit.items.is_empty() {
            return Ok(None);
        }
        let changes =
            offset_changes(&group, &commit.items).ok_or(ErrorCode::INVALID_COMMIT_OFFSET_SIZE)?;
        let (done, waits) = oneshot::channel();
        let items = commit.items;
        let coming = items.clone();
        let cell = cell.clone();
        shard.append(changes, Then::Offsets { cell, items, done })?;
        // The group is locked: what follows from the record comes after this.
        guard.committing(&coming);
        Ok(Some(waits))
    }

    /// The durable offsets of a group; empty if there is none (K50).
    pub async fn offsets(&self, group: &str) -> Result<Offsets, ErrorCode> {
        let shard = self.shard(group).await?;
        Ok(shard
            .group(group)
            .map(|cell| cell.lock().offsets.clone())
            .unwrap_or_default())
    }

    /// Looks at a group.
    pub async fn view<T>(
        &self,
        group: &str,
        view: impl FnOnce(&Cell) -> T,
    ) -> Result<Option<T>, ErrorCode> {
        let shard = self.shard(group).await?;
        let cell = shard.group(group);
        Ok(cell.map(|cell| view(&cell.lock())))
    }

    /// Looks at all groups, ordered by id.
    ///
    /// # Errors
    /// COORDINATOR_LOAD_IN_PROGRESS while a shard is being loaded.
    pub fn views<T>(&self, mut view: impl FnMut(&Cell) -> T) -> Result<Vec<T>, ErrorCode> {
        let shards: Vec<_> = self.shards.read().values().cloned().collect();
        let mut cells: BTreeMap<String, Arc<Mutex<Cell>>> = BTreeMap::new();
        for shard in shards {
            match *shard.phase.borrow() {
                Phase::Loading => return Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
                Phase::Failed => return Err(ErrorCode::NOT_COORDINATOR),
                Phase::Serving => {}
            }
            for cell in shard.all() {
                let id = cell.lock().machine.id.clone();
                cells.insert(id, cell);
            }
        }
        Ok(cells.values().map(|cell| view(&cell.lock())).collect())
    }

    /// DeleteGroups: the group and all its offsets.
    pub async fn delete(&self, group: &str) -> Result<(), ErrorCode> {
        let shard = self.shard(group).await?;
        let done = {
            let cell = shard.group(group).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
            let mut guard = cell.lock();
            if guard.is_void() {
                // An id that somebody asked about, nothing else.
                shard.remove(group);
                return Err(ErrorCode::GROUP_ID_NOT_FOUND);
            }
            guard
                .machine
                .delete()
                .map_err(|error| ErrorCode(error.code()))?;
            let done = self.bury(&shard, &mut guard)?;
            shard.remove(group);
            done
        };
        done.await.map_err(|_| ErrorCode::NOT_COORDINATOR)?
    }

    fn bury(
        &self,
        shard: &Shard,
        cell: &mut Cell,
    ) -> Result<oneshot::Receiver<Result<(), ErrorCode>>, ErrorCode> {
        let unusable = |_| ErrorCode::UNKNOWN_SERVER_ERROR;
        let group = cell.machine.id.clone();
        let key = record::group_key(&group).map_err(unusable)?;
        let mut changes = vec![Change { key, value: None }];
        for (topic, index) in cell.recorded() {
            let key = record::offset_key(&group, &topic, index).map_err(unusable)?;
            changes.push(Change { key, value: None });
        }
        let (done, waits) = oneshot::channel();
        shard.append(changes, Then::Tell(done))?;
        Ok(waits)
    }

    /// OffsetDelete, of offsets that may be deleted.
    pub async fn delete_offsets(&self, group: &str, gone: &[(Str, i32)]) -> Result<(), ErrorCode> {
        let shard = self.shard(group).await?;
        let Some(cell) = shard.group(group) else {
            return Ok(());
        };
        let done = {
            let guard = cell.lock();
            Self::append_deletes(&shard, &cell, &guard, gone.to_vec())?
        };
        match done {
            Some(done) => done.await.map_err(|_| ErrorCode::NOT_COORDINATOR)?,
            None => Ok(()),
        }
    }

    fn append_deletes(
        shard: &Shard,
        cell: &Arc<Mutex<Cell>>,
        guard: &Cell,
        gone: Vec<(Str, i32)>,
    ) -> Result<Option<oneshot::Receiver<Result<(), ErrorCode>>>, ErrorCode> {
        if gone.is_empty() {
            return Ok(None);
        }
        let group = &guard.machine.id;
        let change = |(topic, index): &(Str, i32)| {
            let key = record::offset_key(group, topic, *index)?;
            Ok(Change { key, value: None })
        };
        let changes: Result<Vec<_>, tidemill_wire::EncodeError> = gone.iter().map(change).collect();
        let changes = changes.map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)?;
        let (done, waits) = oneshot::channel();
        let cell = cell.clone();
        shard.append(changes, Then::Forgotten { cell, gone, done })?;
        Ok(Some(waits))
    }

    /// A topic was deleted: nobody's offsets in it mean anything any more. Returns what to wait for
    /// before a topic of that name may be created anew.
    pub fn topic_deleted(&self, topic: &str) -> Vec<oneshot::Receiver<Result<(), ErrorCode>>> {
        let mut waits = Vec::new();
        let shards: Vec<_> = self.shards.read().values().cloned().collect();
        for shard in shards {
            for cell in shard.all() {
                let guard = cell.lock();
                let mut gone = guard.recorded();
                gone.retain(|(name, _)| *name == *topic);
                let gone = gone.into_iter().collect();
                match Self::append_deletes(&shard, &cell, &guard, gone) {
                    Ok(wait) => waits.extend(wait),
                    // The next start finds them without a topic.
                    Err(_) => tracing::debug!(topic, "offsets of a deleted topic not removed"),
                }
            }
        }
        waits
    }

    /// Expires sessions, ends waits, lets offsets lapse. Ends with the coordinator or the shard.
    async fn time(me: std::sync::Weak<Self>, shard: Arc<Shard>) {
        let clock = shard.runtime.clock.clone();
        let Some(interval) = me.upgrade().map(|me| me.settings.offsets_check_interval) else {
            return;
        };
        let mut next_check = clock.monotonic() + interval;
        loop {
            let deadline = shard.timers.next_ms().map(|at_ms| shard.instant(at_ms));
            let wake = deadline.map_or(next_check, |deadline| deadline.min(next_check));
            tokio::select! {
                biased;
                () = shard.timers.earlier.notified() => continue,
                () = clock.sleep_until(wake) => {}
            }
            let Some(me) = me.upgrade() else { return };
            if *shard.phase.borrow() == Phase::Failed || !me.excuse_stall(&shard).await {
                return;
            }
            for group in shard.timers.due(shard.now_ms()) {
                me.tick(&shard, &group);
            }
            if clock.monotonic() >= next_check {
                next_check = clock.monotonic() + interval;
                me.lapse(&shard);
            }
        }
    }

    /// Before anybody is expired this broker must know that it still leads (R7). While the store
    /// does not answer nobody could prove to live, so that time does not count; false once
    /// superseded.
    async fn excuse_stall(&self, shard: &Shard) -> bool {
        let before_ms = shard.now_ms();
        if self.log.fresh_within(FRESH_WITHIN).await.is_err() {
            return false;
        }
        let stalled_ms = shard.now_ms() - before_ms;
        if stalled_ms >= STALL_MIN_MS {
            for cell in shard.all() {
                let mut cell = cell.lock();
                cell.machine.excuse(stalled_ms, shard.now_ms());
                cell.settle(shard, &self.limits);
            }
        }
        true
    }

    fn tick(&self, shard: &Shard, group: &str) {
        let Some(cell) = shard.group(group) else {
            return;
        };
        let mut cell = cell.lock();
        cell.scheduled_ms = None;
        cell.machine.tick(&self.limits, shard.now_ms());
        cell.settle(shard, &self.limits);
        cell.sweep(shard);
    }

    /// Offsets past their retention go (K86), and groups of which nothing is left.
    fn lapse(&self, shard: &Shard) {
        let now_ms = self.runtime.clock.now_ms();
        for cell in shard.all() {
            let mut guard = cell.lock();
            let gone = self.lapsed(&guard, now_ms);
            if Self::append_deletes(shard, &cell, &guard, gone).is_err() {
                return;
            }
            // Offsets that go now are gone once that is durable; their group goes next time.
            if !guard.is_spent() {
                continue;
            }
            let group = guard.machine.id.clone();
            if self.bury(shard, &mut guard).is_err() {
                return;
            }
            if guard.machine.delete().is_ok() {
                shard.remove(&group);
            }
        }
    }

    /// Offsets past their retention: of a group without members all, of one with consumers those
    /// of topics that none of them subscribes to any more (KIP-496). Others may be in use.
    fn lapsed(&self, cell: &Cell, now_ms: i64) -> Vec<(Str, i32)> {
        let retention_ms = i64::try_from(self.settings.offsets_retention.as_millis());
        let retention_ms = retention_ms.unwrap_or(i64::MAX);
        if cell.machine.state() == GroupState::Dead {
            return Vec::new();
        }
        let is_stable = cell.machine.state() == GroupState::Stable;
        let (held, empty_since_ms) = match Subscribed::of(&cell.machine) {
            // Simple consumers have no members that could keep offsets alive: each commit counts.
            Subscribed::Nothing if cell.machine.protocol_type().is_none() => (None, i64::MIN),
            Subscribed::Nothing => (None, cell.empty_since_ms),
            Subscribed::Topics { topics, is_whole } if is_stable && is_whole => {
                (Some(topics), i64::MIN)
            }
            Subscribed::Topics { .. } | Subscribed::Unknown => return Vec::new(),
        };
        let is_late = |value: &OffsetValue| {
            let since_ms = value.commit_ms.max(empty_since_ms);
            let until_ms = since_ms.saturating_add(retention_ms);
            now_ms >= value.expire_ms.unwrap_or(until_ms)
        };
        let is_held = |topic: &Str| held.as_ref().is_some_and(|held| held.contains(topic));
        let mut gone = Vec::new();
        for (topic, partitions) in cell.offsets.iter().filter(|(topic, _)| !is_held(topic)) {
            let late = partitions.iter().filter(|(_, value)| is_late(value));
            gone.extend(late.map(|(index, _)| (topic.clone(), *index)));
        }
        // A commit on its way would be deleted by what is appended behind it.
        gone.retain(|key| !cell.pending.contains_key(key));
        gone
    }
}
