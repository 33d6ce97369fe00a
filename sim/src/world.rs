//! What all actors share.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidemill_invariants::log::Marks;
use tidemill_log::Partition;
use tidemill_runtime::{Entropy, Runtime};
use tidemill_store::{
    Memory,
    testing::{Event, FaultyBackend, SimFs},
};
use tidemill_wire::ids::{PartitionId, TopicId, WriterId};

use crate::{
    broker::Broker,
    check::short,
    history::{Fate, History, Send},
    medium::Medium,
    witness::Witness,
};

/// A topic that was created.
#[derive(Clone, Debug)]
pub struct KnownTopic {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// Number of partitions.
    pub partitions: i32,
}

/// How producers work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// They pause between batches.
    #[default]
    Usual,
    /// They do not.
    Rush,
    /// They send nothing new.
    Lull,
}

#[derive(Default)]
struct State {
    history: History,
    brokers: Vec<Arc<Broker>>,
    topics: Vec<KnownTopic>,
    next_value: u64,
    next_producer_id: i64,
    stopping: bool,
    /// Objects that were created, and whether a late or second write did it.
    created: BTreeMap<String, bool>,
    /// Of all brokers, those that died while they started included.
    backends: Vec<FaultyBackend>,
    witness: Witness,
    pace: Pace,
}

/// The world of one run. Its runtime outlives every broker.
pub struct World {
    /// Clock, entropy and tasks of clients and of writes under way.
    pub runtime: Runtime,
    /// The objects.
    pub medium: Medium,
    state: Mutex<State>,
}

impl World {
    /// An empty world.
    pub fn new(seed: u64) -> Arc<Self> {
        let runtime = Runtime::simulated(seed, 1_700_000_000_000);
        // One run in ten is that of one machine.
        let medium = match seed % 10 {
            9 => Medium::Disk(SimFs::new()),
            _ => Medium::Bucket(Arc::new(Memory::new(runtime.clock.clone()))),
        };
        Arc::new(Self {
            runtime,
            medium,
            state: Mutex::default(),
        })
    }

    /// Random numbers for one actor.
    pub fn fork(&self) -> Entropy {
        self.runtime.entropy.fork()
    }

    /// Milliseconds of virtual time.
    pub fn now_ms(&self) -> i64 {
        self.runtime.clock.now_ms() - 1_700_000_000_000
    }

    /// Sleeps.
    pub async fn sleep_ms(&self, ms: u64) {
        self.runtime.clock.sleep(Duration::from_millis(ms)).await;
    }

    /// Adds a line to the event log; returns its position.
    pub fn note(&self, text: &str) -> usize {
        let now = self.now_ms();
        self.state.lock().history.note(now, text)
    }

    /// Notes something that must never be.
    pub fn violate(&self, text: String) {
        let now = self.now_ms();
        self.state.lock().history.violate(now, text);
    }

