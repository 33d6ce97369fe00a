//! The loads of the rows that are about rates.

use std::time::Duration;

use tidemill_runtime::Tasks;
use tokio::sync::oneshot;

use super::{Bench, sizes, stages::stages};
use crate::{
    brokers::Child,
    error::BenchError,
    load::{self, E2eOutcome, Limit, OpenLoop, ProduceLoad, Shape, Target},
    probe::Usage,
};

/// Bytes of a small record's value.
pub const RECORD_BYTES: usize = 1 << 10;
/// Records that a producer sends together at 20 MB/s: what Kafka's producer gathers in its five
/// milliseconds of `linger.ms` at this rate.
const LINGERED: usize = 4;
const RATE_WARMUP: Duration = Duration::from_secs(5);

/// A rate, measured.
pub struct Rated {
    pub outcome: E2eOutcome,
    pub usage: Usage,
}

impl Rated {
    pub fn puts_per_second(&self) -> f64 {
        let puts = self.usage.puts.unwrap_or(0) as f64;
        puts / self.outcome.elapsed.as_secs_f64()
    }
}

fn open(topic: &str, partitions: i32, producers: u32, shape: Shape) -> OpenLoop {
    OpenLoop {
        topic: topic.to_owned(),
        partitions,
        producers,
        consumers: 4,
        shape,
        messages_per_second: 1.0,
        in_flight: 1_000,
        warmup: RATE_WARMUP,
        time: Duration::from_secs(30),
        seed: 1,
    }
}

/// 32 producers, 20 MB/s of 1 KiB records over 64 partitions.
pub fn twenty_mb(seconds: f64) -> OpenLoop {
    let shape = Shape {
        record_bytes: RECORD_BYTES,
        batch_records: LINGERED,
    };
    OpenLoop {
        messages_per_second: 20e6 / (RECORD_BYTES * LINGERED) as f64,
        time: Duration::from_secs_f64(seconds),
        ..open("rate", 64, 32, shape)
    }
}

/// 5 x 4 MB batches a second on one partition.
pub fn bulk(seconds: f64) -> OpenLoop {
    OpenLoop {
        consumers: 1,
        messages_per_second: 5.0,
        time: Duration::from_secs_f64(seconds),
        ..open("bulk", 1, 1, sizes::Size::MB4.shape)
    }
}

/// So many megabytes a second of single small records.
pub fn small(mb_per_second: f64, producers: u32, seconds: f64) -> OpenLoop {
    let shape = Shape {
        record_bytes: RECORD_BYTES,
        batch_records: 1,
    };
    OpenLoop {
        messages_per_second: mb_per_second * 1e6 / RECORD_BYTES as f64,
        time: Duration::from_secs_f64(seconds),
        ..open("small", 16, producers, shape)
    }
}

/// Runs an open loop, and another beside it that is not measured but checked.
pub async fn rate(
    bench: &mut Bench<'_, '_>,
    broker: &Child,
    load: &OpenLoop,
    beside: Option<&OpenLoop>,
    name: &str,
) -> Result<Rated, BenchError> {
    for load in [Some(load), beside].into_iter().flatten() {
        let largest = sizes::largest_message(load.shape);
        let configs = [("max.message.bytes", largest.as_str())];
        let target = &broker.target;
        target
            .create_topic(&load.topic, load.partitions, &configs)
            .await?;
    }
    let before = broker.probe.sample(bench.runtime).await?;
    let other = async {
        match beside {
            Some(load) => aside(&broker.target, load).await.map(Some),
            None => Ok(None),
        }
    };
    let (outcome, other) = tokio::join!(load::open_loop(&broker.target, load), other);
    let (mut outcome, other) = (outcome?, other?);
    let after = broker.probe.sample(bench.runtime).await?;
    if let Some(other) = other {
        outcome.lost += other.lost;
        outcome.doubled += other.doubled;
        outcome.reordered += other.reordered;
    }
    let usage = before.until(&after);
    let mut rows = crate::commands::e2e_rows(&outcome, &usage);
    rows.truncate(1);
    bench.out.rows(&rows)?;
    if bench.show_stages {
        let stages = stages(&before, &after);
        let rows: Vec<_> = stages.iter().map(|stage| stage.row(name)).collect();
        bench.out.rows(&rows)?;
    }
    Ok(Rated { outcome, usage })
}

