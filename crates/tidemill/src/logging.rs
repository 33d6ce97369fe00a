//! Structured log lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, prelude::*};

/// What is logged unless `TIDEMILL_LOG` says otherwise.
const DEFAULT_FILTER: &str = "info";

/// Starts logging. `TIDEMILL_LOG` is a filter such as `debug` or `tidemill_log=debug,info`.
pub fn start(json: bool) {
    let filter = std::env::var("TIDEMILL_LOG").unwrap_or_else(|_| DEFAULT_FILTER.to_owned());
    let filter = EnvFilter::try_new(&filter).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    // Escape codes are for people's eyes, not for files.
    let ansi = std::io::stderr().is_terminal();
    let registry = tracing_subscriber::registry().with(filter);
    if json {
        registry
            .with(fmt::layer().json().with_writer(std::io::stderr))
            .init();
    } else {
        registry
            .with(
                fmt::layer()
                    .with_writer(std::io::stderr)
                    .with_target(false)
                    .with_ansi(ansi),
            )
            .init();
    }
}
