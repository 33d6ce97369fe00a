//! The rows of what must hold.

use tidemill_store::LocalSync;

use super::{
    Bar, Bench,
    loads::{self, Closed, Rated},
    place::{DISCARD_KIB, StoreKind, stalling},
    sizes::{self, Size, extra_percent},
};
use crate::{
    brokers::{Child, kafka},
    cli,
    error::BenchError,
    load::{self, E2eLoad, Latency},
    model::Profile,
    store::ModelOptions,
};

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// 1 KB and 4 KB on the S3 model.
    Small,
    /// 1 KB on the S3 Express model.
    SmallExpress,
    /// 1 KB on the S3 model, 2 % of requests stalled by a second.
    SmallStalls,
    /// 1000 x 4 KB on the S3 model.
    Large,
    /// 1000 x 4 KB on the S3 Express model.
    LargeExpress,
    /// 32 producers, 20 MB/s of 1 KiB records, 64 partitions; with bulk beside it.
    Rate,
    /// The same with stalls.
    RateStalls,
    /// 4 connections with 5 requests of 100 KiB in flight.
    Throughput,
    /// 64 connections with one record of 1 KB in flight each.
    Connections,
    /// One connection, 16 in flight against 1.
    InFlight,
    /// 1 MB/s of small records in each latency class.
    Classes,
    /// 1 KB in a local directory, synced.
    Local,
    /// 1 KB in a local directory without syncs, and Apache Kafka.
    LocalOs,
    /// Errors, lost answers and stalls, 5 % each.
    Faults,
}

impl Case {
    /// All, in the order of the table.
    pub const ALL: [Self; 14] = [
        Self::Small,
        Self::SmallExpress,
        Self::SmallStalls,
        Self::Large,
        Self::LargeExpress,
        Self::Rate,
        Self::RateStalls,
        Self::Throughput,
        Self::Connections,
        Self::InFlight,
        Self::Classes,
        Self::Local,
        Self::LocalOs,
        Self::Faults,
    ];

    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small, s3",
            Self::SmallExpress => "small, express",
            Self::SmallStalls => "small, s3, stalls",
            Self::Large => "4 MB, s3",
            Self::LargeExpress => "4 MB, express",
            Self::Rate => "20 MB/s, s3",
            Self::RateStalls => "20 MB/s, s3, stalls",
            Self::Throughput => "4 x 5 of 100 KiB, s3",
            Self::Connections => "64 connections, s3",
            Self::InFlight => "16 in flight, s3",
            Self::Classes => "1 MB/s by class, s3",
            Self::Local => "local, synced",
            Self::LocalOs => "local, os",
            Self::Faults => "faults, s3",
        }
    }
}

const LOW: &str = "tidemill.latency=low";
const STALLED: f64 = 0.02;
/// Errors, lost answers and stalls.
const FAULTY: f64 = 0.05;
/// MiB touched beforehand: the records that wait for their roll, those of the round under way and
/// what the cache keeps.
const WARM_MIB: usize = 2_048;
const CLASS_PRODUCERS: u32 = 16;

pub async fn run(
    bench: &mut Bench<'_, '_>,
    args: &cli::Latency,
    case: Case,
) -> Result<(), BenchError> {
    match case {
        Case::Small => small(bench, args).await,
        Case::SmallExpress => small_express(bench, args).await,
        Case::SmallStalls => small_stalls(bench, args).await,
        Case::Large => large(bench, args, Case::Large).await,
        Case::LargeExpress => large(bench, args, Case::LargeExpress).await,
        Case::Rate => rate(bench, args).await,
        Case::RateStalls => rate_stalls(bench, args).await,
        Case::Throughput => throughput(bench, args).await,
        Case::Connections => connections(bench, args).await,
        Case::InFlight => in_flight(bench, args).await,
        Case::Classes => classes(bench, args).await,
        Case::Local => local(bench, args).await,
        Case::LocalOs => local_os(bench, args).await,
        Case::Faults => faults(bench, args).await,
    }
}

fn s3(bench: &Bench<'_, '_>) -> ModelOptions {
    StoreKind::profile(Profile::S3, bench.started)
}

