//! Objects as files of a local directory.
//!
//! A create writes a file without a name (or under a spare name made of its put id, where the file
//! system knows no nameless files), syncs it, links it to its name without replacing, and syncs the
//! directory. So a named file is whole and durable, and a crash leaves nothing but spare names,
//! which the next start removes.

mod backend;
mod direct;
mod dirs;
pub mod fs;
mod handles;
mod layout;
mod listing;
mod open;
mod real;
mod spares;

use std::{
    collections::BTreeSet,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tidemill_runtime::Runtime;

use self::{
    dirs::Dirs,
    fs::{Fs, Lock, ReadFile, TempFile},
    handles::Handles,
};
use crate::{
    backend::{ObjectMeta, Payload, PutAnswer},
    envelope::Envelope,
    error::{StoreError, StoreErrorKind},
    key,
};

pub use open::{DirectoryOptions, LocalSync};
pub use real::{OpenFile, RealFs};

/// Longest object that is written where it is asked for, if it need not be synced: its copy into
/// the page cache takes less time than waking another thread does.
const INLINE_MAX: u64 = 16 << 10;
/// Times a create starts over when its directory is removed under it by a trim.
const DIR_RETRIES: usize = 16;

/// Objects as files of a local directory. Cheap to clone; the last clone releases the lock.
#[derive(Clone, Debug)]
pub struct Directory {
    inner: Arc<Inner>,
    runtime: Runtime,
}

#[derive(Debug)]
struct Inner {
    fs: Arc<dyn Fs>,
    root: PathBuf,
    sync: LocalSync,
    /// `None` if opened for reading only.
    lock: Option<Box<dyn Lock>>,
    /// What the lock file says once everything is finished.
    clean_text: String,
    dirs: Dirs,
    handles: Handles,
    /// Names appear and go under a share of it and a listing scans under all of it, so that a
    /// listing shows one moment (R11).
    scan: RwLock<()>,
    /// Names whose directory could not be synced: they may vanish in a crash.
    doubtful: Mutex<BTreeSet<String>>,
    next_spare: AtomicU64,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let in_doubt = !self.doubtful.lock().is_empty();
        if let Some(lock) = &self.lock
            && !in_doubt
        {
            // Without it the next start syncs more than it need.
            let _ = lock.write(&self.clean_text);
        }
    }
}

fn io_error(operation: &'static str, key: &str, error: &io::Error) -> StoreError {
    use io::ErrorKind as Io;
    let kind = match error.kind() {
        Io::NotFound => StoreErrorKind::NotFound,
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => StoreErrorKind::Full,
        Io::PermissionDenied | Io::ReadOnlyFilesystem => StoreErrorKind::Refused,
        Io::NotADirectory | Io::IsADirectory | Io::InvalidFilename => StoreErrorKind::Invalid,
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, operation, key, error.to_string())
}

/// An error after a name has appeared: it may be there after a crash or not.
fn doubt(operation: &'static str, key: &str, error: &io::Error) -> StoreError {
    let message = format!("cannot sync its directory: {error}");
    StoreError::new(StoreErrorKind::Unknown, operation, key, message)
}

impl Inner {
    fn is_synced(&self) -> bool {
        self.sync == LocalSync::Always
    }

    /// True if an object must be durable before its write is acknowledged. Under `os` only the WAL
    /// may lag behind: what it is trimmed for, and what a start reads first, must stand.
    fn syncs(&self, key: &str) -> bool {
        self.is_synced() || !layout::is_wal(key)
    }

