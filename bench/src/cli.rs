//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, value_parser};

use crate::{compare::Scenario, latency::Case, load::Check};

/// Measure Tidemill and any other Kafka broker.
#[derive(Debug, Parser)]
#[command(name = "tidemill-bench", version)]
pub struct Cli {
    /// What to measure.
    #[command(subcommand)]
    pub command: Command,
    /// Append every row of results to this file too, one JSON object a line.
    #[arg(long, value_name = "FILE", global = true)]
    pub json: Option<PathBuf>,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Produce as fast as answers come, or at a rate.
    Produce(Produce),
    /// Read a topic from its start to its present end.
    Consume(Consume),
    /// Latency from a send to its consumer: one message at a time, or at a rate.
    E2e(E2e),
    /// Every bar of produce to consume, against raw PUTs in the same run; brokers are started here.
    Latency(Latency),
    /// Serve S3 from memory, as slowly as a model says.
    S3(S3),
    /// Synced put-if-absent of objects into a directory: what the disk gives.
    Disk(Disk),
    /// Apache Kafka and Tidemill side by side on this machine, started by this command.
    Compare(Compare),
}

/// Which broker, and where to look at it.
#[derive(Clone, Debug, Args)]
pub struct Broker {
    /// The broker.
    #[arg(
        long,
        short,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9092"
    )]
    pub broker: String,
    /// Its process, for CPU and memory; whoever listens on its port here if left out.
    #[arg(long)]
    pub pid: Option<u32>,
    /// Tidemill's admin endpoint, for object requests.
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,
}

/// The topic.
#[derive(Clone, Debug, Args)]
pub struct Topic {
    /// Its name.
    #[arg(long, default_value = "bench")]
    pub topic: String,
    /// Its partitions.
    #[arg(long, default_value_t = 8)]
    pub partitions: i32,
}

/// Sizes of records and batches.
#[derive(Clone, Copy, Debug, Args)]
pub struct Sizes {
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: usize,
    /// Records in a batch; a request carries one.
    #[arg(long, default_value_t = 100)]
    pub batch_records: usize,
}

