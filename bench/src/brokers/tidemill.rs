//! Tidemill's release binary.

use std::{path::Path, process::Command};

use tidemill_runtime::Runtime;

use super::Child;
use crate::error::BenchError;

/// What a broker is started with.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Where its data is: a store's URL.
    pub data: String,
    /// Settings, each `NAME=VALUE`.
    pub sets: Vec<String>,
    /// Variables: keys and endpoint of a bucket.
    pub environment: Vec<(String, String)>,
}

/// Starts it in `dir`, which takes its log; the port behind `port` serves its metrics.
pub fn start(
    binary: &Path,
    dir: &Path,
    port: u16,
    launch: &Launch,
    runtime: &Runtime,
) -> Result<Child, BenchError> {
    let admin = port + 1;
    let mut command = Command::new(binary);
    command
        .arg("serve")
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .args(["--data", &launch.data])
        .args(["--set", &format!("tidemill.admin.listen=127.0.0.1:{admin}")])
        .envs(launch.environment.iter().cloned())
        .current_dir(dir);
    for set in &launch.sets {
        command.args(["--set", set]);
    }
    Child::start(&mut command, &dir.join("log"), port, Some(admin), runtime)
}