fn express(bench: &Bench<'_, '_>) -> ModelOptions {
    StoreKind::profile(Profile::EXPRESS, bench.started)
}

/// A model for a broker with much in memory, all of it touched beforehand.
fn warmed(store: ModelOptions) -> ModelOptions {
    ModelOptions {
        warm_mib: store.warm_mib.max(WARM_MIB),
        discard_kib: DISCARD_KIB,
        ..store
    }
}

async fn small(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let case = Case::Small;
    let store = StoreKind::Model(s3(bench));
    let (broker, place) = bench.broker(&store, &[LOW]).await?;
    for size in [Size::KB1, Size::KB4] {
        let got = sizes::measure(bench, (&broker, &place), size, args.count).await?;
        let name = size.name;
        bench.verdict(
            case,
            &format!("{name} p50/raw"),
            got.ratio(0.5),
            Bar::Most(1.05),
        )?;
        if name == Size::KB1.name {
            bench.verdict(case, "1 KB p99/raw", got.ratio(0.99), Bar::Most(1.10))?;
        }
        bench.intact(case, &got.outcome)?;
    }
    broker.stop().await
}

async fn small_express(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let case = Case::SmallExpress;
    let store = StoreKind::Model(express(bench));
    let (broker, place) = bench.broker(&store, &[LOW]).await?;
    let got = sizes::measure(bench, (&broker, &place), Size::KB1, args.count).await?;
    bench.verdict(case, "1 KB p50/raw", got.ratio(0.5), Bar::Most(1.10))?;
    bench.intact(case, &got.outcome)?;
    broker.stop().await
}

async fn small_stalls(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let case = Case::SmallStalls;
    let store = StoreKind::Model(stalling(s3(bench), STALLED));
    let (broker, place) = bench.broker(&store, &[LOW]).await?;
    let got = sizes::measure(bench, (&broker, &place), Size::KB1, args.count).await?;
    bench.verdict(
        case,
        "1 KB p99/raw p50",
        got.to_median(0.99),
        Bar::Most(3.3),
    )?;
    let extra = got.extra_percent().unwrap_or(f64::NAN);
    bench.verdict(case, "extra PUTs %", extra, Bar::Most(5.5))?;
    bench.intact(case, &got.outcome)?;
    broker.stop().await
}

async fn large(
    bench: &mut Bench<'_, '_>,
    args: &cli::Latency,
    case: Case,
) -> Result<(), BenchError> {
    let (store, bars) = if case == Case::Large {
        (s3(bench), [Some(0.52), Some(0.72), Some(0.90)])
    } else {
        (express(bench), [Some(0.42), None, Some(0.55)])
    };
    let store = warmed(store);
    let (broker, place) = bench.broker(&StoreKind::Model(store), &[LOW]).await?;
    let count = args.large_count;
    let got = sizes::measure(bench, (&broker, &place), Size::MB4, count).await?;
    for (quantile, bar) in [0.5, 0.95, 0.99].into_iter().zip(bars) {
        if let Some(bar) = bar {
            let figure = format!("p{:.0}/raw p50", quantile * 100.0);
            let value = got.to_median(quantile);
            bench.verdict(case, &figure, value, Bar::Most(bar))?;
            let figure = format!("{figure}, nothing stolen");
            let value = got.undisturbed_to_median(quantile);
            bench.verdict(case, &figure, value, Bar::Most(bar))?;
        }
    }
    bench.intact(case, &got.outcome)?;
    broker.stop().await
}

/// Median and 99th percentile of an open loop, with their bars in milliseconds.
fn quantiles(
    bench: &mut Bench<'_, '_>,
    case: Case,
    latency: &Latency,
    (p50, p99): (f64, f64),
) -> Result<(), BenchError> {
    bench.verdict(case, "p50 ms", latency.quantile_ms(0.5), Bar::Most(p50))?;
    bench.verdict(case, "p99 ms", latency.quantile_ms(0.99), Bar::Most(p99))
}

fn extra(bench: &mut Bench<'_, '_>, case: Case, rated: &Rated) -> Result<(), BenchError> {
    let extra = extra_percent(&rated.usage).unwrap_or(f64::NAN);
    bench.verdict(case, "extra PUTs %", extra, Bar::Most(5.5))
}

