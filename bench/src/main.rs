//! `tidemill-bench`: measures Tidemill and any other Kafka broker.

use std::{
    io::{BufWriter, Write},
    process::ExitCode,
};

use tidemill_runtime::Runtime;

/// As the broker's: one that maps anew for every message of megabytes would be measured with it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let result = builder.enable_all().build().map(|tokio| {
        let mut out = BufWriter::new(std::io::stdout());
        let runtime = Runtime::system();
        let running = tidemill_bench::run(std::env::args_os(), &runtime, &mut out);
        let result = tokio.block_on(running);
        tokio.shutdown_background();
        result.and_then(|()| {
            out.flush()
                .map_err(tidemill_bench::BenchError::io("output"))
        })
    });
    let failure = match result {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => error.to_string(),
        Err(error) => format!("cannot start threads: {error}"),
    };
    // If standard error is gone there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "tidemill-bench: {failure}");
    ExitCode::FAILURE
}
