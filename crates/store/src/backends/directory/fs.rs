//! File operations the directory backend needs, as a trait, so that a simulation can crash them.

use std::{fmt::Debug, io, ops::Range, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;

use super::OpenFile;

/// Free and total space of the file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What this process may still write.
    pub free: u64,
    /// Size of the file system.
    pub total: u64,
}

/// What a directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without its directory. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// True if it is a directory.
    pub is_dir: bool,
}

/// Length and time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Length in bytes.
    pub len: u64,
    /// Last change, Unix milliseconds.
    pub modified_ms: i64,
}

/// A file that has no name that counts yet. Dropping it removes it.
pub trait TempFile: Debug + Send {
    /// Appends the slices.
    ///
    /// # Errors
    /// As the file system's write.
    fn write(&mut self, slices: &[Bytes]) -> io::Result<()>;

    /// Makes the contents durable. After a failure the file must be dropped: the kernel forgets
    /// what it could not write, and a second sync would succeed without it.
    ///
    /// # Errors
    /// As the file system's sync.
    fn sync(&mut self) -> io::Result<()>;

    /// Gives the file the name `to`, never replacing another.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken.
    fn link(&mut self, to: &Path) -> io::Result<()>;

    /// Gives the file the name `to` in place of the file that has it.
    ///
    /// # Errors
    /// As the file system's rename.
    fn replace(self: Box<Self>, to: &Path) -> io::Result<()>;
}

/// A file open for reading. It stays readable after its name is gone.
pub trait ReadFile: Debug + Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// As the file system's stat.
    fn size(&self) -> io::Result<u64>;

    /// Reads `range`, less if the file ends before.
    ///
    /// # Errors
    /// As the file system's read.
    fn read(&self, range: Range<u64>) -> io::Result<Bytes>;

    /// The machine's file behind it; `None` in a simulation.
    fn shared(&self) -> Option<Arc<OpenFile>> {
        None
    }
}

/// An open directory.
pub trait DirHandle: Debug + Send + Sync {
    /// Makes the directory's entries durable; after a failure the handle must be dropped.
    ///
    /// # Errors
    /// As the file system's sync.
    fn sync(&self) -> io::Result<()>;
}

/// Held by the process that writes to a directory; released when dropped.
pub trait Lock: Debug + Send + Sync {
    /// Replaces what the lock file says.
    ///
    /// # Errors
    /// As the file system's write.
    fn write(&self, text: &str) -> io::Result<()>;
}

/// A lock that was taken, or what the file says about the process that holds it.
#[derive(Debug)]
pub enum LockAnswer {
    /// Ours now; what the last holder had written.
    Taken(Box<dyn Lock>, String),
    /// Somebody else's; what it has written.
    Held(String),
}

/// File operations. Paths are absolute. All may block.
pub trait Fs: Debug + Send + Sync + 'static {
    /// A file for an object whose name will be in `dir`; `spare` names it where the file system
    /// knows no files without a name.
    ///
    /// # Errors
    /// As the file system's open.
    fn temp(&self, dir: &Path, spare: &Path) -> io::Result<Box<dyn TempFile>>;

    /// True if [`Fs::temp`] has a file for `dir` that need not be created first.
    fn has_spare(&self, dir: &Path) -> bool {
        let _ = dir;
        false
    }

    /// How long to wait before [`Fs::make_spares`]; `None` if it has nothing to do, or somebody has
    /// been told already.
    fn wants_spares(&self, dir: &Path) -> Option<Duration> {
        let _ = dir;
        None
    }

    /// Creates files for the next [`Fs::temp`]s in `dir`. What fails is left to them.
    fn make_spares(&self, dir: &Path) {
        let _ = dir;
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As the file system's open.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Files open for reading.
    fn open_files(&self) -> usize {
        0
    }

    /// Length and time of a file.
    ///
    /// # Errors
    /// As the file system's stat.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// A second name for a file, never replacing another.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a name.
    ///
    /// # Errors
    /// As the file system's unlink.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory in an existing one; success if it is there.
    ///
    /// # Errors
    /// As the file system's mkdir.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the file system's rmdir.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens a directory for syncing.
    ///
    /// # Errors
    /// As the file system's open.
    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn DirHandle>>;

    /// All entries of a directory, in no order.
    ///
    /// # Errors
    /// As the file system's readdir.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Makes everything on `path`'s file system durable.
    ///
    /// # Errors
    /// As the file system's sync.
    fn sync_all(&self, path: &Path) -> io::Result<()>;

    /// Space on `path`'s file system.
    ///
    /// # Errors
    /// As the file system's statvfs.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// Takes the lock file at `path`, which is created if need be.
    ///
    /// # Errors
    /// As the file system's open and lock.
    fn lock(&self, path: &Path) -> io::Result<LockAnswer>;
}
