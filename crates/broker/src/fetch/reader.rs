//! Reading the partitions of one Fetch: one budget, one wait, one waiter.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use tidemill_log::{
    Partition,
    partition::{Waiter, WaiterGuard},
    read::{Isolation, ReadRequest, ReadResult},
};
use tidemill_runtime::{Clock, Instant};
use tidemill_wire::{
    ErrorCode, Records, Slice,
    ids::{LeaderEpoch, Offset, PartitionId},
    messages::fetch::{AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData},
};
use tokio::sync::Notify;

use super::{
    cold::{Found, Outcome},
    session::{Target, TopicKey},
    source::{self, try_read},
};
use crate::{Broker, topics};

/// Store reads of one request at once; more would let one request take all of the store's permits.
const COLD_READS_MAX: usize = 16;
/// How long a look at local files may delay an answer beyond max_wait: it belongs to what a request
/// costs at least, as in Kafka, and is over long before, unless the disk hangs.
const FILES_GRACE: Duration = Duration::from_millis(100);

/// What the request as a whole allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Bytes of the whole answer, but for the first batch (K11).
    pub max_bytes: usize,
    /// Bytes worth answering for.
    pub min_bytes: usize,
    /// Up to where.
    pub isolation: Isolation,
    /// When to answer whatever there is.
    pub deadline: Instant,
}

enum Slot {
    /// Answered already: an error, or a diverging epoch.
    Settled(PartitionData),
    Open(Open),
}

struct Open {
    partition: Arc<Partition>,
    name: Arc<str>,
    offset: Offset,
    max_bytes: usize,
    got: Option<ReadResult<Slice>>,
}

/// Notes which partitions moved on, and wakes the one request.
struct Woken {
    /// With the time of the first of them.
    partitions: Mutex<(Vec<PartitionId>, Option<Instant>)>,
    notify: Notify,
    clock: Clock,
}

impl Waiter for Woken {
    fn progressed(&self, partition: PartitionId) {
        let first = {
            let mut noted = self.partitions.lock();
            noted.0.push(partition);
            if noted.0.len() == 1 {
                noted.1 = Some(self.clock.monotonic());
            }
            noted.0.len() == 1
        };
        if first {
            self.notify.notify_one();
        }
    }
}

/// The partitions of one Fetch.
pub(crate) struct Reader {
    slots: Vec<Slot>,
    budget: Budget,
    /// Bytes got so far.
    total: usize,
    /// A partition failed or has reached its own maximum: nothing is gained by waiting (K12).
    ready: bool,
    /// When the partition moved on that woke it last.
    woken: Option<Instant>,
}

impl Reader {
    /// Resolves all targets; errors are settled here, each for its own partition (F24).
    pub fn new(broker: &Broker, targets: &[Target], budget: Budget) -> Self {
        let slots: Vec<_> = targets.iter().map(|target| open(broker, target)).collect();
        let ready = slots.iter().any(|slot| matches!(slot, Slot::Settled(_)));
        Self {
            slots,
            budget,
            total: 0,
            ready,
            woken: None,
        }
    }

    /// Reads until there is enough, or the deadline has passed.
    pub async fn run(&mut self, broker: &Broker) {
        let all: Vec<usize> = (0..self.slots.len()).collect();
        self.pass(broker, &all).await;
        if self.is_done(broker) {
            return;
        }
        let clock = &broker.runtime().clock;
        let woken = Arc::new(Woken {
            partitions: Mutex::default(),
            notify: Notify::new(),
            clock: clock.clone(),
        });
        let (positions, _guards) = self.register(&woken);
        // Once more: what came before the registration woke nobody.
        self.pass(broker, &all).await;
        while !self.is_done(broker) {
            self.woken = None;
            tokio::select! {
                biased;
                () = woken.notify.notified() => {}
                () = broker.draining() => return,
                () = broker.runtime().clock.sleep_until(self.budget.deadline) => return,
            }
            let (moved, at) = std::mem::take(&mut *woken.partitions.lock());
            if let Some(at) = at {
                let waited = clock.monotonic().saturating_duration_since(at);
                broker.metrics().stages().wake.observe(waited);
            }
            self.woken = at;
            let mut again: Vec<_> = moved
                .iter()
                .filter_map(|id| positions.get(id).copied())
                .collect();
            again.sort_unstable();
            again.dedup();
            self.pass(broker, &again).await;
        }
    }

    fn is_done(&self, broker: &Broker) -> bool {
        self.ready
            || self.slots.is_empty()
            || self.total >= self.budget.min_bytes.min(self.budget.max_bytes)
            || broker.runtime().clock.monotonic() >= self.budget.deadline
    }

