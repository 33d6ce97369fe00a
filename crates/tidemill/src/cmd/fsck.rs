//! `tidemill fsck`: proof that stored data is sound, or what is wrong with it.

mod metadata;
mod report;

use std::{io::Write, time::Duration};

use parking_lot::Mutex;
use tidemill_log::fsck::{FsckOptions, check};
use tidemill_runtime::Runtime;
use tidemill_store::{RootError, Store, read_root};

use super::stored::open_to_read;
use crate::{cli::Fsck, logging};
use report::Findings;
pub use report::Verdict;

/// How long a store that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// How often a check is made anew because topics were created or deleted meanwhile.
const TRIES: u32 = 5;

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
        Err(error) => {
            crate::complain(&format!("cannot write the report: {error}"));
            Verdict::Unchecked
        }
    }
}

async fn check_store(store: &Store, deep: bool) -> Findings {
    let progress = Progress::new(store.runtime());
    let cluster_id = match read_root(store, PATIENCE).await {
        Ok(root) => root.cluster_id,
        Err(error) => return without_root(store, &error).await,
    };
    let mut tries = 1;
    loop {
        let mut found = Findings::new(store.describe(), deep);
        let say = |what: &str| progress.say(what);
        let metadata = match metadata::check(store, cluster_id, deep, &mut found, &say).await {
            Ok(metadata) => metadata,
            Err(error) => return Findings::unchecked(error),
        };
        let partitions = metadata.as_ref().map(|metadata| metadata.partitions());
        let options = FsckOptions { deep, partitions };
        match check(store, &options, &say).await {
            Ok(report) => found.add(report),
            Err(error) => return Findings::unchecked(error.to_string()),
        }
        // Of a topic that a live broker has created or deleted meanwhile nothing can be said.
        let changed = match &metadata {
            Some(metadata) => metadata.has_changed().await,
            None => false,
        };
        if found.verdict() == Verdict::Sound || !changed || tries == TRIES {
            return found;
        }
        tries += 1;
        progress.say("the metadata has changed meanwhile; checking once more");
    }
}

/// Objects of ours without `root` are damage; anything else was not ours to check.
async fn without_root(store: &Store, error: &RootError) -> Findings {
    let damaged = match error {
        RootError::Invalid { .. } => true,
        RootError::Missing { .. } => match store.list_all("").await {
            Ok(listed) => listed.iter().any(|meta| metadata::is_ours(&meta.key)),
            Err(error) => return Findings::unchecked(error.to_string()),
        },
        _ => false,
    };
    if !damaged {
        return Findings::unchecked(error.to_string());
    }
    let mut found = Findings::new(store.describe(), false);
    found.damage(tidemill_store::root::ROOT_KEY, &error.to_string());
    found
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