/// Producing.
#[derive(Clone, Debug, Args)]
pub struct Produce {
    /// The broker.
    #[command(flatten)]
    pub broker: Broker,
    /// The topic; created if need be.
    #[command(flatten)]
    pub topic: Topic,
    /// What is sent.
    #[command(flatten)]
    pub sizes: Sizes,
    /// Connections.
    #[arg(long, default_value_t = 4)]
    pub producers: usize,
    /// Requests in flight on each.
    #[arg(long, default_value_t = 5)]
    pub in_flight: usize,
    /// Records to send.
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
    /// Records sent before, not measured.
    #[arg(long, default_value_t = 100_000)]
    pub warmup: u64,
    /// Send for so many seconds instead of a number of records.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Open loop: records a second of all producers; latency counts from the intended time.
    #[arg(long)]
    pub rate: Option<f64>,
    /// -1 (all) or 1.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub acks: i16,
    /// Seed of the payload.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Consuming.
#[derive(Clone, Debug, Args)]
pub struct Consume {
    /// The broker.
    #[command(flatten)]
    pub broker: Broker,
    /// The topic.
    #[command(flatten)]
    pub topic: Topic,
    /// Connections, the partitions dealt among them.
    #[arg(long, default_value_t = 4)]
    pub connections: usize,
    /// Most bytes of an answer.
    #[arg(long, default_value_t = 50 << 20)]
    pub max_bytes: i32,
    /// Most bytes of a partition in it.
    #[arg(long, default_value_t = 1 << 20)]
    pub partition_max_bytes: i32,
    /// What is done with the bytes.
    #[arg(long, value_enum, default_value_t = Check::None)]
    pub check: Check,
    /// Read it so many times; a row for each.
    #[arg(long, default_value_t = 1)]
    pub rounds: u32,
}

/// End to end.
#[derive(Clone, Debug, Args)]
pub struct E2e {
    /// The broker.
    #[command(flatten)]
    pub broker: Broker,
    /// Start a broker on this store, measure 1 KB, 4 KB, 64 KB and 1000 x 4 KB one at a time,
    /// and put the same bytes raw into the same store after each: `s3`, `express` or `none`
    /// (models, or `model:s3?seed=7&stall=0.02`), `file:DIR`, or a bucket, `s3://BUCKET/PREFIX`.
    #[arg(long, value_name = "STORE", conflicts_with_all = ["raw", "rate", "metrics"])]
    pub store: Option<String>,
    /// With `--store`: messages of 4 MB measured.
    #[arg(long, default_value_t = 300)]
    pub large_count: u64,
    /// With `--store`: print where the broker spent the time, by stage.
    #[arg(long)]
    pub stages: bool,
    /// With `--store`: the broker.
    #[command(flatten)]
    pub started: Started,
    /// The topic; created if need be.
    #[arg(long, default_value = "bench-e2e")]
    pub topic: String,
    /// Its partitions; one message at a time uses the first.
    #[arg(long, default_value_t = 1)]
    pub partitions: i32,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: usize,
    /// Records in a message.
    #[arg(long, default_value_t = 1)]
    pub batch_records: usize,
    /// Messages measured, one at a time.
    #[arg(long, default_value_t = 3_000)]
    pub count: u64,
    /// Messages sent before, not measured.
    #[arg(long, default_value_t = 300)]
    pub warmup: u64,
    /// Put the same bytes raw into this store after each message (`file:DIR`, `s3://...`), and
    /// print the ratio.
    #[arg(long, value_name = "URL")]
    pub raw: Option<String>,
    /// Do not sync the raw directory (`local.sync = os`).
    #[arg(long)]
    pub raw_unsynced: bool,
    /// Open loop: messages a second of all producers.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Open loop: senders.
    #[arg(long, default_value_t = 4)]
    pub producers: u32,
    /// Open loop: consumers.
    #[arg(long, default_value_t = 1)]
    pub consumers: u32,
    /// Open loop: messages in flight on a connection; beyond it, sending is late.
    #[arg(long, default_value_t = 1_000)]
    pub in_flight: usize,
    /// Open loop: seconds measured.
    #[arg(long, default_value_t = 30.0)]
    pub seconds: f64,
    /// Open loop: seconds before, not measured.
    #[arg(long, default_value_t = 5.0)]
    pub warmup_seconds: f64,
    /// Seed of the payload.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Brokers to be started for a measurement.
#[derive(Clone, Debug, Args)]
pub struct Started {
    /// Tidemill's binary, built with `--features bench` if a model is its store; this program
    /// itself if it is Tidemill, else `target/release/tidemill`.
    #[arg(long)]
    pub tidemill: Option<PathBuf>,
    /// Folder for logs and local data, on the disk to be measured.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// First port; the next forty are used.
    #[arg(long, default_value_t = 29_192, value_parser = value_parser!(u16).range(1..=65_495))]
    pub port: u16,
    /// Serve models over HTTP as S3 instead of behind the store's interface. Broker, client and
    /// S3 server then share the machine.
    #[arg(long)]
    pub http: bool,
    /// Seed of the stores' delays, the same for broker and raw PUTs.
    #[arg(long, default_value_t = 7)]
    pub store_seed: u64,
    /// MiB that a model touches at its start, as memory that nobody has touched is slow.
    #[arg(long, default_value_t = 2_048)]
    pub warm_mib: usize,
    /// Keep data and logs.
    #[arg(long)]
    pub keep: bool,
}

/// The bars of produce to consume.
#[derive(Clone, Debug, Args)]
pub struct Latency {
    /// The brokers.
    #[command(flatten)]
    pub started: Started,
    /// Rows; all if left out.
    #[arg(long = "only", value_enum, value_delimiter = ',')]
    pub only: Vec<Case>,
    /// Small messages measured, one at a time.
    #[arg(long, default_value_t = 3_000)]
    pub count: u64,
    /// Messages of 4 MB measured.
    #[arg(long, default_value_t = 1_000)]
    pub large_count: u64,
    /// Seconds measured where there is a rate.
    #[arg(long, default_value_t = 30.0)]
    pub seconds: f64,
    /// Folder of Apache Kafka's jars; that of `ecosystem/suites/kafka-up.sh` if left out.
    #[arg(long)]
    pub kafka_libs: Option<PathBuf>,
    /// Print where the brokers spent the time, by stage.
    #[arg(long)]
    pub stages: bool,
}

/// An S3 server with a model's delays.
#[derive(Clone, Debug, Args)]
pub struct S3 {
    /// `s3`, `express` or `none`.
    #[arg(long, default_value = "s3")]
    pub profile: String,
    /// Seed of the delays.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:9500")]
    pub listen: SocketAddr,
    /// A bucket that exists. May be repeated.
    #[arg(long = "bucket", default_value = "bench")]
    pub buckets: Vec<String>,
    /// Share of requests that stall, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    pub stall_chance: f64,
    /// How much later those are answered.
    #[arg(long, default_value_t = 1_000)]
    pub stall_ms: u64,
}

/// The disk alone.
#[derive(Clone, Debug, Args)]
pub struct Disk {
    /// A directory on that disk; an empty one is made in it and removed.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Bytes of an object.
    #[arg(long, default_value_t = 1 << 20)]
    pub object_bytes: usize,
    /// Objects.
    #[arg(long, default_value_t = 512)]
    pub objects: u64,
    /// Objects written at the same time.
    #[arg(long, default_value_t = 4)]
    pub in_flight: usize,
    /// Do not sync (`local.sync = os`).
    #[arg(long)]
    pub unsynced: bool,
}

/// Side by side.
#[derive(Clone, Debug, Args)]
pub struct Compare {
    /// Tidemill's binary.
    #[arg(long, default_value = "target/release/tidemill")]
    pub tidemill: PathBuf,
    /// Folder of Apache Kafka's jars; that of `ecosystem/suites/kafka-up.sh` if left out.
    #[arg(long)]
    pub kafka_libs: Option<PathBuf>,
    /// Folder for the data of all brokers, on the disk to be measured.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Scenarios; all if left out.
    #[arg(long = "only", value_enum, value_delimiter = ',')]
    pub only: Vec<Scenario>,
    /// Rounds of each, the sides taking turns.
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// GiB written to each side by all rounds of `produce`, warm-up apart.
    #[arg(long, default_value_t = 3.0)]
    pub gib: f64,
    /// GiB written to each side before, not measured.
    #[arg(long, default_value_t = 0.5)]
    pub warmup_gib: f64,
    /// First port; the next thirty are used.
    #[arg(long, default_value_t = 29_092, value_parser = value_parser!(u16).range(1..=65_495))]
    pub port: u16,
    /// Seconds before an idle broker's memory is read.
    #[arg(long, default_value_t = 10)]
    pub idle_seconds: u64,
    /// Messages measured by `e2e`, one at a time.
    #[arg(long, default_value_t = 3_000)]
    pub e2e_count: u64,
    /// Keep the data and logs.
    #[arg(long)]
    pub keep: bool,
    /// Write the medians as a bar chart to this SVG file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
