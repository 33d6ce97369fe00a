//! One message at a time, beside raw PUTs of the same bytes: the story's own benchmark.

use tidemill_runtime::Runtime;

use super::{
    Bench,
    place::{Place, StoreKind},
    stages::{Stage, stages, wal_objects},
    with_bench,
};
use crate::{
    brokers::Child,
    cli,
    commands::Output,
    error::BenchError,
    load::{self, E2eLoad, E2eOutcome, Shape},
    probe::Usage,
    report::Row,
};

/// Messages not measured at first: more than the broker needs to know its store, which is 200 PUTs,
/// four of them a large message until then.
const WARMUP: u64 = 300;
const LARGE_WARMUP: u64 = 80;

/// What is sent at a time.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// For people.
    pub name: &'static str,
    /// One batch.
    pub shape: Shape,
}

impl Size {
    /// One record.
    const fn record(name: &'static str, record_bytes: usize) -> Self {
        let batch_records = 1;
        let shape = Shape {
            record_bytes,
            batch_records,
        };
        Self { name, shape }
    }

    /// 1 KB.
    pub const KB1: Self = Self::record("1 KB", 1 << 10);
    /// 4 KB.
    pub const KB4: Self = Self::record("4 KB", 4 << 10);
    /// 64 KB.
    pub const KB64: Self = Self::record("64 KB", 64 << 10);
    /// 1000 records of 4 KB as one batch.
    pub const MB4: Self = Self {
        name: "1000 x 4 KB",
        shape: Shape {
            record_bytes: 4 << 10,
            batch_records: 1_000,
        },
    };

    /// True if it is cut into fragments on a bucket.
    pub const fn is_large(self) -> bool {
        self.shape.batch_records > 1
    }
}

/// One size, measured.
pub struct Measured {
    pub size: Size,
    pub outcome: E2eOutcome,
    pub usage: Usage,
    pub stages: Vec<Stage>,
}

impl Measured {
    /// A quantile to the raw PUT's own.
    pub fn ratio(&self, quantile: f64) -> f64 {
        let outcome = &self.outcome;
        outcome.latency.quantile_ms(quantile) / outcome.raw.quantile_ms(quantile)
    }

    /// A quantile to the raw PUT's median.
    pub fn to_median(&self, quantile: f64) -> f64 {
        self.outcome.latency.quantile_ms(quantile) / self.outcome.raw.quantile_ms(0.5)
    }

    /// The same of the messages from which no CPU was stolen.
    pub fn undisturbed_to_median(&self, quantile: f64) -> f64 {
        self.outcome.undisturbed.quantile_ms(quantile) / self.outcome.raw.quantile_ms(0.5)
    }

    /// Extra PUTs, percent of the others.
    pub fn extra_percent(&self) -> Option<f64> {
        extra_percent(&self.usage)
    }

    /// The broker, what of it nobody disturbed, and the raw PUTs beside it.
    pub fn rows(&self) -> [Row; 3] {
        let outcome = &self.outcome;
        let base = |what: &str| {
            Row::new("e2e")
                .text("size", self.size.name)
                .text("what", what)
        };
        let measured = base("send to consumer").count("n", outcome.latency.count());
        let per_message = |count: Option<u64>| {
            let messages = outcome.sent.max(1) as f64;
            count.map(|count| count as f64 / messages)
        };
        let measured = outcome
            .latency
            .describe("", measured)
            .measure("p50/raw", self.ratio(0.5))
            .measure("p95/raw", self.ratio(0.95))
            .measure("p99/raw", self.ratio(0.99))
            .measure("p50/raw p50", self.to_median(0.5))
            .measure("p95/raw p50", self.to_median(0.95))
            .measure("p99/raw p50", self.to_median(0.99))
            .maybe("PUTs/message", per_message(self.usage.puts))
            .maybe("extra PUTs %", self.extra_percent())
            .maybe(
                "stolen_s",
                self.usage.stolen.map(|stolen| stolen.as_secs_f64()),
            )
            .count("lost", outcome.lost)
            .count("doubled", outcome.doubled)
            .count("reordered", outcome.reordered);
        let quiet = &outcome.undisturbed;
        let undisturbed = base("of these, nothing stolen").count("n", quiet.count());
        let undisturbed = quiet.describe("", undisturbed);
        let raw = base("raw put").count("n", outcome.raw.count());
        [measured, undisturbed, outcome.raw.describe("", raw)]
    }
}

/// Second PUTs of slow ones, percent of the first.
pub fn extra_percent(usage: &Usage) -> Option<f64> {
    let (puts, hedges) = (usage.puts?, usage.hedges?);
    Some(hedges as f64 * 100.0 / puts.saturating_sub(hedges).max(1) as f64)
}

/// Room for the message, should it be larger than Kafka's default of 1 MiB.
pub fn largest_message(shape: Shape) -> String {
    let bytes = shape.record_bytes * shape.batch_records * 2;
    bytes.max(2 << 20).to_string()
}

/// Measures one size on a broker that is up.
pub async fn measure(
    bench: &mut Bench<'_, '_>,
    (broker, place): (&Child, &Place),
    size: Size,
    count: u64,
) -> Result<Measured, BenchError> {
    let topic = format!("e2e-{}", size.name.replace(' ', "-"));
    let largest = largest_message(size.shape);
    let configs = [("max.message.bytes", largest.as_str())];
    broker.target.create_topic(&topic, 1, &configs).await?;
    let load = E2eLoad {
        topic,
        shape: size.shape,
        count: 0,
        warmup: if size.is_large() {
            LARGE_WARMUP
        } else {
            WARMUP
        },
        raw: None,
        seed: 1,
    };
    load::e2e(&broker.target, &load).await?;
    let load = E2eLoad {
        count,
        warmup: 0,
        raw: Some(place.raw.clone()),
        ..load
    };
    let before = broker.probe.sample(bench.runtime).await?;
    // The warm-up drew delays on one side only: noise of several percent in the median of 1,000.
    place.catch_up(wal_objects(&before));
    let outcome = load::e2e(&broker.target, &load).await?;
    let after = broker.probe.sample(bench.runtime).await?;
    let measured = Measured {
        size,
        outcome,
        usage: before.until(&after),
        stages: stages(&before, &after),
    };
    bench.out.rows(&measured.rows())?;
    if bench.show_stages {
        let rows: Vec<_> = measured
            .stages
            .iter()
            .map(|stage| stage.row(size.name))
            .collect();
        bench.out.rows(&rows)?;
    }
    Ok(measured)
}

/// `e2e --store`: every size on one store.
///
/// # Errors
/// The broker does not start, or a measurement fails.
pub async fn sizes(
    store: &str,
    args: cli::E2e,
    runtime: &Runtime,
    out: &mut Output<'_>,
) -> Result<(), BenchError> {
    let show = args.stages;
    with_bench(&args.started, show, runtime, out, async |bench| {
        let kind = StoreKind::named(store, &args.started)?;
        let (broker, place) = bench.broker(&kind, &["tidemill.latency=low"]).await?;
        bench.out.say(&format!("# store {}", place.launch.data))?;
        let mut rows = Vec::new();
        for size in [Size::KB1, Size::KB4, Size::KB64, Size::MB4] {
            let count = if size.is_large() {
                args.large_count
            } else {
                args.count
            };
            let measured = measure(bench, (&broker, &place), size, count).await?;
            rows.extend(measured.rows());
        }
        broker.stop().await
    })
    .await
}
