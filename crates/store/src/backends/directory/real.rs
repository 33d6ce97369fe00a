//! The machine's file system.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, IoSlice, Read, Seek, SeekFrom, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};

use super::{
    direct::Direct,
    fs::{DirEntry, DirHandle, Fs, Lock, LockAnswer, ReadFile, Space, Stat, TempFile},
    spares::Spares,
};

/// Slices in one vectored write; the kernel's limit is 1,024.
const MAX_SLICES: usize = 1_024;

/// The machine's file system.
#[derive(Debug, Default)]
pub struct RealFs {
    /// Set once the file system has refused files without a name (or `/proc` is missing).
    named_only: AtomicBool,
    /// Set once `/proc` has named a file.
    has_proc: AtomicBool,
    direct: Arc<Direct>,
    spares: Spares,
    /// Files open for reading.
    open: Arc<AtomicUsize>,
}

/// A file without a name: a crash leaves nothing behind.
#[derive(Debug)]
struct Nameless {
    file: File,
    direct: Arc<Direct>,
}

/// A file under a spare name.
#[derive(Debug)]
struct Named {
    file: File,
    direct: Arc<Direct>,
    spare: PathBuf,
    moved: bool,
}

pub(super) fn write_all(file: &mut File, slices: &[Bytes]) -> io::Result<()> {
    for group in slices.chunks(MAX_SLICES) {
        let mut buffers: Vec<_> = group.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut left = &mut buffers[..];
        while !left.is_empty() {
            match file.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn proc_name(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

impl TempFile for Nameless {
    fn write(&mut self, slices: &[Bytes]) -> io::Result<()> {
        self.direct.write(&mut self.file, slices)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn link(&mut self, to: &Path) -> io::Result<()> {
        rustix::fs::linkat(CWD, proc_name(&self.file), CWD, to, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }

    fn replace(mut self: Box<Self>, to: &Path) -> io::Result<()> {
        // A nameless file cannot be renamed: give it a name beside the target first.
        let mut name = to.file_name().unwrap_or(OsStr::new("object")).to_owned();
        name.push(".replacing");
        let mut spare = to.to_owned();
        spare.set_file_name(hidden(&name));
        let _ = fs::remove_file(&spare);
        self.link(&spare)?;
        fs::rename(&spare, to)
    }
}

/// Names with a leading dot are never keys.
fn hidden(name: &OsStr) -> std::ffi::OsString {
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden
}

impl TempFile for Named {
    fn write(&mut self, slices: &[Bytes]) -> io::Result<()> {
        self.direct.write(&mut self.file, slices)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn link(&mut self, to: &Path) -> io::Result<()> {
        fs::hard_link(&self.spare, to)
    }

    fn replace(mut self: Box<Self>, to: &Path) -> io::Result<()> {
        fs::rename(&self.spare, to)?;
        self.moved = true;
        Ok(())
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if !self.moved {
            // What stays behind is removed at the next start.
            let _ = fs::remove_file(&self.spare);
        }
    }
}

/// A file open for reading, counted as long as it is.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    open: Arc<AtomicUsize>,
}

impl OpenFile {
    fn new(file: File, open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self {
            file,
            open: open.clone(),
        }
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Reading(Arc<OpenFile>);

impl ReadFile for Reading {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.file.metadata()?.len())
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let len = usize::try_from(range.end.saturating_sub(range.start))
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = range.start + bytes.len() as u64;
            let spare = rustix::buffer::spare_capacity(&mut bytes);
            match rustix::io::pread(&self.0.file, spare, at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The allocator may have given more room than asked for.
        bytes.truncate(len);
        Ok(bytes.into())
    }

    fn shared(&self) -> Option<Arc<OpenFile>> {
        Some(self.0.clone())
    }
}

#[derive(Debug)]
struct RealDir(File);

impl DirHandle for RealDir {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

#[derive(Debug)]
struct RealLock(File);

impl Lock for RealLock {
    fn write(&self, text: &str) -> io::Result<()> {
        let mut file = &self.0;
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())
    }
}

impl RealFs {
    /// A new file without a name; `None` if the file system knows none.
    fn nameless(&self, dir: &Path) -> io::Result<Option<File>> {
        if self.named_only.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(dir, flags, Mode::from_raw_mode(0o644)) {
            Ok(fd) => {
                let file = File::from(fd);
                // Without `/proc` it could not be linked. Looked for once.
                if self.has_proc.load(Ordering::Relaxed) || Path::new(&proc_name(&file)).exists() {
                    self.has_proc.store(true, Ordering::Relaxed);
                    return Ok(Some(file));
                }
            }
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {}
            Err(error) => return Err(error.into()),
        }
        self.named_only.store(true, Ordering::Relaxed);
        Ok(None)
    }
}

impl Fs for RealFs {
    fn temp(&self, dir: &Path, spare: &Path) -> io::Result<Box<dyn TempFile>> {
        let ready = self.spares.take(dir).map(Some);
        if let Some(file) = ready.map_or_else(|| self.nameless(dir), Ok)? {
            let direct = self.direct.clone();
            return Ok(Box::new(Nameless { file, direct }));
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(spare)?;
        Ok(Box::new(Named {
            file,
            direct: self.direct.clone(),
            spare: spare.to_owned(),
            moved: false,
        }))
    }

    fn has_spare(&self, dir: &Path) -> bool {
        self.spares.has(dir)
    }

    fn wants_spares(&self, dir: &Path) -> Option<Duration> {
        match self.named_only.load(Ordering::Relaxed) {
            true => None,
            false => self.spares.wanted(dir),
        }
    }

    fn make_spares(&self, dir: &Path) {
        self.spares.make(dir, || self.nameless(dir));
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = OpenFile::new(File::open(path)?, &self.open);
        Ok(Arc::new(Reading(Arc::new(file))))
    }

    fn open_files(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let modified = metadata
            .modified()?
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let modified_ms = i64::try_from(modified.as_millis()).unwrap_or(i64::MAX);
        Ok(Stat {
            len: metadata.len(),
            modified_ms,
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn DirHandle>> {
        Ok(Box::new(RealDir(File::open(path)?)))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                Ok(DirEntry {
                    name,
                    is_dir: entry.file_type()?.is_dir(),
                })
            })
            .collect()
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        rustix::fs::syncfs(File::open(path)?)?;
        Ok(())
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Space {
            free: bytes(stat.f_bavail),
            total: bytes(stat.f_blocks),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<LockAnswer> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let taken = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut text = String::new();
        // What is not text says nothing about its holder.
        let _ = file.read_to_string(&mut text);
        match taken {
            Ok(()) => Ok(LockAnswer::Taken(Box::new(RealLock(file)), text)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(LockAnswer::Held(text)),
            Err(error) => Err(error.into()),
        }
    }
}
