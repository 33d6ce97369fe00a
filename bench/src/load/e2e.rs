//! End to end: from before a record is sent to after a waiting consumer has read and checked it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tidemill_client::{Client, Pending};
use tidemill_runtime::{Entropy, Instant};
use tidemill_store::{Backend, Payload, PutAnswer};
use tidemill_wire::messages::FetchRequest;

use super::{
    consume::Check,
    fetch::{FETCH_BY_NAME, FetchSizes, request as fetch_request, walk},
    outcome::Latency,
    payload::{STAMP_BYTES, Shape, Stamp, batch, filler},
    produce::{PRODUCE_BY_NAME, check, request as produce_request},
    target::{LATEST, Target, offsets},
};
use crate::{error::BenchError, probe, store::RAW_PREFIX};

mod open;
mod tally;

pub use open::{OpenLoop, open_loop};
pub use tally::Tally;

/// How to measure one message at a time.
#[derive(Clone, Debug)]
pub struct E2eLoad {
    /// An existing topic; its partition 0 is used.
    pub topic: String,
    /// A message: so many records as one batch.
    pub shape: Shape,
    /// Messages measured.
    pub count: u64,
    /// Messages sent before, not measured.
    pub warmup: u64,
    /// Where the same bytes are put raw after each message.
    pub raw: Option<Arc<dyn Backend>>,
    /// Of the payload.
    pub seed: u64,
}

/// What was measured end to end.
#[derive(Clone, Debug, Default)]
pub struct E2eOutcome {
    /// From the intended time to read and checked.
    pub latency: Latency,
    /// The same of the messages in whose time the host of this machine gave no CPU to others.
    pub undisturbed: Latency,
    /// From the intended time to the producer's acknowledgement.
    pub acknowledged: Latency,
    /// Raw put-if-absent of the same bytes.
    pub raw: Latency,
    /// Messages sent, warm-up included.
    pub sent: u64,
    /// Bytes of their batches.
    pub bytes: u64,
    /// Records received more than once.
    pub doubled: u64,
    /// Records received after a later one of the same producer and partition.
    pub reordered: u64,
    /// Records acknowledged and never received.
    pub lost: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// The payload of one sender: a filler, stamped anew for every message.
pub(super) struct Message {
    values: Vec<Vec<u8>>,
}

impl Message {
    pub(super) fn new(shape: Shape, entropy: &Entropy) -> Self {
        let bytes = shape.record_bytes.max(STAMP_BYTES);
        let values = (0..shape.batch_records.max(1)).map(|_| filler(bytes, entropy));
        Self {
            values: values.collect(),
        }
    }

    /// Every record of the message has a number of its own.
    pub(super) fn stamped(
        &mut self,
        producer: u32,
        number: u64,
        intended_ns: u64,
        now_ms: i64,
    ) -> Result<Bytes, BenchError> {
        let first = number * self.values.len() as u64;
        for (sequence, value) in (first..).zip(&mut self.values) {
            let stamp = Stamp {
                producer,
                sequence,
                intended_ns,
            };
            stamp.write(value);
        }
        batch(self.values.iter().map(Vec::as_slice), now_ms)
    }
}

pub(super) fn nanos(since: Instant, until: Instant) -> u64 {
    let passed = until.saturating_duration_since(since).as_nanos();
    u64::try_from(passed).unwrap_or(u64::MAX)
}

/// Measures one message at a time: a Fetch waits at the broker, then the message is sent.
///
/// # Errors
/// A request fails or is refused, or a message does not arrive.
pub async fn e2e(target: &Target, load: &E2eLoad) -> Result<E2eOutcome, BenchError> {
    let (mine, load) = (target.clone(), load.clone());
    // In a task, where an answer wakes it on the thread that has read it: the thread that waits for
    // the whole program would have to be woken each time, by raw PUTs as well.
    let measuring = async move { one_at_a_time(&mine, &load).await };
    let task = target.runtime.tasks.spawn("bench-e2e", measuring);
    task.join().await?
}

async fn one_at_a_time(target: &Target, load: &E2eLoad) -> Result<E2eOutcome, BenchError> {
    let clock = &target.runtime.clock;
    let mut sender = Sender::open(target, load).await?;
    let mut out = E2eOutcome::default();
    for number in 0..load.warmup + load.count {
        let stolen = probe::stolen();
        let sent = sender.send(number).await?;
        let is_undisturbed = probe::stolen() == stolen;
        out.sent += 1;
        out.bytes += sent.body.len() as u64;
        let raw = match &load.raw {
            Some(store) => {
                let key = format!("{RAW_PREFIX}{:016x}/{number:012}", sender.run);
                Some(raw_put(&**store, &key, sent.body, target).await?)
            }
            None => None,
        };
        if number >= load.warmup {
            out.latency.record(sent.arrived);
            if is_undisturbed {
                out.undisturbed.record(sent.arrived);
            }
            out.acknowledged.record(sent.acknowledged);
            raw.into_iter().for_each(|took| out.raw.record(took));
        }
    }
    out.elapsed = clock.monotonic().saturating_duration_since(sender.origin);
    sender.tally.finish(&mut out);
    Ok(out)
}

/// Answers that may bring only a part of a message, or nothing, before it counts as lost.
const ROUNDS_MAX: u32 = 120;

/// How long a Fetch may take to the broker and to be looked at.
const SETTLED: Duration = Duration::from_millis(1);

/// One message, sent and received.
struct Sent {
    body: Bytes,
    arrived: Duration,
    acknowledged: Duration,
}

struct Sender<'a> {
    target: &'a Target,
    load: &'a E2eLoad,
    producer: Client,
    consumer: Client,
    next: i64,
    message: Message,
    tally: Tally,
    origin: Instant,
    run: u64,
}

