//! Directories whose own names are durable, and the syncs of their entries.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Condvar, Mutex};

use super::fs::{DirHandle, Fs};

/// Open directories; far below the usual limit of 1,024 open files. Forgetting one costs a sync.
const MAX_OPEN: usize = 128;

#[derive(Debug, Default)]
struct Progress {
    /// Syncs asked for.
    wanted: u64,
    /// Syncs that are covered by one that has ended well.
    done: u64,
    running: bool,
    /// A sync has failed: this handle is not asked again.
    failed: Option<io::ErrorKind>,
}

/// One directory. Creates that end at the same time share a sync.
#[derive(Debug)]
pub(crate) struct Dir {
    handle: Box<dyn DirHandle>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Dir {
    /// Makes every change of entries that was made before this call durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let mut progress = self.progress.lock();
        progress.wanted += 1;
        let mine = progress.wanted;
        loop {
            if progress.done >= mine {
                return Ok(());
            }
            if let Some(kind) = progress.failed {
                return Err(kind.into());
            }
            if progress.running {
                self.changed.wait(&mut progress);
                continue;
            }
            progress.running = true;
            let covered = progress.wanted;
            drop(progress);
            let result = self.handle.sync();
            progress = self.progress.lock();
            progress.running = false;
            match &result {
                Ok(()) => progress.done = covered,
                Err(error) => progress.failed = Some(error.kind()),
            }
            self.changed.notify_all();
            result?;
        }
    }

    fn has_failed(&self) -> bool {
        self.progress.lock().failed.is_some()
    }
}

#[derive(Debug, Default)]
struct Open {
    tick: u64,
    /// By path relative to the root, with the tick of its last use.
    dirs: BTreeMap<String, (Arc<Dir>, u64)>,
}

/// The directories in use.
#[derive(Debug)]
pub(crate) struct Dirs {
    root: PathBuf,
    open: Mutex<Open>,
    /// Held while a directory is created.
    creating: Mutex<()>,
}

impl Dirs {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            open: Mutex::default(),
            creating: Mutex::default(),
        }
    }

    /// The directory `dir` (relative to the root), created if need be, its own name durable.
    pub(crate) fn ensure(&self, fs: &dyn Fs, dir: &str) -> io::Result<Arc<Dir>> {
        if let Some(open) = self.cached(dir) {
            return Ok(open);
        }
        // One at a time: a directory whose name is not durable is removed again below, which must
        // not happen to one that somebody else has just called good.
        let _creating = self.creating.lock();
        self.create(fs, dir)
    }

    fn create(&self, fs: &dyn Fs, dir: &str) -> io::Result<Arc<Dir>> {
        if let Some(open) = self.cached(dir) {
            return Ok(open);
        }
        let path = self.root.join(dir);
        if !dir.is_empty() {
            let parent = dir.rsplit_once('/').map_or("", |(parent, _)| parent);
            let parent = self.create(fs, parent)?;
            fs.create_dir(&path)?;
            // Also if it was there: whoever created it may have died before this.
            if let Err(error) = parent.sync() {
                // A second sync would lie about this entry, so it is made anew by the next try. One
                // that is not empty was durable before.
                let _ = fs.remove_dir(&path);
                return Err(error);
            }
        }
        self.open(fs, dir, &path)
    }

    fn cached(&self, dir: &str) -> Option<Arc<Dir>> {
        let mut open = self.open.lock();
        let Open { tick, dirs } = &mut *open;
        *tick += 1;
        let (found, used) = dirs.get_mut(dir)?;
        if found.has_failed() {
            dirs.remove(dir);
            return None;
        }
        *used = *tick;
        Some(found.clone())
    }

    fn open(&self, fs: &dyn Fs, dir: &str, path: &Path) -> io::Result<Arc<Dir>> {
        let handle = fs.open_dir(path)?;
        let fresh = Arc::new(Dir {
            handle,
            progress: Mutex::default(),
            changed: Condvar::default(),
        });
        let mut open = self.open.lock();
        let Open { tick, dirs } = &mut *open;
        if dirs.len() >= MAX_OPEN
            && let Some(oldest) = dirs
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(name, _)| name.clone())
        {
            dirs.remove(&oldest);
        }
        // Two at once: the first one's progress is shared.
        let entry = dirs.entry(dir.to_owned()).or_insert((fresh, *tick));
        Ok(entry.0.clone())
    }

    /// Forgets a directory that is about to be removed.
    pub(crate) fn forget(&self, dir: &str) {
        self.open.lock().dirs.remove(dir);
    }
}
