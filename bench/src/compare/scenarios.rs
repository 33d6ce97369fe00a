//! The scenarios.

use std::time::Duration;

use tidemill_runtime::Entropy;
use tidemill_store::LocalSync;

use super::{Bench, Scenario, Side};
use crate::{
    brokers::Child,
    disk::{DiskLoad, disk},
    error::BenchError,
    load::{
        self, Check, ConsumeLoad, E2eLoad, Limit, ProduceLoad, Shape, Target,
        payload::{batch, filler},
        produce::{send_one, send_to_all},
    },
    probe::{Usage, age},
    report::Row,
};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// The load: 1 KiB records in batches of 100, 4 producers with 5 in flight, 8 partitions.
const LOAD: Shape = Shape {
    record_bytes: 1024,
    batch_records: 100,
};
const PRODUCERS: usize = 4;
const IN_FLIGHT: usize = 5;
const PARTITIONS: i32 = 8;
const TOPIC: &str = "bench";
/// Committed bytes in the WAL alone, and checkpoints that count, on Tidemill's page of metrics.
const UNROLLED: &str = "tidemill_log_unrolled_bytes";
const CHECKPOINTS: &str = "tidemill_log_checkpoints_total";
/// Idle partitions, as so many topics of so many.
const IDLE_TOPICS: i32 = 5;
const IDLE_PARTITIONS: i32 = 1_000;
/// WAL written before the SIGKILL of `replay`.
const REPLAY_BYTES: f64 = 1e9;
/// Keeps all of it, and a warm-up beside it, in the WAL.
const NO_ROLL: &[&str] = &["tidemill.roll.bytes=17179869184"];
/// Partitions of `trickle`, as topics of [`IDLE_PARTITIONS`], and its rounds.
const TRICKLE_TOPICS: i32 = 10;
const TRICKLE_ROUNDS: u32 = 6;
/// A round of `trickle` starts when its oldest record is so old: when all of them are there.
const TRICKLE_ROLL: &[&str] = &["tidemill.roll.interval.ms=20000"];
/// The disk alone: as much as a round of `produce` writes, in objects as large as the WAL's.
const DISK_OBJECT_BYTES: usize = 1 << 20;
/// Reads not measured: code is warm afterwards.
const CONSUME_WARMUPS: u32 = 1;

pub async fn run(bench: &mut Bench<'_, '_>, scenario: Scenario) -> Result<(), BenchError> {
    match scenario {
        Scenario::Disk => disk_alone(bench).await,
        Scenario::First => first(bench).await,
        Scenario::Idle => idle(bench, Scenario::Idle, 0).await,
        Scenario::Partitions => idle(bench, Scenario::Partitions, IDLE_TOPICS).await,
        Scenario::Produce => produce(bench).await,
        Scenario::Consume => consume(bench).await,
        Scenario::E2e => e2e(bench).await,
        Scenario::Replay => replay(bench).await,
        Scenario::Trickle => trickle(bench).await,
    }
}

fn row(scenario: Scenario, side: Side, round: u32) -> Row {
    Row::new(scenario.name())
        .text("side", side.name())
        .count("round", u64::from(round))
}

async fn disk_alone(bench: &mut Bench<'_, '_>) -> Result<(), BenchError> {
    let bytes = bench.args.gib * GIB / f64::from(bench.args.rounds.max(1));
    let load = DiskLoad {
        object_bytes: DISK_OBJECT_BYTES,
        objects: (bytes / DISK_OBJECT_BYTES as f64) as u64,
        in_flight: PRODUCERS,
        sync: LocalSync::Always,
    };
    for round in 0..bench.args.rounds {
        let dir = bench.dir.join("disk");
        bench.settle().await?;
        let outcome = disk(&dir, load, bench.runtime).await?;
        let removed = std::fs::remove_dir_all(&dir);
        removed.map_err(BenchError::io(format!("`{}`", dir.display())))?;
        let row = Row::new(Scenario::Disk.name())
            .text("side", "disk")
            .count("round", u64::from(round));
        bench.push(outcome.describe(&Usage::default(), row))?;
    }
    Ok(())
}

