//! Many senders at a rate, whatever the broker does; the intended time is in the payload.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidemill_client::{Client, Pending};
use tidemill_runtime::{Clock, Entropy, Instant};
use tidemill_wire::messages::ProduceRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::{E2eOutcome, Message, Tally, nanos, sizes};
use crate::{
    error::BenchError,
    load::{
        consume::Check,
        fetch::{FETCH_BY_NAME, request as fetch_request, walk},
        outcome::Latency,
        pace::pace,
        payload::{Shape, Stamp},
        produce::{PRODUCE_BY_NAME, check, request as produce_request},
        target::{LATEST, Target, offsets},
    },
};

/// How to send.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    /// An existing topic.
    pub topic: String,
    /// Its partitions: each sender goes through them in turn.
    pub partitions: i32,
    /// Senders, each with its connection.
    pub producers: u32,
    /// Consumers, the partitions dealt among them.
    pub consumers: u32,
    /// A message: so many records as one batch.
    pub shape: Shape,
    /// Messages a second of all senders together.
    pub messages_per_second: f64,
    /// Most messages in flight on a connection; beyond it, sending is late and measured as such.
    pub in_flight: usize,
    /// Not measured at the start.
    pub warmup: Duration,
    /// Measured after it.
    pub time: Duration,
    /// Of the payload.
    pub seed: u64,
}

/// How long records may still arrive after the last acknowledgement.
const GRACE: Duration = Duration::from_secs(10);
/// Connections are made before the first message is due.
const LEAD: Duration = Duration::from_millis(250);
const GRACE_POLL: Duration = Duration::from_millis(20);

struct Shared {
    target: Target,
    load: OpenLoop,
    origin: Instant,
    received: Mutex<(Tally, Latency)>,
}

#[derive(Default)]
struct Sent {
    records: u64,
    messages: u64,
    bytes: u64,
    acknowledged: Latency,
}

struct InFlight {
    pending: Pending<ProduceRequest>,
    due: Instant,
    _permit: OwnedSemaphorePermit,
}

/// Sends at a rate and measures at the consumers.
///
/// # Errors
/// A request fails or is refused.
pub async fn open_loop(target: &Target, load: &OpenLoop) -> Result<E2eOutcome, BenchError> {
    let clock = &target.runtime.clock;
    let client = target.connect().await?;
    let starts = offsets(&client, &load.topic, load.partitions, LATEST).await?;
    let shared = Arc::new(Shared {
        target: target.clone(),
        load: load.clone(),
        origin: clock.monotonic() + LEAD,
        received: Mutex::default(),
    });
    let stop = watch::channel(false).0;
    let mut consumers = Vec::new();
    for index in 0..load.consumers.max(1) {
        let mine = starts.iter().enumerate();
        let mine = mine.filter(|(at, _)| *at as u32 % load.consumers.max(1) == index);
        let mine: Vec<_> = mine.map(|(at, next)| (at as i32, *next)).collect();
        if mine.is_empty() {
            continue;
        }
        let consuming = consumer(shared.clone(), mine, stop.subscribe());
        consumers.push(target.runtime.tasks.spawn("bench-consumer", consuming));
    }
    let entropy = Entropy::from_seed(load.seed);
    let mut producers = Vec::new();
    for index in 0..load.producers.max(1) {
        let message = Message::new(load.shape, &entropy);
        let producing = producer(shared.clone(), index, message);
        producers.push(target.runtime.tasks.spawn("bench-producer", producing));
    }
    let mut out = E2eOutcome::default();
    let mut records = 0;
    for producer in producers {
        let sent = producer.join().await??;
        records += sent.records;
        out.sent += sent.messages;
        out.bytes += sent.bytes;
        out.acknowledged.merge(&sent.acknowledged);
    }
    out.elapsed = clock.monotonic().saturating_duration_since(shared.origin);
    let deadline = clock.monotonic() + GRACE;
    while shared.received.lock().0.received() < records && clock.monotonic() < deadline {
        clock.sleep(GRACE_POLL).await;
    }
    stop.send_replace(true);
    for consumer in consumers {
        consumer.join().await??;
    }
    let received = shared.received.lock();
    received.0.finish(&mut out);
    out.lost = records.saturating_sub(received.0.received());
    out.latency = received.1.clone();
    Ok(out)
}

