//! Measures Tidemill and any other Kafka broker.
//!
//! - [`load`] produces and consumes, in a closed loop or by intended send times.
//! - [`model`] says how long an object store takes; [`commands::s3`] serves S3 that slowly.
//! - [`store`] is such a store behind the interface of the real ones.
//! - [`latency`] measures produce to consume against raw PUTs, with its bars.
//! - [`compare`] runs Apache Kafka and Tidemill side by side on this machine.
//! - [`probe`] reads a broker's CPU, memory and object requests.
//!
//! Time is the machine's: nothing here runs in simulation, and no test asserts a time.

use std::{ffi::OsString, io::Write};

use clap::Parser;
use tidemill_runtime::Runtime;

mod brokers;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod disk;
mod error;
pub mod latency;
pub mod load;
pub mod model;
pub mod plot;
pub mod probe;
pub mod report;
pub mod store;

pub use error::BenchError;

/// Runs a command line, whose first word is the program's name, and prints to `out`. Ends the
/// process if it is no command line, or asks for help.
///
/// # Errors
/// The measurement failed.
pub async fn run<I, T>(args: I, runtime: &Runtime, out: &mut dyn Write) -> Result<(), BenchError>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let cli = cli::Cli::parse_from(args);
    commands::run(cli, runtime, out).await
}
