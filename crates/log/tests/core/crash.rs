//! Crashes at any moment, zombies, and a store that does its worst: nothing acknowledged is lost,
//! nothing is stored twice, offsets are dense.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tidemill_invariants::log as rule;
use tidemill_log::{
    AppendError, Appended, Entry, Latency, Log, LogLimits,
    recover::{Recovered, RecoveredPartition, replay},
    types::TailBatch,
};
use tidemill_runtime::Entropy;
use tidemill_store::{Backend, testing::FaultPlan};
use tidemill_wire::{
    batch::{BatchHeader, ValidBatch},
    ids::{LeaderEpoch, Offset, PartitionId},
};

use crate::{
    harness::{CLUSTER, World, partition, sequenced, simulate},
    sealer::seal,
};

const PARTITIONS: i32 = 3;
const PRODUCERS: i64 = 2;

/// Limits small enough that all paths are taken.
fn tight() -> LogLimits {
    LogLimits {
        spacing_low: Duration::from_millis(2),
        puts_in_flight_max: 6,
        bulk_in_flight_max: 4,
        object_target_bytes: 3_000,
        bulk_entry_bytes: 1_000,
        fragment_bytes: 700,
        ..LogLimits::local()
    }
}

/// What one producer sent to one partition, in order; acknowledged ones with their offset.
#[derive(Default)]
struct Sent {
    batches: Vec<(ValidBatch, Option<i64>)>,
    /// The first batch that is not known to be stored.
    unsure: usize,
    next_sequence: i32,
}

struct Load {
    random: Entropy,
    sent: BTreeMap<(i64, i32), Sent>,
}

type Waiting = Vec<((i64, i32), usize, Appended)>;

impl Load {
    fn send(&mut self, log: &Log, key: (i64, i32), at: usize) -> Result<Appended, AppendError> {
        let batch = self.sent[&key].batches[at].0.clone();
        let entry = Entry::records(partition(key.1), batch, Latency::Low);
        log.append(entry).map(|mut appended| appended.remove(0))
    }

    /// One random action.
    fn act(&mut self, log: &Log, waiting: &mut Waiting) {
        let producer = self.random.below(PRODUCERS as u64) as i64;
        let index = self.random.below(PARTITIONS as u64) as i32;
        let key = (producer, index);
        let sent = self.sent.entry(key).or_default();
        // A producer has at most five batches in flight (K25).
        if sent
            .batches
            .iter()
            .filter(|(_, base)| base.is_none())
            .count()
            == 5
        {
            return;
        }
        let repeat = self.random.chance(0.2) && !sent.batches.is_empty();
        if !repeat {
            let bytes = [1, 10, 300, 900, 2_500][self.random.below(5) as usize];
            let count = 1 + self.random.below(3) as usize;
            let mut value = vec![7; bytes];
            value.extend_from_slice(&self.random.next_u64().to_le_bytes());
            let batch = sequenced(1_000 + producer, 0, sent.next_sequence, &value, count);
            sent.next_sequence += count as i32;
            sent.batches.push((batch, None));
        }
        let at = self.sent[&key].batches.len() - 1;
        let Ok(appended) = self.send(log, key, at) else {
            return;
        };
        waiting.push((key, at, appended));
    }

    /// Notes what was acknowledged.
    fn settle(&mut self, waiting: &mut Waiting) {
        waiting.retain(|(key, at, appended)| {
            let committed = match appended {
                Appended::DuplicateCommitted(committed) => Some(*committed),
                Appended::New(ticket) | Appended::DuplicatePending(ticket) => {
                    ticket.outcome().and_then(Result::ok)
                }
            };
            let Some(committed) = committed else {
                return true;
            };
            let slot = &mut self.sent.get_mut(key).expect("it was sent").batches[*at].1;
            let before = slot.replace(committed.base_offset.0);
            assert!(
                before.is_none_or(|before| before == committed.base_offset.0),
                "I7: moved"
            );
            false
        });
    }

    /// Sends again what was never acknowledged, as a producer does after a reconnect.
    async fn resend(&mut self, log: &Log) {
        let keys: Vec<_> = self.sent.keys().copied().collect();
        for key in keys {
            let first = self.sent[&key].unsure;
            for at in first..self.sent[&key].batches.len() {
                if self.sent[&key].batches[at].1.is_some() {
                    continue;
                }
                let appended = self.send(log, key, at).expect("a resend is taken");
                let committed = appended.wait().await.expect("nobody fences it now");
                let sent = self.sent.get_mut(&key).expect("it was sent");
                sent.batches[at].1 = Some(committed.base_offset.0);
            }
            let sent = self.sent.get_mut(&key).expect("it was sent");
            sent.unsure = sent.batches.len();
        }
    }

