//! `tidemill`: one binary, a Kafka-compatible log on object storage.

use std::{
    io::{BufWriter, Write},
    process::ExitCode,
};

use clap::Parser;
use tidemill_runtime::Runtime;

mod admin;
mod cli;
mod cmd;
mod exit;
mod logging;
mod serve;
mod settings;

use cli::{Cli, Command};
use cmd::{CommandError, fsck::Verdict};
use exit::Exit;

/// Small, and gives memory back: a broker is idle most of its life.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Cli { command, serve } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let command = command.unwrap_or(Command::Serve(serve));
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("cannot start threads: {error}"));
            return Exit::Failed.into();
        }
    };
    let exit = runtime.block_on(run(command));
    // A blocking read of standard input must not keep the process.
    runtime.shutdown_background();
    exit
}

/// Help and version are no failure; wrong use is, with the code that it has for the command.
fn usage(error: &clap::Error) -> ExitCode {
    // If nobody can be told, the code says it.
    let _ = error.print();
    if !error.use_stderr() {
        return Exit::Ok.into();
    }
    match std::env::args_os().nth(1) {
        // 2 would say that the data is damaged.
        Some(command) if command == "fsck" => ExitCode::from(Verdict::Unchecked as u8),
        _ => Exit::Usage.into(),
    }
}

async fn run(command: Command) -> ExitCode {
    let runtime = Runtime::system();
    let mut out = BufWriter::new(Output::default());
    let result = match command {
        Command::Topic { to, action } => cmd::topic::run(&to, action, &runtime, &mut out).await,
        Command::Produce(args) => cmd::produce::run(args, &runtime, &mut out).await,
        Command::Consume(args) => cmd::consume::run(args, &runtime, &mut out).await,
        Command::Group { to, action } => cmd::group::run(&to, action, &runtime, &mut out).await,
        Command::Serve(args) => {
            logging::start(args.log_json);
            return serve::run(args, runtime).await.into();
        }
        Command::Inspect(args) => cmd::inspect::run(args, &runtime, &mut out).await,
        Command::Fsck(args) => {
            let verdict = cmd::fsck::run(args, &runtime, &mut out).await;
            return ExitCode::from(verdict as u8);
        }
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench(args, &runtime, &mut out).await,
    };
    let result = result.and_then(|()| Ok(out.flush()?));
    // `head` has seen enough: that is no failure of ours, and nobody needs to be told.
    let enough = out.get_ref().gone;
    report(if enough { Ok(()) } else { result }).into()
}

/// Standard output that knows whether its reader is gone.
#[derive(Default)]
struct Output {
    gone: bool,
}

impl Output {
    fn noted<T>(&mut self, result: std::io::Result<T>) -> std::io::Result<T> {
        let broken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
        self.gone |= result.as_ref().is_err_and(broken);
        result
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let result = std::io::stdout().write(bytes);
        self.noted(result)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let result = std::io::stdout().flush();
        self.noted(result)
    }
}

#[cfg(feature = "bench")]
async fn bench(
    args: cli::BenchArgs,
    runtime: &Runtime,
    out: &mut (impl Write + Send),
) -> Result<(), CommandError> {
    let args = ["tidemill bench".to_owned()].into_iter().chain(args.args);
    let measured = tidemill_bench::run(args, runtime, out).await;
    measured.map_err(|error| CommandError(error.to_string()))
}

fn report(result: Result<(), CommandError>) -> Exit {
    match result {
        Ok(()) => Exit::Ok,
        Err(error) => {
            complain(&error.to_string());
            Exit::Failed
        }
    }
}

/// One line on standard error, for the person at the terminal.
pub(crate) fn complain(text: &str) {
    // If standard error is gone there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "tidemill: {text}");
}
