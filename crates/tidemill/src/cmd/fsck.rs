//! `tidemill fsck`: proof that stored data is sound, or what is wrong with it.

mod report;

use std::{io::Write, time::Duration};

use parking_lot::Mutex;
use tidemill_cluster::fsck::fsck;
use tidemill_runtime::Runtime;
use tidemill_store::Store;

use super::stored::open_to_read;
use crate::{cli::Fsck, logging};
use report::Findings;
pub use report::Verdict;

/// How long a store that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Runs the command; the report goes to `out`, progress and logs to standard error.
pub async fn run(args: Fsck, runtime: &Runtime, out: &mut impl Write) -> Verdict {
    logging::start(false);
    let found = match open_to_read(&args.data, runtime).await {
        Ok(store) => check_store(&store, args.deep).await,
        Err(error) => Findings::unchecked(error.to_string()),
    };
    let written = if args.json {
        found.json(out)
    } else {
        found.text(out)
    };
    match written.and_then(|()| out.flush()) {
        Ok(()) => found.verdict(),
        // Who reads has seen enough; the code says the rest.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => found.verdict(),
        Err(error) => {
            crate::complain(&format!("cannot write the report: {error}"));
            Verdict::Unchecked
        }
    }
}

async fn check_store(store: &Store, deep: bool) -> Findings {
    let progress = Progress::new(store.runtime());
    let say = |what: &str| progress.say(what);
    match fsck(store, deep, PATIENCE, &say).await {
        Ok(report) => Findings::new(store.describe(), deep, report),
        Err(error) => Findings::unchecked(error.to_string()),
    }
}

/// Lines on standard error now and then, while a check takes long.
struct Progress {
    runtime: Runtime,
    last: Mutex<tidemill_runtime::Instant>,
}

impl Progress {
    fn new(runtime: &Runtime) -> Self {
        let last = Mutex::new(runtime.clock.monotonic());
        Self {
            runtime: runtime.clone(),
            last,
        }
    }

    fn say(&self, what: &str) {
        let now = self.runtime.clock.monotonic();
        let mut last = self.last.lock();
        if now.saturating_duration_since(*last) < PROGRESS_EVERY {
            return;
        }
        *last = now;
        crate::complain(&format!("checking: {what}"));
    }
}
