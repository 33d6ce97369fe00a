//! The commands.

mod disk;
mod load;
pub mod s3;

pub use load::e2e_rows;

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    pin::Pin,
};

use tidemill_runtime::Runtime;

use crate::{
    cli::{Cli, Command},
    compare,
    error::BenchError,
    latency,
    report::{self, Row},
};

/// Where results go.
pub struct Output<'a> {
    out: &'a mut dyn Write,
    json: Option<PathBuf>,
}

impl<'a> Output<'a> {
    /// Tables go to `out`, rows as JSON lines to the end of a file if one is named.
    pub fn new(out: &'a mut dyn Write, json: Option<&Path>) -> Self {
        Self {
            out,
            json: json.map(Path::to_owned),
        }
    }

    /// Prints rows as one table, and as JSON lines.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn rows(&mut self, rows: &[Row]) -> Result<(), BenchError> {
        report::table(rows, self.out).map_err(BenchError::io("output"))?;
        self.json(rows)
    }

    /// Writes rows as JSON lines, if a file was named.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn json(&mut self, rows: &[Row]) -> Result<(), BenchError> {
        let Some(path) = &self.json else {
            return Ok(());
        };
        let failed = || BenchError::io(format!("`{}`", path.display()));
        let mut open = OpenOptions::new();
        let mut file = open
            .create(true)
            .append(true)
            .open(path)
            .map_err(failed())?;
        let lines: String = rows.iter().map(|row| row.json() + "\n").collect();
        file.write_all(lines.as_bytes()).map_err(failed())
    }

    /// Where tables go.
    pub fn writer(&mut self) -> &mut dyn Write {
        self.out
    }

    /// A line for the person who waits.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn say(&mut self, text: &str) -> Result<(), BenchError> {
        writeln!(self.out, "{text}").map_err(BenchError::io("output"))?;
        self.out.flush().map_err(BenchError::io("output"))
    }
}

/// Runs a command.
///
/// # Errors
/// The measurement failed.
pub async fn run(cli: Cli, runtime: &Runtime, out: &mut dyn Write) -> Result<(), BenchError> {
    let out = &mut Output::new(out, cli.json.as_deref());
    // Boxed, so that they are compiled here once and not again in every binary.
    let running: Pin<Box<dyn Future<Output = Result<(), BenchError>> + '_>> = match cli.command {
        Command::Produce(args) => Box::pin(load::produce(args, runtime, out)),
        Command::Consume(args) => Box::pin(load::consume(args, runtime, out)),
        Command::E2e(args) => match args.store.clone() {
            Some(store) => {
                Box::pin(async move { latency::sizes(&store, args, runtime, out).await })
            }
            None => Box::pin(load::e2e(args, runtime, out)),
        },
        Command::Latency(args) => Box::pin(latency::run(args, runtime, out)),
        Command::S3(args) => Box::pin(s3::run(args, runtime, out)),
        Command::Disk(args) => Box::pin(disk::run(args, runtime, out)),
        Command::Compare(args) => Box::pin(compare::run(args, runtime, out)),
    };
    running.await
}
