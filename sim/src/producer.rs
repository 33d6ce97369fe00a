//! Producers: idempotent ones, which resend until they know, and plain ones, which do not.

use std::{sync::Arc, time::Duration};

use tidemill_log::{AppendError, AppendFailed, Appended, Entry, Latency};
use tidemill_runtime::Entropy;
use tidemill_wire::{
    batch::{BatchBuilder, Compression, NewRecord, ValidBatch, ValidateOptions, validate},
    ids::{PartitionId, ProducerEpoch, ProducerId},
};

use crate::{
    broker::Broker,
    history::Fate,
    world::{Pace, World},
};

/// A client gives up waiting for an answer and asks again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// Batches sent before the first answer is waited for, at most (K25).
const IN_FLIGHT_MAX: u64 = 5;

/// How long a client may be away after it has missed an answer: its batch is rolled meanwhile, and
/// somebody else may lead.
const AWAY_MAX_MS: u64 = 30_000;
/// Share of answers that are lost.
const LOST_ANSWERS: f64 = 0.02;

struct Producer {
    world: Arc<World>,
    entropy: Entropy,
    number: usize,
    partition: PartitionId,
    /// Producer id and next sequence number.
    identity: Option<(ProducerId, i32)>,
    /// An answer was lost on its way, or came too late for a client that was away.
    lost_answer: bool,
}

struct Unacked {
    send: usize,
    batch: ValidBatch,
}

/// Sends until the world stops or the topic is gone, then begins anew elsewhere.
pub async fn produce(world: Arc<World>, number: usize, idempotent: bool) {
    let entropy = world.fork();
    while !world.stopping() {
        let Some(partition) = world.any_partition(&entropy) else {
            world.sleep_ms(500).await;
            continue;
        };
        let id = ProducerId(world.next_producer_id());
        let mut producer = Producer {
            world: Arc::clone(&world),
            entropy: entropy.fork(),
            number,
            partition,
            identity: idempotent.then_some((id, 0)),
            lost_answer: false,
        };
        let rounds = 1 + entropy.below(30);
        for _ in 0..rounds {
            if world.stopping() || !producer.round().await {
                break;
            }
            let pause_ms = if world.pace() == Pace::Rush {
                30
            } else {
                3_000
            };
            world.sleep_ms(entropy.below(pause_ms)).await;
            while world.pace() == Pace::Lull && !world.stopping() {
                world.sleep_ms(200).await;
            }
        }
    }
}

/// One append that must succeed, on a store that is well again (L1).
pub async fn probe(world: &Arc<World>, partition: PartitionId) {
    let mut producer = Producer {
        world: Arc::clone(world),
        entropy: world.fork(),
        number: usize::MAX,
        partition,
        identity: Some((ProducerId(world.next_producer_id()), 0)),
        lost_answer: false,
    };
    let began = world.now_ms();
    producer.burst(1).await;
    let took = world.now_ms() - began;
    if took > 60_000 {
        world.violate(format!("L1: an append took {took} ms on a healthy store"));
    }
}

impl Producer {
    /// Sends a few batches; false if the topic is gone.
    async fn round(&mut self) -> bool {
        let batches = match self.identity {
            Some(_) => 1 + self.entropy.below(IN_FLIGHT_MAX),
            None => 1,
        };
        self.burst(batches).await
    }

    fn make(&mut self) -> Unacked {
        let count = 1 + self.entropy.below(3);
        // Now and then a batch that is cut into fragments.
        let len = if self.entropy.chance(0.15) { 700 } else { 20 };
        let values: Vec<u64> = (0..count).map(|_| self.world.next_value()).collect();
        let mut builder = BatchBuilder::new(Compression::None);
        if let Some((id, sequence)) = &mut self.identity {
            builder.producer(*id, ProducerEpoch(0), *sequence);
            *sequence += i32::try_from(count).unwrap_or(1);
        }
        for value in &values {
            let mut payload = value.to_be_bytes().to_vec();
            payload.resize(8 + len, 0x5a);
            let mut record = NewRecord::key_value(b"", &payload);
            record.timestamp = self.world.runtime.clock.now_ms();
            builder.push(&record).expect("far below any limit");
        }
        let bytes = builder.build().expect("there is a record");
        let options = ValidateOptions {
            now_ms: self.world.runtime.clock.now_ms(),
            ..ValidateOptions::default()
        };
        let batch = validate(bytes, &options).expect("just built");
        let idempotent = self.identity.is_some();
        let send = self
            .world
            .send(self.number, self.partition, &values, idempotent);
        Unacked { send, batch }
    }

