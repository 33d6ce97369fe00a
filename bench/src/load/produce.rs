//! Producing: closed loop with so many in flight, or open loop at a rate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tidemill_client::{Client, Pending};
use tidemill_runtime::{Clock, Entropy, Instant};
use tidemill_wire::{
    codec::{Records, Str},
    messages::{
        ProduceRequest,
        produce::{PartitionProduceData, ProduceResponse, TopicProduceData},
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::{
    outcome::Outcome,
    pace::pace,
    payload::{Shape, prepared},
    target::Target,
};
use crate::error::BenchError;

/// Names topics instead of ids: the newest version that does.
pub(super) const PRODUCE_BY_NAME: i16 = 12;
const REQUEST_TIMEOUT_MS: i32 = 30_000;
/// Different batches kept ready: enough that nothing sees the same bytes twice in a row.
const PREPARED: usize = 16;

/// When a load ends.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// After so many records, rounded up to whole batches.
    Records(u64),
    /// After so long.
    Time(Duration),
}

/// How to produce.
#[derive(Clone, Debug)]
pub struct ProduceLoad {
    /// An existing topic.
    pub topic: String,
    /// Its partitions, filled in turn.
    pub partitions: i32,
    /// Connections.
    pub producers: usize,
    /// Most requests in flight on each.
    pub in_flight: usize,
    /// What a request carries: one batch.
    pub shape: Shape,
    /// When to end.
    pub limit: Limit,
    /// Records a second of all producers together; `None` for as fast as answers come.
    pub records_per_second: Option<f64>,
    /// Kafka's `acks`: -1, or 1.
    pub acks: i16,
    /// Of the payload.
    pub seed: u64,
}

struct Shared {
    target: Target,
    load: ProduceLoad,
    batches: Vec<Bytes>,
    next: AtomicU64,
    start: Instant,
}

struct InFlight {
    pending: Pending<ProduceRequest>,
    since: Instant,
    bytes: u64,
    // Held until the answer is here.
    _permit: OwnedSemaphorePermit,
}

/// Produces as `load` says. Every answer is checked.
///
/// # Errors
/// A request fails or is refused; the load ends then.
pub async fn produce(target: &Target, load: &ProduceLoad) -> Result<Outcome, BenchError> {
    let clock = &target.runtime.clock;
    let entropy = Entropy::from_seed(load.seed);
    let batches = prepared(load.shape, PREPARED, clock.now_ms(), &entropy)?;
    let mut clients = Vec::new();
    for _ in 0..load.producers {
        clients.push(target.connect().await?);
    }
    let start = clock.monotonic();
    let shared = Arc::new(Shared {
        target: target.clone(),
        load: load.clone(),
        batches,
        next: AtomicU64::new(0),
        start,
    });
    let mut running = Vec::new();
    for (index, client) in clients.into_iter().enumerate() {
        let producing = producer(shared.clone(), index, client);
        running.push(target.runtime.tasks.spawn("bench-producer", producing));
    }
    let mut outcome = Outcome::default();
    for producer in running {
        outcome.merge(&producer.join().await??);
    }
    outcome.elapsed = clock.monotonic().saturating_duration_since(start);
    Ok(outcome)
}

async fn producer(
    shared: Arc<Shared>,
    index: usize,
    client: Client,
) -> Result<Outcome, BenchError> {
    let runtime = &shared.target.runtime;
    let load = &shared.load;
    let (sent, answers) = mpsc::channel(load.in_flight.max(1));
    let permits = Arc::new(Semaphore::new(load.in_flight.max(1)));
    let collecting = collect(
        answers,
        runtime.clock.clone(),
        load.shape.batch_records as u64,
    );
    let collecting = runtime.tasks.spawn("bench-answers", collecting);
    let mut due = shared.pacer(index);
    loop {
        let intended = match &mut due {
            Some(due) => due.recv().await,
            None => None,
        };
        let Ok(permit) = permits.clone().acquire_owned().await else {
            break;
        };
        let Some(number) = shared.take() else { break };
        let (request, bytes) = shared.request(number);
        let since = intended.unwrap_or_else(|| runtime.clock.monotonic());
        let pending = client.send_up_to(PRODUCE_BY_NAME, &request).await?;
        let in_flight = InFlight {
            pending,
            since,
            bytes,
            _permit: permit,
        };
        if sent.send(in_flight).await.is_err() {
            // The collector has failed and says why.
            break;
        }
    }
    drop(sent);
    collecting.join().await?
}

async fn collect(
    mut answers: mpsc::Receiver<InFlight>,
    clock: Clock,
    records: u64,
) -> Result<Outcome, BenchError> {
    let mut outcome = Outcome::default();
    while let Some(next) = answers.recv().await {
        check(&next.pending.wait().await?)?;
        let took = clock.monotonic().saturating_duration_since(next.since);
        outcome.latency.record(took);
        outcome.records += records;
        outcome.bytes += next.bytes;
        outcome.requests += 1;
    }
    Ok(outcome)
}

/// Fails unless every partition took its batch.
pub(super) fn check(answer: &ProduceResponse) -> Result<(), BenchError> {
    let mut count = 0;
    for topic in &answer.responses {
        for part in &topic.partition_responses {
            let what = format!("produce to {}-{}", topic.name.as_str(), part.index);
            BenchError::check(&what, part.error_code)?;
            count += 1;
        }
    }
    if count == 0 {
        return Err(BenchError::Failed(
            "an answer without partitions".to_owned(),
        ));
    }
    Ok(())
}

/// Sends one batch and waits for its answer.
///
/// # Errors
/// As [`produce`].
pub async fn send_one(
    client: &Client,
    topic: &str,
    partition: i32,
    batch: Bytes,
) -> Result<(), BenchError> {
    let request = request(topic, partition, batch, -1);
    check(&client.call_up_to(PRODUCE_BY_NAME, &request).await?)
}

/// Sends the same batch to each of a topic's partitions in one request and waits for its answer.
///
/// # Errors
/// As [`produce`].
pub async fn send_to_all(
    client: &Client,
    topic: &str,
    partitions: i32,
    batch: Bytes,
) -> Result<(), BenchError> {
    let request = request_for(topic, 0..partitions, &batch, -1);
    check(&client.call_up_to(PRODUCE_BY_NAME, &request).await?)
}

/// A request of one batch for one partition.
pub(super) fn request(topic: &str, partition: i32, batch: Bytes, acks: i16) -> ProduceRequest {
    request_for(topic, [partition], &batch, acks)
}

fn request_for(
    topic: &str,
    partitions: impl IntoIterator<Item = i32>,
    batch: &Bytes,
    acks: i16,
) -> ProduceRequest {
    let data = |index| PartitionProduceData {
        index,
        records: Some(Records::from(batch.clone())),
    };
    ProduceRequest {
        acks,
        timeout_ms: REQUEST_TIMEOUT_MS,
        topic_data: vec![TopicProduceData {
            name: Str::from(topic.to_owned()),
            partition_data: partitions.into_iter().map(data).collect(),
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

impl Shared {
    /// The number of the next batch; `None` at the end.
    fn take(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let more = match self.load.limit {
            Limit::Records(records) => number * (self.load.shape.batch_records as u64) < records,
            Limit::Time(time) => self.target.runtime.clock.monotonic() < self.start + time,
        };
        more.then_some(number)
    }

    fn request(&self, number: u64) -> (ProduceRequest, u64) {
        let batch = self.batches[(number % self.batches.len() as u64) as usize].clone();
        let partition = (number % self.load.partitions.max(1) as u64) as i32;
        let bytes = batch.len() as u64;
        let request = request(&self.load.topic, partition, batch, self.load.acks);
        (request, bytes)
    }

    fn pacer(&self, index: usize) -> Option<mpsc::Receiver<Instant>> {
        let batches = self.load.records_per_second? / self.load.shape.batch_records as f64;
        let between = Duration::from_secs_f64(1.0 / batches.max(f64::MIN_POSITIVE).max(1e-3));
        let interval = between * self.load.producers as u32;
        let start = self.start + between * index as u32;
        Some(pace(&self.target.runtime, start, interval))
    }
}