impl<'a> Sender<'a> {
    async fn open(target: &'a Target, load: &'a E2eLoad) -> Result<Self, BenchError> {
        let (producer, consumer) = (target.connect().await?, target.connect().await?);
        let next = offsets(&consumer, &load.topic, 1, LATEST).await?[0];
        Ok(Self {
            target,
            load,
            producer,
            consumer,
            next,
            message: Message::new(load.shape, &Entropy::from_seed(load.seed)),
            tally: Tally::default(),
            origin: target.runtime.clock.monotonic(),
            run: target.runtime.entropy.next_u64(),
        })
    }

    async fn fetch(&self) -> Result<Pending<FetchRequest>, BenchError> {
        let from = [(0, self.next)];
        let request = fetch_request(&self.load.topic, &from, sizes(self.load.shape));
        Ok(self.consumer.send_up_to(FETCH_BY_NAME, &request).await?)
    }

    async fn send(&mut self, number: u64) -> Result<Sent, BenchError> {
        let clock = &self.target.runtime.clock;
        let wanted = (number + 1) * self.load.shape.batch_records.max(1) as u64;
        // Built beforehand, as whoever puts it raw has it: what a client does before it sends is
        // not the broker's.
        let intended = nanos(self.origin, clock.monotonic());
        let body = self.message.stamped(0, number, intended, clock.now_ms())?;
        let request = produce_request(&self.load.topic, 0, body.clone(), -1);
        let mut waiting = self.fetch().await?;
        // The Fetch is to wait at the broker, not to be on its way there beside the message.
        clock.sleep(SETTLED).await;
        let sent = clock.monotonic();
        let acknowledged = self.producer.send_up_to(PRODUCE_BY_NAME, &request).await?;
        let mut rounds = 0;
        loop {
            let answer = waiting.wait().await?;
            BenchError::check("fetch", answer.error_code)?;
            for part in answer.responses.iter().flat_map(|topic| &topic.partitions) {
                let each = &mut |record: &_| self.tally.receive(0, record);
                self.next = walk(part, self.next, Check::Decode, each)?.next;
            }
            if self.tally.received() >= wanted {
                break;
            }
            rounds += 1;
            if rounds > ROUNDS_MAX {
                let what = format!("message {number} never arrived");
                return Err(BenchError::Failed(what));
            }
            waiting = self.fetch().await?;
        }
        let arrived = clock.monotonic().saturating_duration_since(sent);
        check(&acknowledged.wait().await?)?;
        Ok(Sent {
            body,
            arrived,
            acknowledged: clock.monotonic().saturating_duration_since(sent),
        })
    }
}

/// Room for the message whatever its size; Kafka sends the first batch whole anyway.
fn sizes(shape: Shape) -> FetchSizes {
    const LEAST: usize = 1 << 20;
    let bytes = (shape.record_bytes * shape.batch_records * 2).clamp(LEAST, i32::MAX as usize);
    FetchSizes {
        max_bytes: bytes as i32,
        partition_max_bytes: bytes as i32,
    }
}

async fn raw_put(
    store: &dyn Backend,
    key: &str,
    body: Bytes,
    target: &Target,
) -> Result<Duration, BenchError> {
    let clock = &target.runtime.clock;
    let began = clock.monotonic();
    match store.put_if_absent(key, Payload::from(body)).await {
        Ok(PutAnswer::Created) => Ok(clock.monotonic().saturating_duration_since(began)),
        Ok(PutAnswer::Exists) => Err(BenchError::Failed(format!("`{key}` exists"))),
        Err(error) => Err(BenchError::Failed(format!("`{key}`: {error}"))),
    }
}