    async fn burst(&mut self, batches: u64) -> bool {
        let mut unacked: Vec<Unacked> = (0..batches).map(|_| self.make()).collect();
        loop {
            let Some(broker) = self.world.broker() else {
                self.world.sleep_ms(200).await;
                continue;
            };
            let gave_up = self.attempt(&broker, &mut unacked).await;
            let topic = self.partition.topic;
            let gone = gave_up || !self.world.topics().iter().any(|t| t.id == topic);
            if unacked.is_empty() {
                return true;
            }
            // A plain producer never learns what became of its batch, nor does one whose topic is
            // gone.
            if gone || self.identity.is_none() {
                return !gone;
            }
            let away_ms = match std::mem::take(&mut self.lost_answer) {
                true => self.entropy.below(AWAY_MAX_MS),
                false => self.entropy.below(400),
            };
            self.world.sleep_ms(100 + away_ms).await;
        }
    }

    /// Sends what is not acknowledged, in order, and waits for the answers in order. True if the
    /// topic is gone.
    async fn attempt(&mut self, broker: &Arc<Broker>, unacked: &mut Vec<Unacked>) -> bool {
        let log = &broker.started.log;
        let clock = &self.world.runtime.clock;
        if clock
            .timeout(REQUEST_TIMEOUT, log.below_limit())
            .await
            .is_err()
        {
            return false;
        }
        let mut appended: Vec<Appended> = Vec::new();
        let since = clock.monotonic();
        let mut refusal = None;
        for one in unacked.iter() {
            let latency = match self.entropy.below(3) {
                _ if self.world.pace() == Pace::Rush => Latency::Low,
                0 => Latency::Low,
                1 => Latency::Balanced,
                _ => Latency::Economy,
            };
            let entry = Entry::records(self.partition, one.batch.clone(), latency);
            match log.append(entry) {
                Ok(mut parts) => appended.extend(parts.pop()),
                Err(error) => {
                    refusal = Some(error);
                    break;
                }
            }
        }
        if let Some(error) = refusal
            && self.refused(&error, appended.len(), unacked)
        {
            // A superseded broker judges by a state of long ago; a handler must not answer from it
            // without a proof of freshness (R7).
            return match clock.timeout(REQUEST_TIMEOUT, log.fresh(since)).await {
                Ok(Ok(())) => {
                    self.world.violate(format!("p{}: {error}", self.number));
                    true
                }
                _ => false,
            };
        }
        let deadline = clock.monotonic() + REQUEST_TIMEOUT;
        for outcome in appended {
            match clock.timeout_at(deadline, outcome.wait()).await {
                Ok(Ok(_)) if self.loses_answers() => {
                    self.lost_answer = true;
                    break;
                }
                Ok(Ok(committed)) => {
                    let one = unacked.remove(0);
                    let fate = Fate::Acked(committed.base_offset.0);
                    self.world.answer(one.send, fate);
                }
                Ok(Err(AppendFailed::Fenced | AppendFailed::Closed)) | Err(_) => break,
            }
        }
        false
    }

    fn loses_answers(&self) -> bool {
        // The last appends of a run are all answered.
        !self.world.stopping() && self.entropy.chance(LOST_ANSWERS)
    }

    /// Notes a refusal of the batch behind `taken` others; true if it must not be.
    fn refused(&self, error: &AppendError, taken: usize, unacked: &[Unacked]) -> bool {
        match error {
            AppendError::Fenced | AppendError::Closed => false,
            AppendError::UnknownPartition(_) => {
                // A plain batch was refused for certain; of an idempotent one an earlier try may
                // live.
                if self.identity.is_none()
                    && let Some(one) = unacked.get(taken)
                {
                    self.world.answer(one.send, Fate::Failed);
                }
                false
            }
            _ => true,
        }
    }
}
