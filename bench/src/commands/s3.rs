//! `s3`: an S3 server in memory with a model's delays.

use std::time::Duration;

use tidemill_runtime::Runtime;
use tidemill_store::testing::{S3Options, S3Server};

use super::Output;
use crate::{
    cli,
    error::BenchError,
    model::{LatencyModel, Profile, Stalls},
};

/// A server whose requests take as long as `model` says.
///
/// # Errors
/// The address cannot be listened on.
pub async fn serve(
    options: S3Options,
    model: LatencyModel,
    runtime: &Runtime,
) -> Result<S3Server, BenchError> {
    let started = S3Server::start(options, runtime.clone()).await;
    let server = started.map_err(BenchError::io("cannot listen"))?;
    server.set_latency(move |request| model.latency(request));
    Ok(server)
}

/// Serves until the process is stopped.
///
/// # Errors
/// No such profile, or the address cannot be listened on.
pub async fn run(args: cli::S3, runtime: &Runtime, out: &mut Output<'_>) -> Result<(), BenchError> {
    let profile = Profile::named(&args.profile).ok_or_else(|| {
        let known: Vec<_> = Profile::ALL.iter().map(|known| known.name).collect();
        let known = known.join("`, `");
        BenchError::Failed(format!(
            "no profile `{}`; there are `{known}`",
            args.profile
        ))
    })?;
    let stalls = Stalls {
        chance: args.stall_chance,
        duration: Duration::from_millis(args.stall_ms),
    };
    let options = S3Options {
        buckets: args.buckets.clone(),
        listen: Some(args.listen),
        ..S3Options::default()
    };
    let model = LatencyModel::new(profile, stalls, args.seed);
    let server = serve(options, model, runtime).await?;
    for (name, value) in server.environment() {
        out.say(&format!("export {name}={value}"))?;
    }
    let buckets = args.buckets.join(", ");
    out.say(&format!(
        "# profile {}, buckets {buckets}; stop with ctrl-c",
        profile.name
    ))?;
    let stopped = tokio::signal::ctrl_c().await;
    let counts = server.counts();
    out.say(&format!("# {counts:?}"))?;
    stopped.map_err(BenchError::io("cannot listen to signals"))
}
