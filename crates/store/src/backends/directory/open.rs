//! Opening a directory: lock, clean-up, and what a dead predecessor may have left unsynced.

use std::{
    collections::BTreeSet,
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, atomic::AtomicU64},
};

use parking_lot::{Mutex, RwLock};
use tidemill_runtime::Runtime;

use super::{
    Directory, Inner, RealFs,
    dirs::Dirs,
    fs::{Fs, Lock, LockAnswer},
    handles::Handles,
    layout,
};
use crate::open::OpenError;

/// `local.sync`: when files are synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalSync {
    /// Before a write is acknowledged.
    #[default]
    Always,
    /// The WAL when the operating system sees fit: a power failure may lose or tear acknowledged
    /// writes. All else as under `Always`, so that what was rolled out of the WAL stays.
    Os,
}

impl LocalSync {
    /// Its name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Os => "os",
        }
    }
}

impl fmt::Display for LocalSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LocalSync {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            "os" => Ok(Self::Os),
            _ => Err(format!("`local.sync` is `always` or `os`, not `{text}`")),
        }
    }
}

/// How to open a directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectoryOptions {
    /// When files are synced.
    pub sync: LocalSync,
    /// Takes no lock, changes nothing, and may stand beside a live broker (`fsck`, `inspect`).
    pub read_only: bool,
}

/// Above this many directories one sync of the whole file system is quicker than one each.
const MANY_DIRS: usize = 64;

/// What the lock file says.
#[derive(Default)]
struct LockText {
    pid: Option<String>,
    host: Option<String>,
    started_ms: Option<String>,
    sync: Option<String>,
    state: Option<String>,
}

impl LockText {
    fn parse(text: &str) -> Self {
        let mut parsed = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once('=') else {
                continue;
            };
            let field = match name {
                "pid" => &mut parsed.pid,
                "host" => &mut parsed.host,
                "started_ms" => &mut parsed.started_ms,
                "sync" => &mut parsed.sync,
                "state" => &mut parsed.state,
                _ => continue,
            };
            *field = Some(value.to_owned());
        }
        parsed
    }

    fn holder(&self) -> String {
        let or = |field: &Option<String>| field.clone().unwrap_or_else(|| "unknown".to_owned());
        let (pid, host) = (or(&self.pid), or(&self.host));
        format!(
            "process {pid} on host {host}, started at {} (Unix ms)",
            or(&self.started_ms)
        )
    }
}

fn write_text(runtime: &Runtime, sync: LocalSync, state: &str) -> String {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let (pid, started) = (std::process::id(), runtime.clock.now_ms());
    format!("pid={pid}\nhost={host}\nstarted_ms={started}\nsync={sync}\nstate={state}\n")
}

impl Directory {
    /// Opens `root` on the machine's file system; creates it if need be, unless for reading only.
    ///
    /// # Errors
    /// [`OpenError`] if it cannot be used, or another process holds it (the error says which).
    pub async fn open(
        root: &Path,
        options: DirectoryOptions,
        runtime: Runtime,
    ) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(RealFs::default()), root, options, runtime).await
    }

    /// Opens `root` on another file system, such as a simulated one.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub async fn open_on(
        fs: Arc<dyn Fs>,
        root: &Path,
        options: DirectoryOptions,
        runtime: Runtime,
    ) -> Result<Self, OpenError> {
        let root = root.to_owned();
        let inner_runtime = runtime.clone();
        let work = move || Inner::open(fs, root, options, &inner_runtime);
        let opened = runtime.tasks.blocking("store-open", work).await;
        let inner = opened.map_err(|panic| OpenError::Failed {
            what: panic.to_string(),
        })??;
        Ok(Self {
            inner: Arc::new(inner),
            runtime,
        })
    }
}