async fn rate(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let case = Case::Rate;
    let store = StoreKind::Model(warmed(s3(bench)));
    let load = loads::twenty_mb(args.seconds);
    let (broker, _place) = bench.broker(&store, &[LOW]).await?;
    let alone = loads::rate(bench, &broker, &load, None, "20 MB/s").await?;
    quantiles(bench, case, &alone.outcome.latency, (29.0, 56.0))?;
    bench.verdict(case, "PUTs/s", alone.puts_per_second(), Bar::Most(215.0))?;
    bench.intact(case, &alone.outcome)?;
    let bulk = loads::bulk(args.seconds);
    let with = loads::rate(bench, &broker, &load, Some(&bulk), "20 MB/s and bulk").await?;
    for (quantile, bar) in [(0.5, 1.05), (0.99, 1.10)] {
        let of = |rated: &Rated| rated.outcome.latency.quantile_ms(quantile);
        let figure = format!("p{:.0} with bulk beside it", quantile * 100.0);
        bench.verdict(case, &figure, of(&with) / of(&alone), Bar::Most(bar))?;
    }
    bench.intact(case, &with.outcome)?;
    broker.stop().await
}

async fn rate_stalls(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let case = Case::RateStalls;
    let store = StoreKind::Model(warmed(stalling(s3(bench), STALLED)));
    let (broker, _place) = bench.broker(&store, &[LOW]).await?;
    let load = loads::twenty_mb(args.seconds);
    let got = loads::rate(bench, &broker, &load, None, "20 MB/s, stalls").await?;
    quantiles(bench, case, &got.outcome.latency, (31.0, 80.0))?;
    extra(bench, case, &got)?;
    bench.intact(case, &got.outcome)?;
    broker.stop().await
}

async fn throughput(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let store = StoreKind::Model(s3(bench));
    let (broker, _place) = bench.broker(&store, &[LOW]).await?;
    let how = Closed {
        producers: 4,
        in_flight: 5,
        partitions: 8,
        batch_records: 100,
    };
    let (outcome, _) = loads::closed(bench, &broker, how, args.seconds).await?;
    let rate = outcome.mb_per_second();
    bench.verdict(Case::Throughput, "MB/s", rate, Bar::Least(45.0))?;
    broker.stop().await
}

async fn connections(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let case = Case::Connections;
    let store = StoreKind::Model(s3(bench));
    let (broker, _place) = bench.broker(&store, &[LOW]).await?;
    let how = Closed {
        producers: 64,
        in_flight: 1,
        partitions: 64,
        batch_records: 1,
    };
    let (outcome, usage) = loads::closed(bench, &broker, how, args.seconds).await?;
    let rate = outcome.records as f64 / outcome.elapsed.as_secs_f64();
    bench.verdict(case, "records/s", rate, Bar::Least(2_000.0))?;
    let cpu = usage.cpu.map_or(f64::NAN, |cpu| cpu.as_secs_f64());
    let each = cpu * 1e3 / outcome.records as f64;
    bench.verdict(case, "broker CPU ms a record", each, Bar::Most(0.24))?;
    broker.stop().await
}

async fn in_flight(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let store = StoreKind::Model(s3(bench));
    let (broker, _place) = bench.broker(&store, &[LOW]).await?;
    let mut rates = Vec::new();
    for in_flight in [1, 16] {
        let how = Closed {
            producers: 1,
            in_flight,
            partitions: 1,
            batch_records: 1,
        };
        let (outcome, _) = loads::closed(bench, &broker, how, args.seconds / 2.0).await?;
        rates.push(outcome.records as f64 / outcome.elapsed.as_secs_f64());
    }
    let ratio = rates[1] / rates[0];
    bench.verdict(Case::InFlight, "16 in flight / 1", ratio, Bar::Least(10.0))?;
    broker.stop().await
}