/// Creates a topic of one partition if need be, and produces one record to it.
async fn first_record(target: Target) -> Result<(), BenchError> {
    let value = filler(LOAD.record_bytes, &Entropy::from_seed(1));
    let record = batch([value.as_slice()], target.runtime.clock.now_ms())?;
    let client = target.connect().await?;
    target.create_topic("first", 1, &[]).await?;
    send_one(&client, "first", 0, record).await
}

async fn first(bench: &mut Bench<'_, '_>) -> Result<(), BenchError> {
    for round in 0..bench.args.rounds {
        for side in [Side::Kafka, Side::Synced] {
            bench.clear(side)?;
            bench.settle().await?;
            let clock = &bench.runtime.clock;
            let asked = clock.monotonic();
            let mut broker = bench.start(side).await?;
            broker.until(first_record).await?;
            // Kafka's directory is formatted before its process starts: that does not count.
            let took = match (side, broker.probe.pid) {
                (Side::Kafka, Some(pid)) => age(pid)?,
                _ => clock.monotonic().saturating_duration_since(asked),
            };
            broker.stop().await?;
            let row = row(Scenario::First, side, round);
            bench.push(row.measure("first_ms", took.as_secs_f64() * 1e3))?;
        }
    }
    Ok(())
}

async fn idle(
    bench: &mut Bench<'_, '_>,
    scenario: Scenario,
    topics: i32,
) -> Result<(), BenchError> {
    for side in [Side::Kafka, Side::Synced] {
        bench.clear(side)?;
        let mut broker = bench.start(side).await?;
        broker.answers().await?;
        for number in 0..topics {
            let name = format!("idle-{number}");
            broker
                .target
                .create_topic(&name, IDLE_PARTITIONS, &[])
                .await?;
        }
        let settle = Duration::from_secs(bench.args.idle_seconds);
        bench.runtime.clock.sleep(settle).await;
        let before = broker.probe.sample(bench.runtime).await?;
        bench.runtime.clock.sleep(settle).await;
        let usage = before.until(&broker.probe.sample(bench.runtime).await?);
        let row = row(scenario, side, 0)
            .maybe("rss_MB", usage.rss_bytes.map(|rss| rss as f64 / 1e6))
            .maybe("idle_cpu_s", usage.cpu.map(|cpu| cpu.as_secs_f64()))
            .maybe("idle_puts", usage.puts.map(|puts| puts as f64))
            .maybe("idle_gets", usage.gets.map(|gets| gets as f64));
        broker.stop().await?;
        bench.push(row)?;
    }
    Ok(())
}

fn produce_load(gib: f64, seed: u64) -> ProduceLoad {
    let record = LOAD.record_bytes as f64;
    ProduceLoad {
        topic: TOPIC.to_owned(),
        partitions: PARTITIONS,
        producers: PRODUCERS,
        in_flight: IN_FLIGHT,
        shape: LOAD,
        limit: Limit::Records((gib * GIB / record) as u64),
        records_per_second: None,
        acks: -1,
        seed,
    }
}

async fn produce(bench: &mut Bench<'_, '_>) -> Result<(), BenchError> {
    let mut brokers = Vec::new();
    for side in Side::ALL {
        bench.clear(side)?;
        let mut broker = bench.start(side).await?;
        broker.answers().await?;
        broker.target.create_topic(TOPIC, PARTITIONS, &[]).await?;
        if bench.args.warmup_gib > 0.0 {
            let load = produce_load(bench.args.warmup_gib, 0);
            load::produce(&broker.target, &load).await?;
        }
        brokers.push((side, broker));
    }
    let each = bench.args.gib / f64::from(bench.args.rounds.max(1));
    for round in 0..bench.args.rounds {
        for (side, broker) in &brokers {
            bench.settle().await?;
            let load = produce_load(each, u64::from(round) + 1);
            let before = broker.probe.sample(bench.runtime).await?;
            let outcome = load::produce(&broker.target, &load).await?;
            // What comes after the last answer belongs to it: rolling, write-back.
            bench.runtime.clock.sleep(Duration::from_secs(2)).await;
            bench.settle().await?;
            let usage = before.until(&broker.probe.sample(bench.runtime).await?);
            let row = row(Scenario::Produce, *side, round);
            bench.push(outcome.describe(&usage, row))?;
        }
    }
    for (side, broker) in brokers {
        broker.stop().await?;
        if side == Side::Os {
            // Read back from the synced side alone: the bytes are the same.
            bench.clear(side)?;
        }
    }
    bench.settle().await
}

