//! Produce to consume against raw PUTs of the same bytes to the same store in the same run, and
//! every bar that it must hold.

mod cases;
mod loads;
mod place;
mod sizes;
mod stages;

use std::{fs, path::PathBuf};

use tidemill_runtime::Runtime;

use crate::{
    brokers::{Child, tidemill},
    cli,
    commands::Output,
    error::BenchError,
    report::Row,
};
pub use cases::Case;
use place::{Place, StoreKind};
pub use sizes::sizes;
pub use stages::{Stage, stages, wal_objects};

/// Ports a broker may use, from its first.
const PORTS: u16 = 4;
const PORTS_ALL: u16 = 40;

/// A bar: what a figure must not exceed, or must reach.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// At most this.
    Most(f64),
    /// At least this.
    Least(f64),
}

impl Bar {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Most(most) => value <= most,
            Self::Least(least) => value >= least,
        }
    }

    fn shown(self) -> String {
        match self {
            Self::Most(most) => format!("<= {most}"),
            Self::Least(least) => format!(">= {least}"),
        }
    }
}

/// What all cases share.
pub(crate) struct Bench<'a, 'b> {
    started: &'a cli::Started,
    binary: PathBuf,
    dir: PathBuf,
    runtime: &'a Runtime,
    out: &'a mut Output<'b>,
    brokers: u16,
    verdicts: Vec<Row>,
    show_stages: bool,
}

impl Bench<'_, '_> {
    /// Starts a broker on a store, with settings, and gives the place of raw PUTs beside it.
    async fn broker(
        &mut self,
        store: &StoreKind,
        sets: &[&str],
    ) -> Result<(Child, Place), BenchError> {
        let number = self.brokers;
        self.brokers += 1;
        let dir = self.dir.join(format!("broker-{number}"));
        fs::create_dir_all(&dir).map_err(BenchError::io(format!("`{}`", dir.display())))?;
        let mut place = Place::new(store, self.started, &dir, self.runtime).await?;
        place
            .launch
            .sets
            .extend(sets.iter().map(|set| (*set).to_owned()));
        let port = self.started.port + number * PORTS % PORTS_ALL;
        let mut broker = tidemill::start(&self.binary, &dir, port, &place.launch, self.runtime)?;
        if let Err(error) = broker.answers().await {
            let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(5).collect();
            return Err(BenchError::Failed(format!("{error}: {}", last.join(" | "))));
        }
        Ok((broker, place))
    }

    /// Notes a figure and whether it holds.
    fn verdict(
        &mut self,
        case: Case,
        figure: &str,
        value: f64,
        bar: Bar,
    ) -> Result<(), BenchError> {
        let row = Row::new(case.name())
            .text("figure", figure)
            .measure("value", value)
            .text("bar", bar.shown())
            .text("holds", if bar.holds(value) { "yes" } else { "NO" });
        self.out.json(std::slice::from_ref(&row))?;
        self.verdicts.push(row);
        Ok(())
    }

    /// Notes that nothing was lost, doubled or reordered.
    fn intact(&mut self, case: Case, out: &crate::load::E2eOutcome) -> Result<(), BenchError> {
        let wrong = out.lost + out.doubled + out.reordered;
        let figure = "lost, doubled or reordered";
        self.verdict(case, figure, wrong as f64, Bar::Most(0.0))
    }
}

/// Runs `measure` with a folder of its own, which is removed unless it is to be kept.
async fn with_bench<F>(
    started: &cli::Started,
    show_stages: bool,
    runtime: &Runtime,
    out: &mut Output<'_>,
    measure: F,
) -> Result<(), BenchError>
where
    F: AsyncFnOnce(&mut Bench<'_, '_>) -> Result<(), BenchError>,
{
    let base = started.dir.clone().unwrap_or_else(std::env::temp_dir);
    let name = format!("tidemill-latency-{:08x}", runtime.entropy.next_u64() as u32);
    let dir = base.join(name);
    let failed = || BenchError::io(format!("`{}`", dir.display()));
    fs::create_dir_all(&dir).map_err(failed())?;
    let dir = fs::canonicalize(&dir).map_err(failed())?;
    let mut bench = Bench {
        started,
        binary: binary(started)?,
        dir: dir.clone(),
        runtime,
        out,
        brokers: 0,
        verdicts: Vec::new(),
        show_stages,
    };
    let measured = measure(&mut bench).await;
    if started.keep {
        bench
            .out
            .say(&format!("# logs and data in {}", dir.display()))?;
    } else {
        // What was measured stands even if some of it stays behind.
        let _ = fs::remove_dir_all(&dir);
    }
    measured
}

/// The binary to be measured: as named, this program itself if it is Tidemill, or the usual place.
fn binary(started: &cli::Started) -> Result<PathBuf, BenchError> {
    let own = std::env::current_exe().ok();
    let is_tidemill = |path: &PathBuf| path.file_stem().is_some_and(|name| name == "tidemill");
    let named = started.tidemill.clone().or_else(|| own.filter(is_tidemill));
    let path = named.unwrap_or_else(|| PathBuf::from("target/release/tidemill"));
    let failed = BenchError::io(format!("`{}`", path.display()));
    fs::canonicalize(&path).map_err(failed)
}

/// Measures the rows that were asked for, and prints for each whether it holds.
///
/// # Errors
/// A broker does not start, or a measurement fails.
pub async fn run(
    args: cli::Latency,
    runtime: &Runtime,
    out: &mut Output<'_>,
) -> Result<(), BenchError> {
    let chosen = |case: &Case| args.only.is_empty() || args.only.contains(case);
    let show = args.stages;
    with_bench(&args.started, show, runtime, out, async |bench| {
        for case in Case::ALL.into_iter().filter(chosen) {
            bench.out.say(&format!("# {}", case.name()))?;
            cases::run(bench, &args, case).await?;
            let rows = std::mem::take(&mut bench.verdicts);
            crate::report::table(&rows, bench.out.writer()).map_err(BenchError::io("output"))?;
        }
        Ok(())
    })
    .await
}
