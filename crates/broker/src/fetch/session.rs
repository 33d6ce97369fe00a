//! Incremental fetch sessions (KIP-227, K13): the broker remembers a client's partitions, the
//! client sends only what changes, the broker answers only what is new.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tidemill_runtime::{Entropy, Instant};
use tidemill_wire::{
    ErrorCode, Str,
    ids::TopicId,
    messages::fetch::{FetchPartition, FetchRequest, ForgottenTopic, PartitionData},
};

/// Partitions over all sessions; some 100 bytes each.
const PARTITIONS_MAX: usize = 500_000;
/// A session unused for this long gives way to a new one: Kafka's
/// `min.incremental.fetch.session.eviction.ms`.
const EVICT_AFTER: Duration = Duration::from_secs(120);
/// The epoch that opens a session.
const INITIAL_EPOCH: i32 = 0;
/// The epoch that closes a session, or of a request without one.
const FINAL_EPOCH: i32 = -1;

/// A topic as the request names it: by id from v13 on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TopicKey {
    /// By name.
    Name(Str),
    /// By id.
    Id(TopicId),
}

/// One partition to be fetched, as the client sees it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The topic.
    pub topic: TopicKey,
    /// The name the id had when it was first seen in the session (K14).
    pub known_name: Option<Arc<str>>,
    /// The partition.
    pub index: i32,
    /// From here.
    pub offset: i64,
    /// At most so many bytes, but for the first batch.
    pub max_bytes: i32,
    /// The leader epoch the client believes in, or -1.
    pub leader_epoch: i32,
    /// Epoch of the last record the client has, or -1.
    pub last_fetched_epoch: i32,
}

impl Target {
    fn new(topic: &TopicKey, partition: &FetchPartition) -> Self {
        Self {
            topic: topic.clone(),
            known_name: None,
            index: partition.partition,
            offset: partition.fetch_offset,
            max_bytes: partition.partition_max_bytes,
            leader_epoch: partition.current_leader_epoch,
            last_fetched_epoch: partition.last_fetched_epoch,
        }
    }
}

/// All partitions of a request, in its order.
fn targets(request: &FetchRequest, by_id: bool) -> Vec<Target> {
    let topics = request.topics.iter().flat_map(|topic| {
        let key = topic_key(&topic.topic, topic.topic_id, by_id);
        topic
            .partitions
            .iter()
            .map(move |partition| Target::new(&key, partition))
    });
    topics.collect()
}

fn topic_key(name: &Str, id: TopicId, by_id: bool) -> TopicKey {
    if by_id {
        TopicKey::Id(id)
    } else {
        TopicKey::Name(name.detached())
    }
}

#[derive(Debug)]
struct Entry {
    target: Target,
    /// As last sent; -1 makes the next answer name the partition whatever it is.
    high_watermark: i64,
    log_start: i64,
}

/// One client's partitions.
#[derive(Debug)]
pub(crate) struct Session {
    id: i32,
    epoch: i32,
    by_id: bool,
    entries: Vec<Entry>,
    positions: HashMap<(TopicKey, i32), usize>,
    /// Where the next fetch begins: behind the last partition that gave data (F24).
    start: usize,
}

impl Session {
    fn new(id: i32, by_id: bool, targets: Vec<Target>) -> Self {
        let mut session = Self {
            id,
            epoch: next_epoch(INITIAL_EPOCH),
            by_id,
            entries: Vec::new(),
            positions: HashMap::new(),
            start: 0,
        };
        targets.into_iter().for_each(|target| session.put(target));
        session
    }

    fn put(&mut self, mut target: Target) {
        let key = (target.topic.clone(), target.index);
        if let Some(position) = self.positions.get(&key) {
            let entry = &mut self.entries[*position];
            target.known_name = entry.target.known_name.take();
            entry.target = target;
            return;
        }
        self.positions.insert(key, self.entries.len());
        self.entries.push(Entry {
            target,
            high_watermark: -1,
            log_start: -1,
        });
    }

    fn forget(&mut self, topic: &TopicKey, index: i32) {
        let Some(position) = self.positions.remove(&(topic.clone(), index)) else {
            return;
        };
        self.entries.swap_remove(position);
        if let Some(moved) = self.entries.get(position) {
            let key = (moved.target.topic.clone(), moved.target.index);
            self.positions.insert(key, position);
        }
    }