async fn consume(bench: &mut Bench<'_, '_>) -> Result<(), BenchError> {
    let mut brokers: Vec<(Side, Child)> = Vec::new();
    for side in [Side::Kafka, Side::Synced] {
        if !bench.data(side).join("data").exists() {
            let what = "`consume` reads what `produce` wrote in the same run; name both";
            return Err(BenchError::Failed(what.to_owned()));
        }
        let asked = bench.runtime.clock.monotonic();
        let mut broker = bench.start(side).await?;
        broker.answers().await?;
        let took = bench
            .runtime
            .clock
            .monotonic()
            .saturating_duration_since(asked);
        let row = Row::new("restart").text("side", side.name());
        bench.push(row.measure("ready_ms", took.as_secs_f64() * 1e3))?;
        // Kafka leads its partitions a moment after it answers.
        broker.target.create_topic(TOPIC, PARTITIONS, &[]).await?;
        brokers.push((side, broker));
    }
    let load = ConsumeLoad {
        topic: TOPIC.to_owned(),
        partitions: PARTITIONS,
        connections: PRODUCERS,
        max_bytes: 50 << 20,
        partition_max_bytes: 1 << 20,
        check: Check::None,
    };
    for (side, _) in &brokers {
        let bytes = bench.warm(*side).await?;
        let row = Row::new("page cache").text("side", side.name());
        bench.push(row.measure("read_MB", bytes as f64 / 1e6))?;
    }
    for round in 0..bench.args.rounds + CONSUME_WARMUPS {
        for (side, broker) in &brokers {
            let before = broker.probe.sample(bench.runtime).await?;
            let outcome = load::consume(&broker.target, &load).await?;
            let usage = before.until(&broker.probe.sample(bench.runtime).await?);
            if round >= CONSUME_WARMUPS {
                let row = row(Scenario::Consume, *side, round - CONSUME_WARMUPS);
                bench.push(outcome.describe(&usage, row))?;
            }
        }
    }
    for (_, broker) in brokers {
        broker.stop().await?;
    }
    Ok(())
}

async fn e2e(bench: &mut Bench<'_, '_>) -> Result<(), BenchError> {
    let mut brokers = Vec::new();
    for side in Side::ALL {
        bench.clear(side)?;
        let mut broker = bench.start(side).await?;
        broker.answers().await?;
        broker.target.create_topic(TOPIC, 1, &[]).await?;
        brokers.push((side, broker));
    }
    let rounds = bench.args.rounds.max(1);
    for round in 0..rounds {
        for (side, broker) in &brokers {
            let load = E2eLoad {
                topic: TOPIC.to_owned(),
                shape: Shape {
                    batch_records: 1,
                    ..LOAD
                },
                count: bench.args.e2e_count / u64::from(rounds),
                // A JVM compiles what it runs often.
                warmup: if round == 0 { 2_000 } else { 100 },
                raw: None,
                seed: u64::from(round),
            };
            let before = broker.probe.sample(bench.runtime).await?;
            let outcome = load::e2e(&broker.target, &load).await?;
            let usage = before.until(&broker.probe.sample(bench.runtime).await?);
            let row = row(Scenario::E2e, *side, round);
            let row = outcome
                .latency
                .describe("", row)
                .maybe("cpu_s", usage.cpu.map(|cpu| cpu.as_secs_f64()))
                .count("lost", outcome.lost)
                .count("doubled", outcome.doubled);
            bench.push(row)?;
        }
    }
    for (_, broker) in brokers {
        broker.stop().await?;
    }
    Ok(())
}