impl Inner {
    fn open(
        fs: Arc<dyn Fs>,
        root: PathBuf,
        options: DirectoryOptions,
        runtime: &Runtime,
    ) -> Result<Self, OpenError> {
        let unusable = |error: io::Error| OpenError::Directory {
            path: root.display().to_string(),
            writing: !options.read_only,
            cause: error.to_string(),
        };
        let mut lock = None;
        if options.read_only {
            fs.read_dir(&root).map_err(unusable)?;
        } else {
            create_root(&*fs, &root).map_err(unusable)?;
            lock = Some(take(&*fs, &root, options.sync, runtime)?);
        }
        Ok(Self {
            dirs: Dirs::new(root.clone()),
            fs,
            root,
            sync: options.sync,
            lock,
            clean_text: write_text(runtime, options.sync, "clean"),
            handles: Handles::default(),
            scan: RwLock::default(),
            doubtful: Mutex::new(BTreeSet::new()),
            next_spare: AtomicU64::new(0),
        })
    }
}

/// Creates the directory and those above it that are missing, their names durable.
fn create_root(fs: &dyn Fs, root: &Path) -> io::Result<()> {
    if fs.read_dir(root).is_ok() {
        return Ok(());
    }
    if let Some(parent) = root
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        create_root(fs, parent)?;
    }
    fs.create_dir(root)?;
    let parent = root
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    fs.open_dir(parent.unwrap_or(Path::new(".")))?.sync()
}

fn take(
    fs: &dyn Fs,
    root: &Path,
    sync: LocalSync,
    runtime: &Runtime,
) -> Result<Box<dyn Lock>, OpenError> {
    let path = || root.display().to_string();
    let unusable = |error: io::Error| OpenError::Directory {
        path: path(),
        writing: true,
        cause: error.to_string(),
    };
    let (lock, before) = match fs.lock(&root.join(layout::LOCK_FILE)).map_err(unusable)? {
        LockAnswer::Taken(lock, before) => (lock, LockText::parse(&before)),
        LockAnswer::Held(text) => {
            let holder = LockText::parse(&text).holder();
            return Err(OpenError::Locked {
                path: path(),
                holder,
            });
        }
    };
    // Until everything below is done the file speaks of the predecessor: a crash here repeats it.
    clean_up(fs, root).map_err(unusable)?;
    let fresh = before.pid.is_none();
    let was_clean = fresh || before.state.as_deref() == Some("clean");
    let was_synced = fresh || before.sync.as_deref() == Some("always");
    if !(was_clean && was_synced) {
        settle(fs, root, was_synced).map_err(unusable)?;
    }
    lock.write(&write_text(runtime, sync, "open"))
        .map_err(unusable)?;
    Ok(lock)
}

/// Removes what unfinished creates have left.
fn clean_up(fs: &dyn Fs, root: &Path) -> io::Result<()> {
    let temp = root.join(layout::TEMP_DIR);
    fs.create_dir(&temp)?;
    for entry in fs.read_dir(&temp)? {
        if !entry.is_dir {
            fs.remove(&temp.join(&entry.name))?;
        }
    }
    Ok(())
}

/// A process that died between linking a name and syncing its directory has left a name that the
/// next power failure may take; under `os` also one that stopped in peace has left a WAL that lies
/// in memory only. Whoever opens the directory next decides by what is there, so it must stay.
fn settle(fs: &dyn Fs, root: &Path, names_only: bool) -> io::Result<()> {
    let mut dirs = vec![root.to_owned()];
    let mut next = 0;
    while names_only && next < dirs.len() && dirs.len() <= MANY_DIRS {
        let dir = dirs[next].clone();
        next += 1;
        let entries = fs.read_dir(&dir)?;
        dirs.extend(
            entries
                .iter()
                .filter(|entry| entry.is_dir)
                .map(|e| dir.join(&e.name)),
        );
    }
    if !names_only || dirs.len() > MANY_DIRS {
        return fs.sync_all(root);
    }
    dirs.iter().try_for_each(|dir| fs.open_dir(dir)?.sync())
}
