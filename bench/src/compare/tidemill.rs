//! Tidemill's release binary.

use std::{path::Path, process::Command};

use tidemill_runtime::Runtime;

use super::child::Child;
use crate::error::BenchError;

/// Starts it on the data in `dir`.
pub fn start(
    binary: &Path,
    dir: &Path,
    port: u16,
    sync: &str,
    runtime: &Runtime,
) -> Result<Child, BenchError> {
    let admin = port + 1;
    let mut command = Command::new(binary);
    command
        .arg("serve")
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .arg("--data")
        .arg(format!("file:{}", dir.join("data").display()))
        .args(["--set", &format!("local.sync={sync}")])
        .args(["--set", &format!("tidemill.admin.listen=127.0.0.1:{admin}")])
        .current_dir(dir);
    Child::start(&mut command, &dir.join("log"), port, Some(admin), runtime)
}
