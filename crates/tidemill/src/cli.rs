//! The command line.

use clap::{Args, Parser, Subcommand};

/// A Kafka-compatible log on object storage.
///
/// Without a command, `tidemill` serves: it starts a broker on 127.0.0.1:9092 with its data in
/// `./tidemill-data`, and prints where to connect.
#[derive(Debug, Parser)]
#[command(name = "tidemill", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; `serve` if left out.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Settings of `serve`, for use without naming it.
    #[command(flatten)]
    pub serve: Serve,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a broker and run until SIGTERM or SIGINT.
    Serve(Serve),
    /// List, create, describe, alter or delete topics.
    Topic {
        /// Broker to ask.
        #[command(flatten)]
        to: Bootstrap,
        /// What to do.
        #[command(subcommand)]
        action: Topic,
    },
    /// Produce records from standard input, one a line.
    Produce(Produce),
    /// Consume records to standard output.
    Consume(Consume),
    /// List, describe or delete consumer groups.
    Group {
        /// Broker to ask.
        #[command(flatten)]
        to: Bootstrap,
        /// What to do.
        #[command(subcommand)]
        action: Group,
    },
    /// Print a stored object, or list stored objects.
    Inspect(Inspect),
    /// Prove a data directory or bucket sound. Runs beside a live broker too.
    ///
    /// Exit status: 0 sound, 1 sound but with garbage, 2 damaged, 3 could not be checked.
    Fsck(Fsck),
    /// Measure this or any other Kafka broker.
    #[cfg(feature = "bench")]
    Bench(BenchArgs),
}

/// Where the data lies.
#[derive(Clone, Debug, Args)]
pub struct Data {
    /// Data: `file:DIR`, `memory:`, `s3://bucket/prefix`, `gs://bucket/prefix`,
    /// `az://container/prefix`.
    ///
    /// Keys and endpoint of a bucket come from the usual variables (`AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`, `GOOGLE_*`, `AZURE_*`).
    #[arg(long, value_name = "URL")]
    pub data: Option<String>,
}

/// Settings of the broker.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// Address to listen on; sets `listeners`. Default 127.0.0.1:9092.
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Where the data lies.
    #[command(flatten)]
    pub data: Data,
    /// Any setting, Kafka's names for Kafka's settings. May be repeated.
    ///
    /// Order: this flag, then the environment (`TIDEMILL_` and the key in capitals, dots as
    /// underscores), then the configuration file, then the default.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Configuration file; `./tidemill.toml` is read if it exists and none is named.
    #[arg(long, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    /// Print every setting with its value, source and meaning, and exit.
    #[arg(long)]
    pub print_config: bool,
    /// Log lines as JSON.
    #[arg(long)]
    pub log_json: bool,
}

/// Which broker to talk to.
#[derive(Clone, Debug, Args)]
pub struct Bootstrap {
    /// Broker to connect to.
    #[arg(
        long,
        short = 'b',
        value_name = "HOST:PORT",
        env = "TIDEMILL_BOOTSTRAP",
        default_value = "127.0.0.1:9092",
        global = true
    )]
    pub broker: String,
    /// Seconds that one answer may take before the command gives up.
    ///
    /// A broker whose store cannot be reached is silent rather than wrong.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        global = true
    )]
    pub timeout: u64,
}

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub enum Topic {
    /// Names and partition counts.
    List {
        /// Internal topics too.
        #[arg(long)]
        internal: bool,
    },
    /// Create a topic.
    Create {
        /// Its name.
        name: String,
        /// Number of partitions; the broker's `num.partitions` if left out.
        #[arg(long, short)]
        partitions: Option<i32>,
        /// A topic setting. May be repeated.
        #[arg(long = "config", short = 'c', value_name = "KEY=VALUE")]
        configs: Vec<String>,
    },
    /// Partitions, offsets and settings of a topic.
    Describe {
        /// Its name.
        name: String,
    },
    /// Change settings; an empty value goes back to the default.
    Alter {
        /// Its name.
        name: String,
        /// A topic setting. May be repeated.
        #[arg(
            long = "config",
            short = 'c',
            value_name = "KEY=VALUE",
            required = true
        )]
        configs: Vec<String>,
    },
    /// Raise the number of partitions.
    Grow {
        /// Its name.
        name: String,
        /// The new number.
        partitions: i32,
    },
    /// Delete a topic and its data.
    Delete {
        /// Its name.
        name: String,
    },
}

/// Producing from standard input.
#[derive(Debug, Args)]
pub struct Produce {
    /// Broker to ask.
    #[command(flatten)]
    pub to: Bootstrap,
    /// The topic.
    pub topic: String,
    /// Partition; by key or in turn if left out.
    #[arg(long, short)]
    pub partition: Option<i32>,
    /// What separates key and value in a line; without it, a line is a value without key.
    #[arg(long, short = 'K')]
    pub key_separator: Option<String>,
    /// How to compress the batches.
    #[arg(
        long,
        default_value = "none",
        value_parser = ["none", "gzip", "snappy", "lz4", "zstd"]
    )]
    pub compression: String,
}

/// Consuming to standard output.
#[derive(Debug, Args)]
pub struct Consume {
    /// Broker to ask.
    #[command(flatten)]
    pub to: Bootstrap,
    /// The topic.
    pub topic: String,
    /// Partition; all if left out.
    #[arg(long, short)]
    pub partition: Option<i32>,
    /// Where to begin: `beginning`, `end`, an offset, or `@` and Unix milliseconds.
    #[arg(long, short, default_value = "beginning")]
    pub offset: String,
    /// End at the present end instead of waiting for more.
    #[arg(long, short)]
    pub exit: bool,
    /// End after so many records.
    #[arg(long, short)]
    pub count: Option<u64>,
    /// Print partition, offset, timestamp, key and headers too.
    #[arg(long, short)]
    pub verbose: bool,
}

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub enum Group {
    /// Ids and states.
    List,
    /// Members, committed offsets and lag.
    Describe {
        /// The group's id.
        id: String,
    },
    /// Delete a group that has no members.
    Delete {
        /// The group's id.
        id: String,
    },
}

/// Looking at stored objects.
#[derive(Debug, Args)]
pub struct Inspect {
    /// Where the data lies.
    #[command(flatten)]
    pub data: Data,
    /// A key, or a prefix ending in `/` to list; everything if left out.
    pub key: Option<String>,
}

/// Proving data sound.
#[derive(Debug, Args)]
pub struct Fsck {
    /// Where the data lies.
    #[command(flatten)]
    pub data: Data,
    /// Read and check every byte, not headers and directories alone.
    #[arg(long)]
    pub deep: bool,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of the benchmarks.
#[cfg(feature = "bench")]
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Handed to the benchmarks' own command line; `tidemill bench help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}
