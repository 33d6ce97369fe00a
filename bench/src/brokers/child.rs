//! A broker started here.

use std::{
    fs::File,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tidemill_runtime::Runtime;

use crate::{error::BenchError, load::Target, probe::Probe};

/// How long a broker may take to answer after its start, and to end after SIGTERM.
const START_MAX: Duration = Duration::from_secs(300);
const STOP_MAX: Duration = Duration::from_secs(60);
/// Between tries: short against the fastest start that is measured.
const RETRY: Duration = Duration::from_millis(2);

/// A broker started here; killed when dropped.
pub struct Child {
    process: std::process::Child,
    /// Where it serves.
    pub target: Target,
    /// Where to look at it.
    pub probe: Probe,
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Child {
    /// Starts a broker that will serve on a port of this machine; its output goes to `log`.
    pub fn start(
        command: &mut Command,
        log: &Path,
        port: u16,
        metrics: Option<u16>,
        runtime: &Runtime,
    ) -> Result<Self, BenchError> {
        // Whoever serves there would be measured in its stead.
        for port in [port].into_iter().chain(metrics) {
            let taken = format!("port {port} (choose others by `--port`)");
            TcpListener::bind(("127.0.0.1", port)).map_err(BenchError::io(taken))?;
        }
        let failed = || BenchError::io(format!("`{}`", log.display()));
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(failed())?;
        let errors = file.try_clone().map_err(failed())?;
        let what = format!("{:?}", command.get_program());
        let process = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(BenchError::io(what))?;
        let probe = Probe {
            pid: Some(process.id()),
            metrics: metrics.map(|port| format!("127.0.0.1:{port}")),
        };
        let target = Target {
            address: format!("127.0.0.1:{port}"),
            runtime: runtime.clone(),
        };
        Ok(Self {
            process,
            target,
            probe,
        })
    }

    /// Waits until `ready` succeeds, trying again and again.
    pub async fn until<F>(&mut self, ready: impl Fn(Target) -> F) -> Result<(), BenchError>
    where
        F: Future<Output = Result<(), BenchError>>,
    {
        let clock = self.target.runtime.clock.clone();
        let deadline = clock.monotonic() + START_MAX;
        loop {
            let Err(error) = ready(self.target.clone()).await else {
                return Ok(());
            };
            let ended = self.process.try_wait().map_err(BenchError::io("wait"))?;
            if let Some(status) = ended {
                let what = format!("the broker of {} ended: {status}", self.target.address);
                return Err(BenchError::Failed(what));
            }
            if clock.monotonic() >= deadline {
                return Err(error);
            }
            clock.sleep(RETRY).await;
        }
    }

    /// Waits until it answers.
    pub async fn answers(&mut self) -> Result<(), BenchError> {
        self.until(|target| async move { target.connect().await.map(drop) })
            .await
    }

    /// Stops it with SIGTERM.
    pub async fn stop(mut self) -> Result<(), BenchError> {
        let pid = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let signalled = kill_process(pid, Signal::TERM);
            signalled.map_err(|error| BenchError::io("SIGTERM")(error.into()))?;
        }
        let clock = self.target.runtime.clock.clone();
        let deadline = clock.monotonic() + STOP_MAX;
        while clock.monotonic() < deadline {
            let ended = self.process.try_wait().map_err(BenchError::io("wait"))?;
            if ended.is_some() {
                return Ok(());
            }
            clock.sleep(Duration::from_millis(20)).await;
        }
        let what = format!("the broker of {} ignores SIGTERM", self.target.address);
        Err(BenchError::Failed(what))
    }
}
