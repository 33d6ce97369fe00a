//! `produce`, `consume` and `e2e`.

use std::{path::Path, sync::Arc, time::Duration};

use tidemill_runtime::Runtime;
use tidemill_store::{Backend, LocalSync, OpenOptions, open};

use super::Output;
use crate::{
    cli,
    error::BenchError,
    load::{self, ConsumeLoad, E2eLoad, E2eOutcome, Limit, OpenLoop, ProduceLoad, Shape, Target},
    probe::{Probe, Usage, listener_pid},
    report::Row,
};

const MB: f64 = 1e6;

fn target(broker: &cli::Broker, runtime: &Runtime) -> (Target, Probe) {
    let target = Target {
        address: broker.broker.clone(),
        runtime: runtime.clone(),
    };
    let found = || target.port().and_then(listener_pid);
    let probe = Probe {
        pid: broker.pid.or_else(found),
        metrics: broker.metrics.clone(),
    };
    (target, probe)
}

fn seconds(seconds: f64, what: &str) -> Result<Duration, BenchError> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| BenchError::Failed(format!("`{what}` is no time")))
}

fn positive(rate: Option<f64>) -> Result<Option<f64>, BenchError> {
    match rate {
        Some(rate) if !(rate.is_finite() && rate > 0.0) => {
            Err(BenchError::Failed("`--rate` must be above 0".to_owned()))
        }
        rate => Ok(rate),
    }
}

pub async fn produce(
    args: cli::Produce,
    runtime: &Runtime,
    out: &mut Output<'_>,
) -> Result<(), BenchError> {
    let (target, probe) = target(&args.broker, runtime);
    let (topic, partitions) = (args.topic.topic, args.topic.partitions);
    target.create_topic(&topic, partitions, &[]).await?;
    if ![-1, 1].contains(&args.acks) {
        return Err(BenchError::Failed("`--acks` must be -1 or 1".to_owned()));
    }
    let limit = match args.seconds {
        Some(time) => Limit::Time(seconds(time, "--seconds")?),
        None => Limit::Records(args.records),
    };
    let load = ProduceLoad {
        topic,
        partitions,
        producers: args.producers.max(1),
        in_flight: args.in_flight,
        shape: shape(args.sizes.record_bytes, args.sizes.batch_records),
        limit,
        records_per_second: positive(args.rate)?,
        acks: args.acks,
        seed: args.seed,
    };
    if args.warmup > 0 {
        let limit = Limit::Records(args.warmup);
        load::produce(
            &target,
            &ProduceLoad {
                limit,
                ..load.clone()
            },
        )
        .await?;
    }
    let before = probe.sample(runtime).await?;
    let outcome = load::produce(&target, &load).await?;
    let usage = before.until(&probe.sample(runtime).await?);
    let row = Row::new("produce")
        .text(
            "loop",
            if args.rate.is_some() {
                "open"
            } else {
                "closed"
            },
        )
        .count("producers", args.producers as u64)
        .count("in_flight", args.in_flight as u64);
    out.rows(&[outcome.describe(&usage, row)])
}

fn shape(record_bytes: usize, batch_records: usize) -> Shape {
    Shape {
        record_bytes,
        batch_records: batch_records.max(1),
    }
}

pub async fn consume(
    args: cli::Consume,
    runtime: &Runtime,
    out: &mut Output<'_>,
) -> Result<(), BenchError> {
    let (target, probe) = target(&args.broker, runtime);
    let load = ConsumeLoad {
        topic: args.topic.topic,
        partitions: args.topic.partitions,
        connections: args.connections,
        max_bytes: args.max_bytes,
        partition_max_bytes: args.partition_max_bytes,
        check: args.check,
    };
    let mut rows = Vec::new();
    for round in 0..args.rounds {
        let before = probe.sample(runtime).await?;
        let outcome = load::consume(&target, &load).await?;
        let usage = before.until(&probe.sample(runtime).await?);
        let row = Row::new("consume").count("round", u64::from(round));
        rows.push(outcome.describe(&usage, row));
    }
    out.rows(&rows)
}