async fn producer(
    shared: Arc<Shared>,
    index: u32,
    mut message: Message,
) -> Result<Sent, BenchError> {
    let load = &shared.load;
    let runtime = &shared.target.runtime;
    let client = shared.target.connect().await?;
    let interval = f64::from(load.producers.max(1)) / load.messages_per_second;
    let interval = Duration::from_secs_f64(interval);
    let start = shared.origin + interval * index / load.producers.max(1);
    let mut due = pace(runtime, start, interval);
    let in_flight = load.in_flight.max(1);
    let (sent, answers) = mpsc::channel(in_flight);
    let permits = Arc::new(Semaphore::new(in_flight));
    let collecting = collect(answers, runtime.clock.clone(), shared.origin + load.warmup);
    let collecting = runtime.tasks.spawn("bench-answers", collecting);
    let end = shared.origin + load.warmup + load.time;
    let (mut number, mut bytes) = (0, 0);
    while let Some(due) = due.recv().await.filter(|due| *due < end) {
        let Ok(permit) = permits.clone().acquire_owned().await else {
            break;
        };
        let intended = nanos(shared.origin, due);
        let body = message.stamped(index, number, intended, runtime.clock.now_ms())?;
        bytes += body.len() as u64;
        let turn = number + u64::from(index);
        let partition = (turn % load.partitions.max(1) as u64) as i32;
        let request = produce_request(&load.topic, partition, body, -1);
        let pending = client.send_up_to(PRODUCE_BY_NAME, &request).await?;
        number += 1;
        let waiting = InFlight {
            pending,
            due,
            _permit: permit,
        };
        if sent.send(waiting).await.is_err() {
            // The collector has failed and says why.
            break;
        }
    }
    drop(sent);
    let acknowledged = collecting.join().await??;
    Ok(Sent {
        records: number * load.shape.batch_records.max(1) as u64,
        messages: number,
        bytes,
        acknowledged,
    })
}

async fn collect(
    mut answers: mpsc::Receiver<InFlight>,
    clock: Clock,
    measured_from: Instant,
) -> Result<Latency, BenchError> {
    let mut latency = Latency::default();
    while let Some(next) = answers.recv().await {
        check(&next.pending.wait().await?)?;
        if next.due >= measured_from {
            latency.record(clock.monotonic().saturating_duration_since(next.due));
        }
    }
    Ok(latency)
}

async fn consumer(
    shared: Arc<Shared>,
    mut places: Vec<(i32, i64)>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), BenchError> {
    let client = shared.target.connect().await?;
    loop {
        let stopped = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => true,
            fetched = fetch(&shared, &client, &mut places) => {
                fetched?;
                false
            }
        };
        if stopped {
            return Ok(());
        }
    }
}

async fn fetch(
    shared: &Shared,
    client: &Client,
    places: &mut [(i32, i64)],
) -> Result<(), BenchError> {
    let clock = &shared.target.runtime.clock;
    let request = fetch_request(&shared.load.topic, places, sizes(shared.load.shape));
    let answer = client.call_up_to(FETCH_BY_NAME, &request).await?;
    BenchError::check("fetch", answer.error_code)?;
    let warm_ns = u64::try_from(shared.load.warmup.as_nanos()).unwrap_or(u64::MAX);
    for part in answer.responses.iter().flat_map(|topic| &topic.partitions) {
        let found = places
            .iter_mut()
            .find(|(index, _)| *index == part.partition_index);
        let Some((index, next)) = found else { continue };
        let mut stamps = Vec::new();
        let walked = walk(part, *next, Check::Decode, &mut |record| {
            stamps.extend(record.value.as_deref().and_then(Stamp::read));
        })?;
        *next = walked.next;
        // Read, decoded and checked: now.
        let now = nanos(shared.origin, clock.monotonic());
        let mut received = shared.received.lock();
        for stamp in stamps {
            if received.0.note(*index, stamp) && stamp.intended_ns >= warm_ns {
                let late = now.saturating_sub(stamp.intended_ns);
                received.1.record(Duration::from_nanos(late));
            }
        }
    }
    Ok(())
}
