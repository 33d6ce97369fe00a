//! Files without a name, created before they are needed.
//!
//! Creating one is the slowest step of a small write: an inode has to be found, which takes longer
//! the more files were removed a moment ago.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

/// Files kept ready. More would be created in one go and keep a core from what waits for it.
const SPARES_MAX: usize = 12;
/// With no more than these, others are created.
const SPARES_FEW: usize = 4;
/// How long that may wait while there is one: whoever waits for the write just done is answered
/// first, and does not share a core with it.
const LATER: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
struct Ready {
    /// Where they were created: in one place at a time, the one written to last.
    dir: PathBuf,
    files: Vec<File>,
}

#[derive(Debug, Default)]
pub(super) struct Spares {
    ready: Mutex<Ready>,
    /// Held by who creates some.
    making: Mutex<()>,
    /// Some are to be created in a moment.
    planned: AtomicBool,
}

impl Spares {
    pub(super) fn take(&self, dir: &Path) -> Option<File> {
        let mut ready = self.ready.lock();
        if ready.dir == dir {
            ready.files.pop()
        } else {
            None
        }
    }

    pub(super) fn has(&self, dir: &Path) -> bool {
        let ready = self.ready.lock();
        ready.dir == dir && !ready.files.is_empty()
    }

    /// When to make some for `dir`, from now on; `None` if there are enough, or somebody does.
    pub(super) fn wanted(&self, dir: &Path) -> Option<Duration> {
        let left = {
            let ready = self.ready.lock();
            if ready.dir == dir {
                ready.files.len()
            } else {
                0
            }
        };
        if left > SPARES_FEW || self.making.is_locked() {
            return None;
        }
        if left == 0 {
            return Some(Duration::ZERO);
        }
        let is_planned = self.planned.swap(true, Ordering::Relaxed);
        (!is_planned).then_some(LATER)
    }

    /// Calls `create` until there are enough for `dir`, or it fails.
    pub(super) fn make(&self, dir: &Path, create: impl Fn() -> io::Result<Option<File>>) {
        self.planned.store(false, Ordering::Relaxed);
        let Some(_making) = self.making.try_lock() else {
            return;
        };
        while !self.is_full(dir) {
            let Ok(Some(file)) = create() else {
                return;
            };
            self.ready.lock().files.push(file);
        }
    }

    fn is_full(&self, dir: &Path) -> bool {
        let mut ready = self.ready.lock();
        if ready.dir != dir {
            dir.clone_into(&mut ready.dir);
            ready.files.clear();
        }
        ready.files.len() >= SPARES_MAX
    }
}