    fn writable(&self, operation: &'static str, key: &str) -> Result<(), StoreError> {
        key::check(operation, key)?;
        if layout::is_reserved_top(key.split('/').next().unwrap_or(key)) {
            let message = "the directory needs this name itself";
            return Err(StoreError::new(
                StoreErrorKind::Invalid,
                operation,
                key,
                message,
            ));
        }
        if self.lock.is_none() {
            let message = "the directory is open for reading only";
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                operation,
                key,
                message,
            ));
        }
        Ok(())
    }

    fn path(&self, key: &str) -> PathBuf {
        layout::path_of(&self.root, key)
    }

    /// A spare name: the put id, and a number since two tries of one write may run at once.
    fn spare(&self, body: &Payload) -> PathBuf {
        let id = first_slice_put_id(body).map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        let n = self.next_spare.fetch_add(1, Ordering::Relaxed);
        self.root.join(layout::TEMP_DIR).join(format!("{id}-{n}"))
    }

    /// Runs `attempt` in `key`'s directory, anew if that was removed meanwhile.
    fn in_dir<T>(
        &self,
        key: &str,
        mut attempt: impl FnMut(&dirs::Dir, &Path) -> io::Result<T>,
    ) -> io::Result<T> {
        let dir = layout::dir_of(key);
        let path = self.root.join(&dir);
        for _ in 0..DIR_RETRIES {
            let open = self.dirs.ensure(&*self.fs, &dir)?;
            match attempt(&open, &path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.dirs.forget(&dir),
                other => return other,
            }
        }
        Err(io::Error::other("its directory is removed again and again"))
    }

    /// The directory of a number of a write-ahead log.
    fn wal_dir(&self, key: &str) -> Option<PathBuf> {
        layout::is_wal(key).then(|| self.root.join(layout::dir_of(key)))
    }

    /// True if a write is so short that it needs no thread of its own: nothing is created or
    /// synced, and no listing is under way.
    fn writes_at_once(&self, key: &str, dir: Option<&Path>, body: &Payload) -> bool {
        let is_short = !self.syncs(key) && body.len() <= INLINE_MAX;
        is_short
            && !self.scan.is_locked_exclusive()
            && dir.is_some_and(|dir| self.fs.has_spare(dir))
    }

    fn put(&self, key: &str, body: &Payload) -> Result<PutAnswer, StoreError> {
        self.writable("put", key)?;
        let to = self.path(key);
        let written = self.in_dir(key, |_, dir| {
            let mut temp = self.fs.temp(dir, &self.spare(body))?;
            temp.write(body.slices())?;
            if self.syncs(key) {
                temp.sync()?;
            }
            // The name appears under a share of the lock that listings take.
            let _share = self.scan.read();
            match temp.link(&to) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Some(temp)),
                other => other.map(|()| None),
            }
        });
        match written.map_err(|error| io_error("put", key, &error))? {
            None => self.confirm("put", key).map(|()| PutAnswer::Created),
            Some(temp) => self.taken(key, body, temp),
        }
    }

    /// Makes a name durable.
    fn confirm(&self, operation: &'static str, key: &str) -> Result<(), StoreError> {
        if !self.syncs(key) {
            return Ok(());
        }
        let dir = layout::dir_of(key);
        let synced = self.dirs.ensure(&*self.fs, &dir).and_then(|dir| dir.sync());
        synced.map_err(|error| {
            self.doubtful.lock().insert(key.to_owned());
            doubt(operation, key, &error)
        })
    }

    /// The name is taken. Its owner may read it next and call that success (R2), so it must be
    /// durable before this is said.
    fn taken(
        &self,
        key: &str,
        body: &Payload,
        temp: Box<dyn TempFile>,
    ) -> Result<PutAnswer, StoreError> {
        let in_doubt = self.doubtful.lock().contains(key);
        if in_doubt {
            let holder = self.read(key, Some(0..Envelope::LEN as u64))?;
            let ours = first_slice_put_id(body);
            if ours.is_none() || Envelope::peek_put_id(&holder) != ours {
                let message = "the name is taken, but not durable, and its owner has to repeat it";
                return Err(StoreError::new(
                    StoreErrorKind::Unknown,
                    "put",
                    key,
                    message,
                ));
            }
            // The same write again, as a new file and a new entry: the old entry's sync has failed
            // and a second one would lie.
            self.handles.remove(key);
            let to = self.path(key);
            temp.replace(&to)
                .map_err(|error| doubt("put", key, &error))?;
        }
        self.confirm("put", key)?;
        if in_doubt {
            self.doubtful.lock().remove(key);
        }
        Ok(PutAnswer::Exists)
    }

    fn copy(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        self.writable("copy", to)?;
        if self.doubtful.lock().contains(from) {
            let message = format!("`{from}` is not durable yet");
            return Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "copy",
                to,
                message,
            ));
        }
        let source = self.path(from);
        // Asked first, since the link's error does not say which of the two is missing.
        self.fs
            .stat(&source)
            .map_err(|error| io_error("copy", from, &error))?;
        let target = self.path(to);
        let linked = self.in_dir(to, |_, _| {
            let _share = self.scan.read();
            match self.fs.link(&source, &target) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(PutAnswer::Exists),
                other => other.map(|()| PutAnswer::Created),
            }
        });
        let answer = linked.map_err(|error| io_error("copy", to, &error))?;
        self.confirm("copy", to)?;
        Ok(answer)
    }

    fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, StoreError> {
        let failed = |error: &io::Error| io_error("get", key, error);
        let (file, len) = self
            .reading(key, range.is_some())
            .map_err(|error| failed(&error))?;
        let range = range.unwrap_or(0..len);
        key::check_range(key, &range, len)?;
        let bytes = file.read(range.clone()).map_err(|error| failed(&error))?;
        key::check_len(key, &range, bytes.len())?;
        Ok(bytes)
    }

    /// An open file and its length; kept open only for ranges, since whole objects are read once.
    fn reading(&self, key: &str, keep: bool) -> io::Result<(Arc<dyn ReadFile>, u64)> {
        if let Some(open) = self.handles.get(key) {
            return Ok(open);
        }
        let before = self.handles.before();
        let file = self.fs.open(&self.path(key))?;
        let len = file.size()?;
        if keep {
            self.handles.keep(before, key, file.clone(), len);
        }
        Ok((file, len))
    }

    /// The machine's file of an object, to be lent out. A failure is left to the next read.
    fn lend(&self, key: &str) -> Option<(Arc<OpenFile>, u64)> {
        let is_open = self.handles.get(key).is_some();
        if !is_open && self.fs.open_files() >= handles::MAX_LENT {
            return None;
        }
        let (file, len) = self.reading(key, true).ok()?;
        Some((file.shared()?, len))
    }

    fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let stat = self.fs.stat(&self.path(key));
        let stat = stat.map_err(|error| io_error("head", key, &error))?;
        Ok(ObjectMeta {
            key: key.to_owned(),
            size: stat.len,
            modified_ms: stat.modified_ms,
        })
    }

    /// Removes a name. Not synced: a name that comes back after a crash harms nobody (R11).
    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.writable("delete", key)?;
        let removed = {
            let _share = self.scan.read();
            self.fs.remove(&self.path(key))
        };
        self.handles.remove(key);
        self.doubtful.lock().remove(key);
        match removed {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) => {}
            other => other.map_err(|error| io_error("delete", key, &error))?,
        }
        self.drop_empty_shard(key);
        Ok(())
    }

    /// Removes the shard of the last number of a directory. That its numbers are gone is made
    /// durable then, before those of the next directory go: trimming stays ascending in a crash.
    fn drop_empty_shard(&self, key: &str) {
        let dir = layout::dir_of(key);
        let is_last = key
            .parse_last_number()
            .is_some_and(|n| n % layout::SHARD == layout::SHARD - 1);
        if !is_last || !layout::is_shard(&dir) {
            return;
        }
        let _all = self.scan.write();
        // Not empty (a number was re-created) or gone: both are as well.
        if self.fs.remove_dir(&self.root.join(&dir)).is_ok() {
            self.dirs.forget(&dir);
            if self.is_synced() {
                let parent = dir.rsplit_once('/').map_or("", |(parent, _)| parent);
                let synced = self
                    .dirs
                    .ensure(&*self.fs, parent)
                    .and_then(|dir| dir.sync());
                if let Err(error) = synced {
                    tracing::warn!(dir, %error, "cannot sync after trimming");
                }
            }
        }
    }

    /// Moves a file to `lost+found/`, where listings do not go.
    fn set_aside(&self, key: &str) -> Result<bool, StoreError> {
        const OPERATION: &str = "set aside";
        self.writable(OPERATION, key)?;
        let failed = |error: io::Error| io_error(OPERATION, key, &error);
        let lost = self.root.join(layout::LOST_FOUND);
        self.fs.create_dir(&lost).map_err(failed)?;
        let _share = self.scan.read();
        let flat = key.replace('/', "_");
        // A number may be torn more than once in its life.
        for n in 0..u32::MAX {
            match self
                .fs
                .link(&self.path(key), &lost.join(format!("{flat}.{n}")))
            {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                other => {
                    other.map_err(failed)?;
                    break;
                }
            }
        }
        self.fs.remove(&self.path(key)).map_err(failed)?;
        self.handles.remove(key);
        Ok(true)
    }

    /// What `scan` finds after a key that is there still, in its order, at most `limit`. The lock
    /// holds off this process alone: beside a broker, `fsck` may find any name gone, and a link to
    /// nowhere never was an object. A page is asked from its last name, since trims ascend: nothing
    /// is missing that went after what is shown.
    fn those_there(
        &self,
        after: Option<&str>,
        limit: usize,
        scan: impl Fn(Option<&str>, usize) -> io::Result<Vec<String>>,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        let mut found = Vec::new();
        let mut after = after.map(str::to_owned);
        loop {
            let wanted = limit - found.len();
            let keys = scan(after.as_deref(), wanted).map_err(|e| io_error("list", "", &e))?;
            let ended = keys.len() < wanted;
            after = keys.last().cloned().or(after);
            let mut page = Vec::with_capacity(keys.len());
            for key in keys.into_iter().rev() {
                match self.head(&key) {
                    Err(error) if error.kind == StoreErrorKind::NotFound => {}
                    other => page.push(other?),
                }
            }
            found.extend(page.into_iter().rev());
            // Fewer than `limit` would mean the end.
            if ended || found.len() >= limit {
                return Ok(found);
            }
        }
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        let scan =
            |after: Option<&str>, limit| listing::keys(&*self.fs, &self.root, prefix, after, limit);
        let stats = |keys: Vec<String>| {
            keys.into_iter()
                .map(|key| self.head(&key))
                .collect::<Result<Vec<_>, StoreError>>()
        };
        let keys = {
            let _all = self.scan.write();
            scan(after, limit).map_err(|error| io_error("list", prefix, &error))?
        };
        match stats(keys) {
            // One of them is gone meanwhile: once more, as one moment.
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                let _all = self.scan.write();
                self.those_there(after, limit, scan)
            }
            other => other,
        }
    }
}

/// The number at the end of a key.
trait LastNumber {
    fn parse_last_number(&self) -> Option<u64>;
}

impl LastNumber for str {
    fn parse_last_number(&self) -> Option<u64> {
        self.rsplit('/').next().and_then(|name| name.parse().ok())
    }
}

/// The put id, if the header lies in one slice, as it does in all objects written here.
fn first_slice_put_id(body: &Payload) -> Option<crate::envelope::PutId> {
    body.slices()
        .first()
        .and_then(|slice| Envelope::peek_put_id(slice))
}
