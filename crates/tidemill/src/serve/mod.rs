//! `tidemill serve`: from settings to a broker that serves, and back down.

mod health;
mod start;

use std::{sync::Arc, time::Duration};

use tidemill_broker::config::BrokerConfig;
use tidemill_log::Log;
use tidemill_runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{cli::Serve, exit::Exit, settings};
pub use start::environment;
use start::{Running, StopError};

/// How old a proof of leadership may be before a new one is asked for; as for Fetch (R7).
const DOUBT_EVERY: Duration = Duration::from_secs(10);

/// Runs a broker until it is told to stop, or is superseded.
pub async fn run(args: Serve, runtime: Runtime) -> Exit {
    let config = match settings::load(&args) {
        Ok(config) => Arc::new(config),
        Err(error) => {
            crate::complain(&error.to_string());
            return Exit::Usage;
        }
    };
    if args.print_config {
        return print(&config);
    }
    let (mut terminate, mut interrupt) = match signals() {
        Ok(signals) => signals,
        Err(error) => {
            crate::complain(&format!("cannot listen to signals: {error}"));
            return Exit::Failed;
        }
    };
    let started = tokio::select! {
        biased;
        _ = terminate.recv() => return Exit::Ok,
        _ = interrupt.recv() => return Exit::Ok,
        started = start::start(config.clone(), runtime.clone()) => started,
    };
    let running = match started {
        Ok(running) => running,
        Err(error) => {
            crate::complain(&error.to_string());
            return error.exit();
        }
    };
    running.announce();
    tokio::select! {
        biased;
        () = running.log.fenced() => superseded(&running),
        () = doubt(&running.log, &runtime) => superseded(&running),
        _ = terminate.recv() => stop(running, &config, &runtime, &mut terminate).await,
        _ = interrupt.recv() => stop(running, &config, &runtime, &mut interrupt).await,
    }
}

/// Ends once this broker is superseded. Without it one that nobody writes to or asks would never
/// notice, and seem well to its supervisor. Costs a GET each time on an idle bucket, nothing on a
/// locked directory.
async fn doubt(log: &Log, runtime: &Runtime) {
    loop {
        runtime.clock.sleep(DOUBT_EVERY).await;
        if log.fresh_within(DOUBT_EVERY).await.is_err() {
            // Closed for another reason than a fence: whoever did it says so.
            return log.fenced().await;
        }
    }
}

fn signals() -> std::io::Result<(Signal, Signal)> {
    Ok((
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    ))
}

fn superseded(running: &Running) -> Exit {
    tracing::error!(
        writer = %running.log.writer(),
        "another broker has taken over this data; this one must not be restarted automatically"
    );
    Exit::Superseded
}

/// Answers what is waiting, flushes, rolls, closes the log; a second signal cuts it short.
async fn stop(
    running: Running,
    config: &BrokerConfig,
    runtime: &Runtime,
    again: &mut Signal,
) -> Exit {
    let deadline = runtime.clock.monotonic() + config.shutdown_timeout;
    tracing::info!(timeout_ms = config.shutdown_timeout.as_millis(), "stopping");
    tokio::select! {
        biased;
        stopped = running.stop(deadline) => match stopped {
            Ok(()) => {
                tracing::info!("stopped; everything is stored");
                Exit::Ok
            }
            Err(StopError::Gone(data)) => {
                tracing::error!(data, "stopped; the data directory was deleted, and with it all \
                    that was stored");
                Exit::Failed
            }
            Err(StopError::Shutdown(error)) => {
                tracing::error!(%error, "stopped before everything was stored; unacknowledged \
                    records are lost, acknowledged ones are not");
                Exit::Failed
            }
        },
        _ = again.recv() => {
            tracing::warn!("second signal: stopping at once");
            Exit::Failed
        }
    }
}

/// A file that can be read back: what is set stands in it, what is not is a comment.
fn print(config: &BrokerConfig) -> Exit {
    use std::io::Write;
    use tidemill_broker::config::describe_broker;

    let none = std::collections::BTreeMap::new();
    let mut out = std::io::stdout().lock();
    for described in describe_broker(&config.settings.with(&none, &none)) {
        let (name, doc) = (described.name, described.documentation);
        let value = match (described.sensitive, described.value.as_deref()) {
            (true, _) => "(hidden)",
            (false, value) => value.unwrap_or_default(),
        };
        let origin = config.settings.origin_of(name);
        let off = match origin {
            Some(_) if !described.sensitive => "",
            _ => "# ",
        };
        let source = origin.unwrap_or("default");
        let value = toml::Value::from(value);
        // Quoted, since some names go on where others end.
        let line = writeln!(
            out,
            "# {doc}\n# source: {source}\n{off}\"{name}\" = {value}\n"
        );
        match line {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Exit::Ok,
            Err(_) => return Exit::Failed,
        }
    }
    Exit::Ok
}