    fn register(&self, woken: &Arc<Woken>) -> (BTreeMap<PartitionId, usize>, Vec<WaiterGuard>) {
        let mut positions = BTreeMap::new();
        let mut guards = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            if let Slot::Open(open) = slot {
                positions.insert(open.partition.id(), index);
                guards.push(
                    open.partition
                        .register(Arc::clone(woken) as Arc<dyn Waiter>),
                );
            }
        }
        (positions, guards)
    }

    /// Reads the given partitions anew.
    async fn pass(&mut self, broker: &Broker, indices: &[usize]) {
        let mut cold = Vec::new();
        for index in indices {
            let Some((partition, want)) = self.want(*index, self.total) else {
                continue;
            };
            match try_read(&partition, &want) {
                Some(result) => self.settle(*index, result),
                None => cold.push(*index),
            }
        }
        if !cold.is_empty() {
            let cold = self.pass_files(broker, cold).await;
            self.pass_cold(broker, cold).await;
        }
    }

    /// Reads what lies in local files, all partitions in one go; returns those that need more.
    async fn pass_files(&mut self, broker: &Broker, cold: Vec<usize>) -> Vec<usize> {
        if !broker.log().reader().has_files() {
            return cold;
        }
        let (mut indices, mut wanted) = (Vec::new(), Vec::new());
        let mut promised = self.total;
        for index in &cold {
            let Some((partition, want)) = self.want(*index, promised) else {
                continue;
            };
            if wanted.len() >= COLD_READS_MAX || (want.max_bytes == 0 && !want.at_least_one) {
                break;
            }
            promised = promised.saturating_add(want.max_bytes.max(1));
            indices.push(*index);
            wanted.push((partition, want));
        }
        let clock = &broker.runtime().clock;
        let patience = self.budget.deadline.max(clock.monotonic() + FILES_GRACE);
        let read = source::read_files(broker, wanted);
        let read = clock.timeout_at(patience, read).await;
        let mut left = cold;
        for (index, result) in indices.into_iter().zip(read.unwrap_or_default()) {
            if let Some(result) = result {
                self.settle(index, result);
                left.retain(|cold| *cold != index);
            }
        }
        left
    }

    /// Reads from the store, several partitions at once, each within what those before it leave.
    async fn pass_cold(&mut self, broker: &Broker, cold: Vec<usize>) {
        let mut reads = FuturesUnordered::new();
        let mut promised = self.total;
        for index in cold {
            let Some((partition, want)) = self.want(index, promised) else {
                continue;
            };
            if reads.len() >= COLD_READS_MAX || (want.max_bytes == 0 && !want.at_least_one) {
                break;
            }
            match broker.cold_reads().join(&partition, want) {
                Found::Ended(result) => {
                    promised -= self.total;
                    self.settle_late(index, result);
                    promised += self.total;
                }
                Found::Pending(read) => {
                    promised = promised.saturating_add(want.max_bytes.max(1));
                    reads.push(async move { (index, read.end().await) });
                }
            }
        }
        let (clock, deadline) = (&broker.runtime().clock, self.budget.deadline);
        while let Ok(Some((index, result))) = clock.timeout_at(deadline, reads.next()).await {
            self.settle_late(index, result);
        }
    }

    /// Settles what may have been read for a request before this one, with the marks as they are.
    fn settle_late(&mut self, index: usize, mut result: Outcome) {
        if let (Slot::Open(open), Ok(got)) = (&self.slots[index], &mut result) {
            got.high_watermark = open.partition.high_watermark();
            got.last_stable_offset = open.partition.last_stable_offset();
            got.log_start = open.partition.log_start();
        }
        self.settle(index, result);
    }

    fn want(&mut self, index: usize, promised: usize) -> Option<(Arc<Partition>, ReadRequest)> {
        let Slot::Open(open) = &mut self.slots[index] else {
            return None;
        };
        let own = open.got.as_ref().map_or(0, |got| got.size);
        let others = promised - own.min(promised);
        let left = self.budget.max_bytes.saturating_sub(others);
        let want = ReadRequest {
            offset: open.offset,
            max_bytes: left.min(open.max_bytes),
            isolation: self.budget.isolation,
            at_least_one: others == 0,
        };
        Some((Arc::clone(&open.partition), want))
    }

    fn settle(&mut self, index: usize, result: Result<ReadResult<Slice>, ErrorCode>) {
        let Slot::Open(open) = &mut self.slots[index] else {
            return;
        };
        self.total -= open.got.as_ref().map_or(0, |got| got.size);
        match result {
            Ok(got) => {
                self.total += got.size;
                let end = match self.budget.isolation {
                    Isolation::Uncommitted => got.high_watermark,
                    Isolation::Committed => got.last_stable_offset,
                };
                // There is more, but no room: it has filled its own maximum.
                self.ready |= got.size > 0 && got.next_offset < end;
                open.got = Some(got);
            }
            Err(code) => {
                self.ready = true;
                self.slots[index] = Slot::Settled(failed(code));
            }
        }
    }

    /// When what it waited for was committed, if it waited and something came.
    pub const fn woken(&self) -> Option<Instant> {
        self.woken
    }

    /// The answers in the order of the targets, each with its topic's name if that is known.
    pub fn finish(self) -> Vec<(PartitionData, Option<Arc<str>>)> {
        let read_committed = self.budget.isolation == Isolation::Committed;
        let answers = self.slots.into_iter().map(|slot| match slot {
            Slot::Settled(data) => (data, None),
            Slot::Open(open) => {
                let name = Arc::clone(&open.name);
                (answer(open, read_committed), Some(name))
            }
        });
        answers.collect()
    }
}