    fn update(&mut self, request: &FetchRequest) {
        for ForgottenTopic {
            topic,
            topic_id,
            partitions,
        } in &request.forgotten_topics_data
        {
            let key = topic_key(topic, *topic_id, self.by_id);
            partitions
                .iter()
                .for_each(|index| self.forget(&key, *index));
        }
        for target in targets(request, self.by_id) {
            self.put(target);
        }
    }

    /// All partitions, those first that were longest without data.
    fn targets(&self) -> Vec<Target> {
        let start = self.start.min(self.entries.len());
        let (before, behind) = self.entries.split_at(start);
        behind
            .iter()
            .chain(before)
            .map(|entry| entry.target.clone())
            .collect()
    }

    /// Whether `data` says anything the client does not know; notes it as sent.
    fn is_news(&mut self, target: &Target, data: &PartitionData) -> bool {
        let Some(position) = self.positions.get(&(target.topic.clone(), target.index)) else {
            // Forgotten meanwhile, by a request that overtook this one.
            return true;
        };
        let has_data = data
            .records
            .as_ref()
            .is_some_and(|records| !records.is_empty());
        let entry = &mut self.entries[*position];
        let mut news = has_data || data.diverging_epoch.epoch >= 0;
        news |= entry.high_watermark != data.high_watermark;
        news |= entry.log_start != data.log_start_offset;
        entry.high_watermark = data.high_watermark;
        entry.log_start = data.log_start_offset;
        if data.error_code != ErrorCode::NONE {
            // The next answer says that the error is over.
            (entry.high_watermark, entry.log_start) = (-1, -1);
            news = true;
        }
        if has_data {
            self.start = (*position + 1) % self.entries.len();
        }
        news
    }
}

fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        i32::MAX => 1,
        epoch if epoch < 0 => FINAL_EPOCH,
        epoch => epoch + 1,
    }
}

/// How a request relates to a session.
#[derive(Debug)]
pub(crate) enum Plan {
    /// The whole answer is an error of the session.
    Error(ErrorCode),
    /// No session is wanted or needed.
    Sessionless(Vec<Target>),
    /// A session is to be opened with the answer.
    Open {
        /// Whether topics are named by id.
        by_id: bool,
        /// What to fetch.
        targets: Vec<Target>,
    },
    /// One more fetch of a session.
    Incremental {
        /// The session.
        session: Arc<Mutex<Session>>,
        /// The epoch it had after this request was taken.
        epoch: i32,
        /// What to fetch.
        targets: Vec<Target>,
    },
}

impl Plan {
    /// What to fetch.
    pub fn targets(&self) -> &[Target] {
        match self {
            Self::Error(_) => &[],
            Self::Sessionless(targets)
            | Self::Open { targets, .. }
            | Self::Incremental { targets, .. } => targets,
        }
    }

    /// Keeps of an answer what the client must be told, and notes the names found for topic ids.
    ///
    /// # Errors
    /// The session has moved on meanwhile: another request overtook this one.
    pub fn news(
        &self,
        answers: Vec<(PartitionData, Option<Arc<str>>)>,
    ) -> Result<Vec<(usize, PartitionData)>, ErrorCode> {
        let answers = answers.into_iter().enumerate();
        let Self::Incremental {
            session,
            epoch,
            targets,
        } = self
        else {
            return Ok(answers.map(|(index, (data, _))| (index, data)).collect());
        };
        let mut session = session.lock();
        if session.epoch != *epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        let mut news = Vec::new();
        for (index, (data, name)) in answers {
            let target = &targets[index];
            if let Some(name) = name {
                session.name(target, name);
            }
            if session.is_news(target, &data) {
                news.push((index, data));
            }
        }
        Ok(news)
    }
}

impl Session {
    fn name(&mut self, target: &Target, name: Arc<str>) {
        if target.known_name.is_none()
            && let Some(position) = self.positions.get(&(target.topic.clone(), target.index))
        {
            self.entries[*position].target.known_name = Some(name);
        }
    }
}

struct Slot {
    session: Arc<Mutex<Session>>,
    last_used: Instant,
    partitions: usize,
}

/// The sessions of a broker, within limits.
pub(crate) struct SessionCache {
    slots: Mutex<BTreeMap<i32, Slot>>,
    /// `max.incremental.fetch.session.cache.slots`.
    limit: usize,
    entropy: Entropy,
}