async fn classes(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let case = Case::Classes;
    let load = loads::small(1.0, CLASS_PRODUCERS, args.seconds);
    for (class, puts) in [("low", 210.0), ("balanced", 21.0), ("economy", 4.5)] {
        let store = StoreKind::Model(s3(bench));
        let set = format!("tidemill.latency={class}");
        let (broker, _place) = bench.broker(&store, &[&set]).await?;
        let got = loads::rate(bench, &broker, &load, None, class).await?;
        let figure = format!("{class} PUTs/s");
        bench.verdict(case, &figure, got.puts_per_second(), Bar::Most(puts))?;
        if class == "low" {
            let p50 = got.outcome.latency.quantile_ms(0.5);
            bench.verdict(case, "low p50 ms", p50, Bar::Most(28.0))?;
        }
        bench.intact(case, &got.outcome)?;
        broker.stop().await?;
    }
    Ok(())
}

async fn local(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let case = Case::Local;
    let store = StoreKind::Directory(LocalSync::Always);
    let (broker, place) = bench.broker(&store, &[]).await?;
    let got = sizes::measure(bench, (&broker, &place), Size::KB1, args.count).await?;
    bench.verdict(case, "1 KB p50/raw", got.ratio(0.5), Bar::Most(1.5))?;
    bench.intact(case, &got.outcome)?;
    broker.stop().await
}

/// Rounds in which the two sides take turns.
const TURNS: u64 = 6;
/// A JVM compiles what it runs often.
const JVM_WARMUP: u64 = 3_000;

async fn local_os(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let case = Case::LocalOs;
    let libs = kafka::libs(args.kafka_libs.clone())?;
    let failed = BenchError::io(format!("`{}`", libs.display()));
    let libs = std::fs::canonicalize(&libs).map_err(failed)?;
    let dir = bench.dir.join("kafka");
    std::fs::create_dir_all(&dir).map_err(BenchError::io(format!("`{}`", dir.display())))?;
    let port = bench.started.port + super::PORTS_ALL;
    let mut theirs = kafka::start(&libs, &dir, port, bench.runtime)?;
    theirs.answers().await?;
    let store = StoreKind::Directory(LocalSync::Os);
    let (ours, _place) = bench.broker(&store, &[]).await?;
    let sides: [&Child; 2] = [&ours, &theirs];
    let mut latencies = [Latency::default(), Latency::default()];
    for turn in 0..TURNS {
        for (side, latency) in sides.iter().zip(&mut latencies) {
            side.target.create_topic("os", 1, &[]).await?;
            let load = E2eLoad {
                topic: "os".to_owned(),
                shape: Size::KB1.shape,
                count: args.count / TURNS,
                warmup: if turn == 0 { JVM_WARMUP } else { 100 },
                raw: None,
                seed: turn,
            };
            let outcome = load::e2e(&side.target, &load).await?;
            bench.intact(case, &outcome)?;
            latency.merge(&outcome.latency);
        }
    }
    let names = ["tidemill os", "kafka"];
    let row = |(name, latency): (&str, &Latency)| {
        let row = crate::report::Row::new("e2e").text("side", name);
        latency.describe("", row)
    };
    let rows: Vec<_> = names.into_iter().zip(&latencies).map(row).collect();
    bench.out.rows(&rows)?;
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        let [ours, theirs] = [0, 1].map(|side: usize| latencies[side].quantile_ms(quantile));
        let figure = format!("1 KB {name}/kafka");
        bench.verdict(case, &figure, ours / theirs, Bar::Most(0.5))?;
    }
    ours.stop().await?;
    theirs.stop().await
}

async fn faults(bench: &mut Bench<'_, '_>, args: &cli::Latency) -> Result<(), BenchError> {
    let options = ModelOptions {
        errors: FAULTY,
        lost: FAULTY,
        ..stalling(s3(bench), FAULTY)
    };
    let (broker, _place) = bench.broker(&StoreKind::Model(options), &[LOW]).await?;
    let load = loads::small(2.0, CLASS_PRODUCERS, args.seconds);
    let bulk = loads::bulk(args.seconds);
    let got = loads::rate(bench, &broker, &load, Some(&bulk), "faults").await?;
    bench.intact(Case::Faults, &got.outcome)?;
    broker.stop().await
}