/// How much more politely than the rest the clients of a load run that is not measured.
const ASIDE_NICE: i32 = 10;

/// Runs an open loop on a thread of its own that gives way to all others: elsewhere its clients
/// would run on machines of their own. What they build, decode and check, megabytes at a time, must
/// not hold up the clients whose records are measured.
async fn aside(target: &Target, load: &OpenLoop) -> Result<E2eOutcome, BenchError> {
    let (mut target, load) = (target.clone(), load.clone());
    let (ended, outcome) = oneshot::channel();
    let work = move || {
        // Linux: of this thread and those it starts. Refused, it is merely less polite.
        let _ = rustix::process::nice(ASIDE_NICE);
        target.runtime.tasks = Tasks::new();
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let measured = match tokio {
            Ok(tokio) => tokio.block_on(load::open_loop(&target, &load)),
            Err(error) => Err(BenchError::io("threads")(error)),
        };
        // Whoever waits for it may have failed.
        let _ = ended.send(measured);
    };
    // One of the pool would stay polite to what comes after.
    let thread = std::thread::Builder::new()
        .name("bench-aside".to_owned())
        .spawn(work);
    thread.map_err(BenchError::io("threads"))?;
    let lost = |_| BenchError::Failed("the load beside it has panicked".to_owned());
    outcome.await.map_err(lost)?
}

/// How a closed loop sends.
#[derive(Clone, Copy)]
pub struct Closed {
    pub producers: usize,
    pub in_flight: usize,
    pub partitions: i32,
    pub batch_records: usize,
}

/// A closed loop for so many seconds after a warm-up; gives records, MB and broker CPU a second.
pub async fn closed(
    bench: &mut Bench<'_, '_>,
    broker: &Child,
    how: Closed,
    seconds: f64,
) -> Result<(load::Outcome, Usage), BenchError> {
    let topic = format!("closed-{}-{}", how.producers, how.in_flight);
    broker
        .target
        .create_topic(&topic, how.partitions, &[])
        .await?;
    let load = ProduceLoad {
        topic: topic.clone(),
        partitions: how.partitions,
        producers: how.producers,
        in_flight: how.in_flight,
        shape: Shape {
            record_bytes: RECORD_BYTES,
            batch_records: how.batch_records,
        },
        limit: Limit::Time(RATE_WARMUP),
        records_per_second: None,
        acks: -1,
        seed: 1,
    };
    let warm = load::produce(&broker.target, &load).await?;
    let limit = Limit::Time(Duration::from_secs_f64(seconds));
    let before = broker.probe.sample(bench.runtime).await?;
    let outcome = load::produce(&broker.target, &ProduceLoad { limit, ..load }).await?;
    let after = broker.probe.sample(bench.runtime).await?;
    let usage = before.until(&after);
    let row = crate::report::Row::new("closed loop")
        .count("producers", how.producers as u64)
        .count("in_flight", how.in_flight as u64);
    bench.out.rows(&[outcome.describe(&usage, row)])?;
    if bench.show_stages {
        let stages = stages(&before, &after);
        let rows: Vec<_> = stages
            .iter()
            .map(|stage| stage.row("closed loop"))
            .collect();
        bench.out.rows(&rows)?;
    }
    // Every record that was acknowledged is there, whole, once.
    let all = load::ConsumeLoad {
        topic,
        partitions: how.partitions,
        connections: 4,
        max_bytes: 50 << 20,
        partition_max_bytes: 1 << 20,
        check: load::Check::Crc,
    };
    let read = load::consume(&broker.target, &all).await?;
    let acknowledged = warm.records + outcome.records;
    if read.records != acknowledged {
        let found = read.records;
        let what = format!("{acknowledged} records were acknowledged and {found} are there");
        return Err(BenchError::Failed(what));
    }
    Ok((outcome, usage))
}