impl SessionCache {
    /// No sessions yet, and at most `limit`.
    pub fn new(entropy: Entropy, limit: usize) -> Self {
        Self {
            slots: Mutex::default(),
            limit,
            entropy,
        }
    }

    /// Takes a request: what is to be fetched, and in which session.
    pub fn plan(&self, request: &FetchRequest, version: i16, now: Instant) -> Plan {
        let by_id = version >= 13;
        match request.session_epoch {
            INITIAL_EPOCH | FINAL_EPOCH => {
                if request.session_id != 0 {
                    self.slots.lock().remove(&request.session_id);
                }
                let targets = targets(request, by_id);
                if request.session_epoch == FINAL_EPOCH || version < 7 {
                    Plan::Sessionless(targets)
                } else {
                    Plan::Open { by_id, targets }
                }
            }
            _ => self.incremental(request, by_id, now),
        }
    }

    fn incremental(&self, request: &FetchRequest, by_id: bool, now: Instant) -> Plan {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.get_mut(&request.session_id) else {
            return Plan::Error(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        };
        let shared = Arc::clone(&slot.session);
        let mut session = shared.lock();
        if session.epoch != request.session_epoch {
            return Plan::Error(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != by_id {
            return Plan::Error(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        session.update(request);
        session.epoch = next_epoch(session.epoch);
        slot.last_used = now;
        slot.partitions = session.entries.len();
        if session.entries.is_empty() {
            slots.remove(&request.session_id);
            return Plan::Sessionless(Vec::new());
        }
        let (epoch, targets) = (session.epoch, session.targets());
        drop(session);
        Plan::Incremental {
            session: shared,
            epoch,
            targets,
        }
    }

    /// Opens a session after its first answer; returns its id, 0 if there is no room.
    pub fn open(
        &self,
        by_id: bool,
        targets: Vec<Target>,
        answers: &[(PartitionData, Option<Arc<str>>)],
        now: Instant,
    ) -> i32 {
        let mut slots = self.slots.lock();
        if targets.is_empty() || !make_room(&mut slots, self.limit, targets.len(), now) {
            return 0;
        }
        let id = loop {
            let random = self.entropy.below(i32::MAX.unsigned_abs().into());
            let id = i32::try_from(random).unwrap_or(0);
            if id != 0 && !slots.contains_key(&id) {
                break id;
            }
        };
        let mut session = Session::new(id, by_id, targets.clone());
        for (target, (data, name)) in targets.iter().zip(answers) {
            session.is_news(target, data);
            if let Some(name) = name {
                session.name(target, Arc::clone(name));
            }
        }
        let partitions = session.entries.len();
        let session = Arc::new(Mutex::new(session));
        slots.insert(
            id,
            Slot {
                session,
                last_used: now,
                partitions,
            },
        );
        id
    }

    /// The id that the answer to `plan` carries, but for one that opens a session.
    pub fn id_of(plan: &Plan) -> i32 {
        match plan {
            Plan::Incremental { session, .. } => session.lock().id,
            _ => 0,
        }
    }

    /// Sessions kept.
    pub fn len(&self) -> usize {
        self.slots.lock().len()
    }
}

/// Makes room for a session of `partitions`: the longest unused goes if it is stale, else the
/// smallest if it is smaller than the new one, which saves more.
fn make_room(
    slots: &mut BTreeMap<i32, Slot>,
    limit: usize,
    partitions: usize,
    now: Instant,
) -> bool {
    let fits = |slots: &BTreeMap<i32, Slot>| {
        let held: usize = slots.values().map(|slot| slot.partitions).sum();
        slots.len() < limit && held + partitions <= PARTITIONS_MAX
    };
    if limit == 0 || partitions > PARTITIONS_MAX {
        return false;
    }
    while !fits(slots) {
        let oldest = slots.iter().min_by_key(|(_, slot)| slot.last_used);
        let smallest = slots.iter().min_by_key(|(_, slot)| slot.partitions);
        let stale = oldest.filter(|(_, slot)| now >= slot.last_used + EVICT_AFTER);
        let smaller = smallest.filter(|(_, slot)| slot.partitions < partitions);
        let Some(victim) = stale.or(smaller).map(|(id, _)| *id) else {
            return false;
        };
        slots.remove(&victim);
    }
    true
}
