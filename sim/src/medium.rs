//! What the brokers of a run store in: a bucket that any of them reaches, or one machine's disk.

use std::{path::Path, sync::Arc};

use tidemill_runtime::{Entropy, Runtime};
use tidemill_store::{
    Backend, Directory, DirectoryOptions, LocalSync, Memory,
    testing::{Crash, SimFs},
};

/// Where the data directory lies on the simulated disk.
const DATA: &str = "/data";

/// A bucket, or a disk.
pub enum Medium {
    /// Outlives all brokers; several may use it at once.
    Bucket(Arc<Memory>),
    /// One broker at a time; loses what was not synced when the power fails.
    Disk(SimFs),
}

impl Medium {
    /// True for a disk.
    pub fn is_disk(&self) -> bool {
        matches!(self, Self::Disk(_))
    }

    /// A broker's (or, for reading only, a tool's) way to it.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub async fn open(
        &self,
        runtime: &Runtime,
        read_only: bool,
    ) -> Result<Arc<dyn Backend>, String> {
        let fs = match self {
            Self::Bucket(memory) => return Ok(Arc::clone(memory) as Arc<dyn Backend>),
            Self::Disk(fs) => Arc::new(fs.clone()),
        };
        let options = DirectoryOptions {
            sync: LocalSync::Always,
            read_only,
        };
        match Directory::open_on(fs, Path::new(DATA), options, runtime.clone()).await {
            Ok(directory) => Ok(Arc::new(directory)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A broker has died: on a disk, its files are closed, and at times the power fails with it.
    pub fn broker_died(&self, entropy: &Entropy) -> &'static str {
        let Self::Disk(fs) = self else {
            return "";
        };
        let (crash, how) = match entropy.below(3) {
            0 => (Crash::Process, "alone"),
            1 => (Crash::Power, "with the power"),
            _ => (
                Crash::PowerByChance(entropy),
                "with the power, some was written",
            ),
        };
        fs.restart(&crash);
        how
    }

    /// A broker has stopped in peace: its files are closed.
    pub fn broker_stopped(&self) {
        if let Self::Disk(fs) = self {
            fs.restart(&Crash::Process);
        }
    }
}
