//! Apache Kafka and Tidemill side by side: started here, taking turns, both warm.

mod scenarios;
mod summary;
mod warm;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tidemill_runtime::Runtime;

use crate::{
    brokers::{Child, kafka, tidemill, tidemill::Launch},
    cli,
    commands::Output,
    error::BenchError,
    report::Row,
};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// The disk alone: synced put-if-absent.
    Disk,
    /// From start on an empty directory to the first acknowledged record.
    First,
    /// Memory of a broker that has nothing to do.
    Idle,
    /// Memory with 5,000 idle partitions.
    Partitions,
    /// Produce throughput; Tidemill synced, and with `local.sync = os`.
    Produce,
    /// Consume from the start after a restart, with what `produce` wrote, page cache warm.
    Consume,
    /// One 1 KiB message at a time from sender to consumer.
    E2e,
    /// Tidemill after SIGKILL with all it was sent in its WAL alone: until it answers again.
    Replay,
    /// Tidemill with a trickle of data on each of 10,000 partitions: PUTs a roll round.
    Trickle,
}

impl Scenario {
    const ALL: [Self; 9] = [
        Self::Disk,
        Self::First,
        Self::Idle,
        Self::Partitions,
        Self::Produce,
        Self::Consume,
        Self::E2e,
        Self::Replay,
        Self::Trickle,
    ];

    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::First => "first produce",
            Self::Idle => "idle",
            Self::Partitions => "5,000 partitions",
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::E2e => "e2e",
            Self::Replay => "replay",
            Self::Trickle => "trickle",
        }
    }
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Apache Kafka with its defaults: not synced.
    Kafka,
    /// Tidemill, every acknowledged byte synced.
    Synced,
    /// Tidemill with `local.sync = os`, as durable as Kafka.
    Os,
}

impl Side {
    const ALL: [Self; 3] = [Self::Kafka, Self::Synced, Self::Os];

    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Synced => "tidemill",
            Self::Os => "tidemill os",
        }
    }

    /// Ports a side may use, from its first.
    const PORTS: u16 = 10;

    fn port(self, first: u16) -> u16 {
        first + self as u16 * Self::PORTS
    }
}

/// What every scenario needs.
pub(crate) struct Bench<'a, 'b> {
    args: &'a cli::Compare,
    dir: PathBuf,
    kafka_libs: PathBuf,
    runtime: &'a Runtime,
    out: &'a mut Output<'b>,
    rows: Vec<Row>,
}

impl Bench<'_, '_> {
    /// Where a side keeps its data.
    fn data(&self, side: Side) -> PathBuf {
        self.dir.join(side.name().replace(' ', "-"))
    }

    /// Starts a side on the data it has.
    async fn start(&self, side: Side) -> Result<Child, BenchError> {
        self.start_with(side, &[]).await
    }

    /// The same, Tidemill with these settings (`key=value`).
    async fn start_with(&self, side: Side, settings: &[&str]) -> Result<Child, BenchError> {
        let (dir, port) = (self.data(side), side.port(self.args.port));
        let sync = match side {
            Side::Kafka => return kafka::start(&self.kafka_libs, &dir, port, self.runtime),
            Side::Synced => "local.sync=always",
            Side::Os => "local.sync=os",
        };
        let launch = Launch {
            data: format!("file:{}", dir.join("data").display()),
            sets: [&[sync], settings]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            ..Launch::default()
        };
        tidemill::start(&self.args.tidemill, &dir, port, &launch, self.runtime)
    }

    /// Removes a side's data.
    fn clear(&self, side: Side) -> Result<(), BenchError> {
        let dir = self.data(side);
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(BenchError::io(format!("`{}`", dir.display())))?;
        }
        fs::create_dir_all(&dir).map_err(BenchError::io(format!("`{}`", dir.display())))
    }

    /// Waits until what was written is on the disk, so that no side pays for another.
    async fn settle(&self) -> Result<(), BenchError> {
        let work = || Command::new("sync").status();
        let synced = self.runtime.tasks.blocking("bench-sync", work).await?;
        synced.map(drop).map_err(BenchError::io("sync"))
    }

    /// Reads a side's files through the page cache; returns their bytes.
    async fn warm(&self, side: Side) -> Result<u64, BenchError> {
        let dir = self.data(side).join("data");
        let work = move || warm::warm(&dir);
        self.runtime.tasks.blocking("bench-warm", work).await?
    }

    fn push(&mut self, row: Row) -> Result<(), BenchError> {
        self.out.say(&row.json())?;
        self.out.json(std::slice::from_ref(&row))?;
        self.rows.push(row);
        Ok(())
    }
}

/// Runs the scenarios and prints medians and ratios.
///
/// # Errors
/// A broker does not start, or a measurement fails; the brokers are stopped.
pub async fn run(
    mut args: cli::Compare,
    runtime: &Runtime,
    out: &mut Output<'_>,
) -> Result<(), BenchError> {
    // Brokers run in their own folders.
    let absolute = |path: &Path| {
        fs::canonicalize(path).map_err(BenchError::io(format!("`{}`", path.display())))
    };
    args.tidemill = absolute(&args.tidemill)?;
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = base.join(format!(
        "tidemill-compare-{:08x}",
        runtime.entropy.next_u64() as u32
    ));
    fs::create_dir_all(&dir).map_err(BenchError::io(format!("`{}`", dir.display())))?;
    let dir = absolute(&dir)?;
    let measured = measure(&args, &dir, runtime, out).await;
    if !args.keep {
        // What was measured stands even if some of it stays behind.
        let _ = fs::remove_dir_all(&dir);
    }
    measured
}

async fn measure(
    args: &cli::Compare,
    dir: &Path,
    runtime: &Runtime,
    out: &mut Output<'_>,
) -> Result<(), BenchError> {
    let kafka_libs = kafka::libs(args.kafka_libs.clone())?;
    let failed = BenchError::io(format!("`{}`", kafka_libs.display()));
    let kafka_libs = fs::canonicalize(&kafka_libs).map_err(failed)?;
    let mut bench = Bench {
        args,
        dir: dir.to_owned(),
        kafka_libs,
        runtime,
        out,
        rows: Vec::new(),
    };
    let chosen = |scenario: &Scenario| args.only.is_empty() || args.only.contains(scenario);
    for scenario in Scenario::ALL.into_iter().filter(chosen) {
        bench.out.say(&format!("# {}", scenario.name()))?;
        scenarios::run(&mut bench, scenario).await?;
    }
    let medians = summary::medians(&bench.rows);
    bench.out.rows(&medians)?;
    if let Some(path) = &args.svg {
        let picture = summary::picture(&medians);
        let failed = BenchError::io(format!("`{}`", path.display()));
        fs::write(path, picture).map_err(failed)?;
    }
    Ok(())
}