/// Tidemill alone: killed with a gigabyte in its WAL and nowhere else, then started again.
async fn replay(bench: &mut Bench<'_, '_>) -> Result<(), BenchError> {
    let side = Side::Synced;
    for round in 0..bench.args.rounds {
        bench.clear(side)?;
        let mut broker = bench.start_with(side, NO_ROLL).await?;
        broker.answers().await?;
        broker.target.create_topic(TOPIC, PARTITIONS, &[]).await?;
        load::produce(&broker.target, &produce_load(REPLAY_BYTES / GIB, 1)).await?;
        let sample = broker.probe.sample(bench.runtime).await?;
        // SIGKILL.
        drop(broker);
        bench.settle().await?;
        let asked = bench.runtime.clock.monotonic();
        let mut broker = bench.start_with(side, NO_ROLL).await?;
        broker.answers().await?;
        let took = bench
            .runtime
            .clock
            .monotonic()
            .saturating_duration_since(asked);
        let client = broker.target.connect().await?;
        let ends = load::target::offsets(&client, TOPIC, PARTITIONS, load::target::LATEST).await?;
        let usage = broker.probe.sample(bench.runtime).await?;
        broker.stop().await?;
        let unrolled = sample.metrics.get(UNROLLED).map(|bytes| bytes / 1e6);
        let row = row(Scenario::Replay, side, round)
            .measure("ready_ms", took.as_secs_f64() * 1e3)
            .count("records", ends.iter().map(|end| end.unsigned_abs()).sum())
            .maybe("wal_MB", unrolled)
            .maybe("rss_MB", usage.rss_bytes.map(|rss| rss as f64 / 1e6));
        bench.push(row)?;
    }
    Ok(())
}

/// One record on each of 10,000 partitions a round, and what the round then costs in PUTs.
async fn trickle(bench: &mut Bench<'_, '_>) -> Result<(), BenchError> {
    let side = Side::Synced;
    let clock = bench.runtime.clock.clone();
    bench.clear(side)?;
    let mut broker = bench.start_with(side, TRICKLE_ROLL).await?;
    broker.answers().await?;
    let value = filler(LOAD.record_bytes, &Entropy::from_seed(1));
    let name = |topic: i32| format!("trickle-{topic}");
    for topic in 0..TRICKLE_TOPICS {
        let name = name(topic);
        let created = broker.target.create_topic(&name, IDLE_PARTITIONS, &[]);
        created.await?;
    }
    let client = broker.target.connect().await?;
    for round in 0..TRICKLE_ROUNDS {
        let record = batch([value.as_slice()], clock.now_ms())?;
        for topic in 0..TRICKLE_TOPICS {
            send_to_all(&client, &name(topic), IDLE_PARTITIONS, record.clone()).await?;
        }
        let before = broker.probe.sample(bench.runtime).await?;
        let mut after = before.clone();
        // What is merged follows at once, and its checkpoints are counted with it.
        while after.metrics.get(UNROLLED) != Some(&0.0) {
            clock.sleep(Duration::from_millis(20)).await;
            after = broker.probe.sample(bench.runtime).await?;
        }
        let grown = |name: &str| {
            let (before, after) = (before.metrics.get(name)?, after.metrics.get(name)?);
            Some(after - before)
        };
        let checkpoints = grown(CHECKPOINTS);
        let puts = before.until(&after).puts;
        let row = row(Scenario::Trickle, side, round)
            .maybe("checkpoints", checkpoints)
            .maybe("puts", puts.map(|puts| puts as f64))
            .maybe(
                "puts/round",
                puts.zip(checkpoints).map(|(p, c)| p as f64 / c),
            )
            .maybe("rss_MB", after.rss_bytes.map(|rss| rss as f64 / 1e6));
        bench.push(row)?;
    }
    broker.stop().await
}