    /// True once the workload is to end.
    pub fn stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Ends the workload.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
    }

    /// A new broker, which clients find from now on.
    pub fn add_broker(&self, broker: Arc<Broker>) {
        self.state.lock().brokers.push(broker);
    }

    /// A broker's way to the store; returns its number.
    pub fn add_backend(&self, backend: FaultyBackend) -> u64 {
        let mut state = self.state.lock();
        state.backends.push(backend);
        state.backends.len() as u64 - 1
    }

    /// All brokers' ways to the store, in the order of their starts.
    pub fn backends(&self) -> Vec<FaultyBackend> {
        self.state.lock().backends.clone()
    }

    /// Shows the witness a step of a request.
    pub fn witness(&self, backend: u64, event: &Event) {
        let seen = self.state.lock().witness.note(backend, event);
        if let Some(violation) = seen {
            self.violate(violation);
        }
    }

    /// One past the highest number that stands in a writer's WAL.
    pub fn next_wal_number(&self, writer: WriterId) -> u64 {
        self.state.lock().witness.next_wal_number(writer)
    }

    /// The lowest number that stands in a writer's WAL.
    pub fn first_wal_number(&self, writer: WriterId) -> u64 {
        self.state.lock().witness.first_wal_number(writer)
    }

    /// From now on producers work at this pace.
    pub fn set_pace(&self, pace: Pace) {
        self.note(&format!("pace: {pace:?}"));
        self.state.lock().pace = pace;
    }

    /// How producers work.
    pub fn pace(&self) -> Pace {
        self.state.lock().pace
    }

    /// The newest broker that runs.
    pub fn broker(&self) -> Option<Arc<Broker>> {
        let state = self.state.lock();
        state.brokers.iter().rev().find(|b| b.is_up()).cloned()
    }

    /// Any broker that runs, zombies included.
    pub fn any_broker(&self, entropy: &Entropy) -> Option<Arc<Broker>> {
        let state = self.state.lock();
        let up: Vec<_> = state.brokers.iter().filter(|b| b.is_up()).collect();
        let index = usize::try_from(entropy.below(up.len() as u64)).unwrap_or(0);
        up.get(index).map(|broker| Arc::clone(broker))
    }

    /// All brokers that run.
    pub fn brokers_up(&self) -> Vec<Arc<Broker>> {
        let state = self.state.lock();
        state
            .brokers
            .iter()
            .filter(|b| b.is_up())
            .cloned()
            .collect()
    }

    /// The writer that was registered last, of all brokers that have started.
    pub fn newest_writer(&self) -> Option<WriterId> {
        let state = self.state.lock();
        let writers = state.brokers.iter().map(|b| b.started.cluster.writer());
        writers.max()
    }

    /// The number of the next broker.
    pub fn broker_count(&self) -> usize {
        self.state.lock().brokers.len()
    }

    /// PUTs that brokers sent a second time.
    pub fn hedges(&self) -> u64 {
        let state = self.state.lock();
        let sent = |broker: &Arc<Broker>| broker.started.log.store().put_hedges().sent;
        state.brokers.iter().map(sent).sum()
    }

    /// Topics that exist.
    pub fn topics(&self) -> Vec<KnownTopic> {
        self.state.lock().topics.clone()
    }

    /// Adds a topic.
    pub fn add_topic(&self, topic: KnownTopic) {
        self.state.lock().topics.push(topic);
    }

    /// Forgets a topic.
    pub fn remove_topic(&self, id: TopicId) {
        self.state.lock().topics.retain(|topic| topic.id != id);
    }

    /// Any partition of any topic.
    pub fn any_partition(&self, entropy: &Entropy) -> Option<PartitionId> {
        let topics = self.topics();
        let pick = |bound: usize| usize::try_from(entropy.below(bound as u64)).unwrap_or(0);
        let topic = topics.get(pick(topics.len()))?;
        let count = usize::try_from(topic.partitions).unwrap_or(1);
        Some(PartitionId {
            topic: topic.id,
            index: i32::try_from(pick(count)).unwrap_or(0),
        })
    }

    /// A value nobody else sends.
    pub fn next_value(&self) -> u64 {
        let mut state = self.state.lock();
        state.next_value += 1;
        state.next_value
    }

    /// A producer id nobody else has.
    pub fn next_producer_id(&self) -> i64 {
        let mut state = self.state.lock();
        state.next_producer_id += 1;
        state.next_producer_id
    }

    /// Notes the first try of a send; returns its number.
    pub fn send(
        &self,
        producer: usize,
        partition: PartitionId,
        values: &[u64],
        idempotent: bool,
    ) -> usize {
        let text = format!("send p{producer} {} {values:?}", short(partition));
        let sent_at = self.note(&text);
        let mut state = self.state.lock();
        state.history.sends.push(Send {
            producer,
            partition,
            values: values.to_vec(),
            idempotent,
            sent_at,
            answered_at: None,
            fate: Fate::Unknown,
        });
        state.history.sends.len() - 1
    }

    /// Notes the outcome of a send.
    pub fn answer(&self, send: usize, fate: Fate) {
        let mut state = self.state.lock();
        let Some(record) = state.history.sends.get_mut(send) else {
            return;
        };
        record.fate = fate;
        let partition = record.partition;
        let (text, end) = {
            let (values, producer) = (&record.values, record.producer);
            let len = i64::try_from(values.len()).unwrap_or(0);
            let text = format!("{fate:?} p{producer} {} {values:?}", short(partition));
            (text, len)
        };
        let now = self.now_ms();
        let at = state.history.note(now, &text);
        if let Some(record) = state.history.sends.get_mut(send) {
            record.answered_at = Some(at);
        }
        if let Fate::Acked(base) = fate {
            let high = state.history.high_watermarks.entry(partition).or_default();
            *high = (*high).max(base + end);
        }
    }

    /// Notes what a read returned.
    pub fn saw(&self, partition: PartitionId, records: &[(i64, u64)]) {
        let now = self.now_ms();
        let mut state = self.state.lock();
        for (offset, value) in records {
            state.history.saw(now, partition, *offset, *value);
        }
    }

    /// Notes a partition's marks.
    pub fn marks(&self, broker: usize, partition: &Partition) -> Marks {
        // High watermark last: the others may only trail it.
        let marks = Marks {
            log_start: partition.log_start().0,
            last_stable: partition.last_stable_offset().0,
            high_watermark: partition.high_watermark().0,
        };
        let now = self.now_ms();
        let mut state = self.state.lock();
        state.history.marks(now, broker, partition.id(), marks);
        marks
    }

    /// The highest high watermark that anybody was told of.
    pub fn highest_told(&self, partition: PartitionId) -> i64 {
        let state = self.state.lock();
        let told = state.history.high_watermarks.get(&partition);
        told.copied().unwrap_or(0)
    }

    /// Notes that an object was created.
    pub fn created(&self, key: &str, late: bool) {
        let mut state = self.state.lock();
        let again = state.created.contains_key(key);
        state.created.insert(key.to_owned(), late || again);
    }

    /// True if the object is the work of a write that came late, or once more.
    pub fn is_late(&self, key: &str) -> bool {
        self.state.lock().created.get(key).copied().unwrap_or(false)
    }

    /// Uses the history.
    pub fn with_history<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.state.lock().history)
    }
}