fn open(broker: &Broker, target: &Target) -> Slot {
    let topics::Found { topic, partition } = match resolve(broker, target) {
        Ok(found) => found,
        Err(code) => return Slot::Settled(failed(code)),
    };
    let current = partition.leader_epoch();
    if let Err(code) = check_epoch(target.leader_epoch, current) {
        let mut data = failed(code);
        data.current_leader = LeaderIdAndEpoch {
            leader_id: broker.config().node_id.0,
            leader_epoch: current.0,
        };
        return Slot::Settled(data);
    }
    if let Some(data) = diverged(&partition, target) {
        return Slot::Settled(data);
    }
    Slot::Open(Open {
        partition,
        name: Arc::clone(&topic.name),
        offset: Offset(target.offset),
        max_bytes: usize::try_from(target.max_bytes).unwrap_or(0),
        got: None,
    })
}

fn resolve(broker: &Broker, target: &Target) -> Result<topics::Found, ErrorCode> {
    let image = broker.cluster().image();
    match &target.topic {
        TopicKey::Name(name) => broker.find(&image, name, target.index),
        TopicKey::Id(id) => match image.topic(*id) {
            Some(topic) => {
                let partition = broker.partition(topic, target.index)?;
                Ok(topics::Found {
                    topic: Arc::clone(topic),
                    partition,
                })
            }
            // The name has gone on to another id: the client has to look again (K14).
            None if target
                .known_name
                .as_ref()
                .is_some_and(|name| image.topic_by_name(name).is_some()) =>
            {
                Err(ErrorCode::INCONSISTENT_TOPIC_ID)
            }
            None => Err(ErrorCode::UNKNOWN_TOPIC_ID),
        },
    }
}

/// Whether the leader epoch a client believes in, or -1, is the present one (K21).
pub(crate) fn check_epoch(believed: i32, current: LeaderEpoch) -> Result<(), ErrorCode> {
    match believed {
        ..=-1 => Ok(()),
        epoch if epoch < current.0 => Err(ErrorCode::FENCED_LEADER_EPOCH),
        epoch if epoch > current.0 => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
        _ => Ok(()),
    }
}

/// The answer to a reader whose last epoch ends elsewhere (KIP-595; followers use it).
fn diverged(partition: &Partition, target: &Target) -> Option<PartitionData> {
    let fetched = target.last_fetched_epoch;
    if fetched < 0 {
        return None;
    }
    let Some((epoch, end)) = partition.epoch_end(LeaderEpoch(fetched)) else {
        return Some(failed(ErrorCode::OFFSET_OUT_OF_RANGE));
    };
    if epoch.0 >= fetched && end.0 >= target.offset {
        return None;
    }
    let diverging_epoch = EpochEndOffset {
        epoch: epoch.0,
        end_offset: end.0,
    };
    Some(PartitionData {
        diverging_epoch,
        high_watermark: partition.high_watermark().0,
        last_stable_offset: partition.last_stable_offset().0,
        log_start_offset: partition.log_start().0,
        ..empty()
    })
}

fn empty() -> PartitionData {
    // Null records are not allowed: librdkafka breaks (K80).
    PartitionData {
        records: Some(Records::new()),
        ..PartitionData::default()
    }
}

fn failed(error_code: ErrorCode) -> PartitionData {
    PartitionData {
        error_code,
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        ..empty()
    }
}

fn answer(open: Open, read_committed: bool) -> PartitionData {
    let Some(got) = open.got else {
        // The store was too slow: nothing yet, and no error (K12).
        return PartitionData {
            high_watermark: open.partition.high_watermark().0,
            last_stable_offset: open.partition.last_stable_offset().0,
            log_start_offset: open.partition.log_start().0,
            aborted_transactions: read_committed.then(Vec::new),
            ..empty()
        };
    };
    let aborted = got.aborted.iter().map(|aborted| AbortedTransaction {
        producer_id: aborted.producer_id.0,
        first_offset: aborted.first_offset.0,
    });
    PartitionData {
        high_watermark: got.high_watermark.0,
        last_stable_offset: got.last_stable_offset.0,
        log_start_offset: got.log_start.0,
        aborted_transactions: read_committed.then(|| aborted.collect()),
        records: Some(Records::from(got.slices)),
        ..empty()
    }
}