pub async fn e2e(
    args: cli::E2e,
    runtime: &Runtime,
    out: &mut Output<'_>,
) -> Result<(), BenchError> {
    let (target, probe) = target(&args.broker, runtime);
    // Room for the message, should it be larger than Kafka's default of 1 MiB.
    let largest = (args.record_bytes * args.batch_records.max(1) * 2).max(2 << 20);
    let largest = largest.to_string();
    let configs = [("max.message.bytes", largest.as_str())];
    target
        .create_topic(&args.topic, args.partitions, &configs)
        .await?;
    let shape = shape(args.record_bytes, args.batch_records);
    let rate = positive(args.rate)?;
    let before = probe.sample(runtime).await?;
    let outcome = match rate {
        Some(rate) => load::open_loop(&target, &open_loop(&args, shape, rate)?).await?,
        None => {
            let raw = match &args.raw {
                Some(url) => Some(raw_store(url, args.raw_unsynced, runtime).await?),
                None => None,
            };
            let load = E2eLoad {
                topic: args.topic.clone(),
                shape,
                count: args.count,
                warmup: args.warmup,
                raw,
                seed: args.seed,
            };
            load::e2e(&target, &load).await?
        }
    };
    let usage = before.until(&probe.sample(runtime).await?);
    out.rows(&e2e_rows(&outcome, &usage))
}

fn open_loop(args: &cli::E2e, shape: Shape, rate: f64) -> Result<OpenLoop, BenchError> {
    Ok(OpenLoop {
        topic: args.topic.clone(),
        partitions: args.partitions,
        producers: args.producers,
        consumers: args.consumers,
        shape,
        messages_per_second: rate,
        in_flight: args.in_flight,
        warmup: seconds(args.warmup_seconds, "--warmup-seconds")?,
        time: seconds(args.seconds, "--seconds")?,
        seed: args.seed,
    })
}

async fn raw_store(
    url: &str,
    unsynced: bool,
    runtime: &Runtime,
) -> Result<Arc<dyn Backend>, BenchError> {
    let options = OpenOptions {
        sync: if unsynced {
            LocalSync::Os
        } else {
            LocalSync::Always
        },
        environment: std::env::vars().collect(),
        ..OpenOptions::default()
    };
    if let Some(dir) = url.strip_prefix("file:") {
        let made = std::fs::create_dir_all(Path::new(dir));
        made.map_err(BenchError::io(format!("`{dir}`")))?;
    }
    let opened = open(url, &options, runtime.clone()).await;
    opened.map_err(|error| BenchError::Failed(error.to_string()))
}

/// Rows of an end-to-end run: the broker, its acknowledgements, and the raw store beside it.
#[must_use]
pub fn e2e_rows(outcome: &E2eOutcome, usage: &Usage) -> Vec<Row> {
    let raw_p50 = (outcome.raw.count() > 0).then(|| outcome.raw.quantile_ms(0.5));
    let ratio = |quantile: f64| {
        raw_p50.map(|_| outcome.latency.quantile_ms(quantile) / outcome.raw.quantile_ms(quantile))
    };
    let row = Row::new("e2e").text("what", "send to consumer");
    let row = outcome
        .latency
        .describe("", row)
        .maybe("p50/raw", ratio(0.5))
        .maybe("p99/raw", ratio(0.99))
        .count("sent", outcome.sent)
        .count("lost", outcome.lost)
        .count("doubled", outcome.doubled)
        .count("reordered", outcome.reordered)
        .measure(
            "messages/s",
            outcome.sent as f64 / outcome.elapsed.as_secs_f64(),
        )
        .measure(
            "MB/s",
            outcome.bytes as f64 / MB / outcome.elapsed.as_secs_f64(),
        )
        .maybe("cpu_s", usage.cpu.map(|cpu| cpu.as_secs_f64()))
        .maybe("stolen_s", usage.stolen.map(|stolen| stolen.as_secs_f64()))
        .maybe("puts", usage.puts.map(|puts| puts as f64))
        .maybe("gets", usage.gets.map(|gets| gets as f64));
    let acknowledged = Row::new("e2e").text("what", "send to ack");
    let mut rows = vec![row, outcome.acknowledged.describe("", acknowledged)];
    if raw_p50.is_some() {
        let raw = Row::new("e2e").text("what", "raw put");
        rows.push(outcome.raw.describe("", raw));
    }
    rows
}