    /// Compares what was acknowledged with what replay found, byte for byte.
    async fn check(&self, world: &World, recovered: &BTreeMap<PartitionId, RecoveredPartition>) {
        for index in 0..PARTITIONS {
            let found = &recovered[&partition(index)];
            let mut stored = Vec::new();
            let mut bytes = BTreeMap::new();
            for batch in &found.tail {
                let whole = read(world, batch).await;
                let header = BatchHeader::parse(&whole).expect("it is a batch");
                assert_eq!(header.base_offset, batch.base_offset);
                assert_eq!(header.partition_leader_epoch, batch.leader_epoch);
                stored.push(described(&header, u64::from(header.crc)));
                bytes.insert(batch.base_offset.0, whole);
            }
            let pieces: Vec<_> = stored.iter().map(|b| (b.base, b.last)).collect();
            rule::covered(0, found.head.next_offset.0, &pieces).expect("I4");
            rule::sequences_are_unique(&stored).expect("I7");
            let mut acked = Vec::new();
            for (_, sent) in self.sent.iter().filter(|((_, at), _)| *at == index) {
                for (batch, base) in sent.batches.iter().filter_map(|(b, o)| Some((b, (*o)?))) {
                    let header = batch.at(Offset(base), LeaderEpoch(0));
                    acked.push(described(&header, u64::from(header.crc)));
                    assert!(bytes[&base].ends_with(&batch.records()), "I5");
                }
            }
            acked.sort_by_key(|batch| batch.base);
            rule::acked_is_stored(&acked, &stored, 0).expect("I1");
            self.check_sequences(found, &stored);
        }
    }

    fn check_sequences(&self, found: &RecoveredPartition, stored: &[rule::Batch]) {
        for producer in &found.head.producers {
            let remembered = producer.batches.iter();
            let of = |b: &rule::Batch| {
                let (id, _, first, last) = b.producer?;
                (id == producer.producer_id.0).then_some((first, last, b.base))
            };
            let stored: Vec<_> = stored.iter().filter_map(of).collect();
            let remembered: Vec<_> = remembered
                .map(|b| (b.first_sequence, b.last_sequence, b.base_offset.0))
                .collect();
            rule::sequence_state(&remembered, &stored).expect("I8");
        }
    }
}

fn described(header: &BatchHeader, content: u64) -> rule::Batch {
    let (id, epoch) = (header.producer_id.0, header.producer_epoch.0);
    rule::Batch {
        base: header.base_offset.0,
        last: header.last_offset().0,
        content,
        producer: Some((id, epoch, header.base_sequence, header.last_sequence())),
    }
}

async fn read(world: &World, batch: &TailBatch) -> Vec<u8> {
    let mut whole = Vec::new();
    for span in &batch.spans {
        let key = world.wal(span.position.writer.0).key(span.position.number);
        let bytes = world.memory.get_range(&key, span.range.clone()).await;
        whole.extend_from_slice(&bytes.expect("the WAL object is there"));
    }
    assert_eq!(whole.len(), batch.size_bytes as usize);
    assert_eq!(crc32c::crc32c(&whole), batch.crc, "I5: checksum as stored");
    whole
}

async fn recover(world: &World, writers: &[u64]) -> BTreeMap<PartitionId, RecoveredPartition> {
    let mut partitions: BTreeMap<_, _> = (0..PARTITIONS)
        .map(|i| (partition(i), RecoveredPartition::empty(partition(i))))
        .collect();
    for writer in writers {
        let sealed = seal(world, *writer, 0).await;
        replay(&world.store, CLUSTER, &sealed, &mut partitions)
            .await
            .expect("it replays");
    }
    partitions
}

async fn run(world: World, seed: u64) {
    let mut load = Load {
        random: Entropy::from_seed(seed),
        sent: BTreeMap::new(),
    };
    let mut writers = Vec::new();
    let mut recovered = recover(&world, &[]).await;
    let mut zombies: Vec<(Arc<Log>, Waiting)> = Vec::new();
    for writer in 1..4u64 {
        let epoch = LeaderEpoch(writer as i32);
        for state in recovered.values_mut() {
            state.head.leader_epoch = epoch;
        }
        let from = Recovered {
            partitions: recovered.into_values().collect(),
            ..Recovered::default()
        };
        let log = world.open_with(writer, tight(), from).await;
        world.faulty.heal();
        load.resend(&log).await;
        world.faulty.set_plan(
            FaultPlan::bad_day().delayed(Duration::from_millis(1), Duration::from_millis(30)),
        );
        world.faulty.resume();
        let mut waiting = Waiting::new();
        for _ in 0..load.random.below(120) {
            load.act(&log, &mut waiting);
            load.settle(&mut waiting);
            if load.random.chance(0.5) {
                world.sleep_ms(load.random.below(8)).await;
            }
        }
        load.settle(&mut waiting);
        if load.random.chance(0.5) {
            zombies.push((log, waiting));
        } else {
            drop(log);
        }
        writers.push(writer);
        recovered = recover(&world, &writers).await;
        for (_, waiting) in &mut zombies {
            load.settle(waiting);
        }
        load.check(&world, &recovered).await;
    }
    // A zombie learns of what landed late; that, too, must have been replayed.
    world.sleep_ms(600_000).await;
    for (log, waiting) in &mut zombies {
        load.settle(waiting);
        assert!(
            log.pending_bytes() == 0,
            "a sealed writer has nothing pending"
        );
    }
    load.check(&world, &recovered).await;
    let again = recover(&world, &writers).await;
    for (id, one) in &recovered {
        assert_eq!(one.head, again[id].head, "a second replay gives the same");
    }
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled() {
    let seeds = std::env::var("TIDEMILL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = seeds.map_or(0..24, |seed: u64| seed..seed + 1);
    for seed in seeds {
        eprintln!("TIDEMILL_SEED={seed}");
        simulate(seed, |world| run(world, seed));
    }
}
