//! Files without a name, created before they are needed.
//!
//! Creating one is the slowest step of a small write: an inode has to be found, which takes longer
//! the more files were removed a moment ago.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

/// Files kept ready. More would be created in one go and keep a core from what waits for it.
const SPARES_MAX: usize = 4;
/// With no more than these, others are created.
const SPARES_FEW: usize = 2;

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

    pub(super) fn are_few(&self, dir: &Path) -> bool {
        let ready = self.ready.lock();
        (ready.dir != dir || ready.files.len() <= SPARES_FEW) && !self.making.is_locked()
    }

    /// Calls `create` until there are enough for `dir`, or it fails.
    pub(super) fn make(&self, dir: &Path, create: impl Fn() -> io::Result<Option<File>>) {
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
