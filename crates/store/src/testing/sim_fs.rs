//! A file system in memory that can lose power.
//!
//! What is not synced is lost in a crash: data of files, and entries of directories. A sync that
//! fails loses what it should have written for good, as Linux does: the next one succeeds without.

mod handles;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Component, Path},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_runtime::Entropy;

use self::handles::{SimDir, SimLock, SimReading, SimTemp};
use crate::backends::directory::fs::{
    DirEntry, DirHandle, Fs, LockAnswer, ReadFile, Space, Stat, TempFile,
};

const ROOT: u64 = 0;

#[derive(Clone, Debug, Default)]
struct File {
    data: Vec<u8>,
    durable: Vec<u8>,
    /// A sync has failed: what is not durable yet never will be.
    lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(u64),
    Dir(u64),
}

#[derive(Clone, Debug, Default)]
struct Dir {
    entries: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    /// Names whose last change a failed sync has lost.
    lost: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, File>,
    dirs: BTreeMap<u64, Dir>,
    next: u64,
    /// Calls so far.
    steps: u64,
    crash_at: Option<u64>,
    crashed: bool,
    /// Counts restarts; handles from before one are dead.
    life: u64,
    failing_syncs: u64,
    capacity: Option<u64>,
    lock_held: bool,
}

/// A file system in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct SimFs(Arc<Mutex<State>>);

impl Default for SimFs {
    fn default() -> Self {
        let mut state = State {
            next: ROOT + 1,
            ..State::default()
        };
        state.dirs.insert(ROOT, Dir::default());
        Self(Arc::new(Mutex::new(state)))
    }
}

/// What becomes of what was not synced.
#[derive(Debug)]
pub enum Crash<'a> {
    /// The process dies, the machine lives: nothing is lost.
    Process,
    /// All of it is lost.
    Power,
    /// Some of it is lost, as the numbers fall: each entry, and the end of each file.
    PowerByChance(&'a Entropy),
}

impl SimFs {
    /// An empty file system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls made so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.0.lock().steps
    }

    /// The call with this number (from 0) and all later ones fail, until [`SimFs::restart`].
    pub fn crash_at(&self, step: u64) {
        self.0.lock().crash_at = Some(step);
    }

    /// The next `times` syncs fail and lose what they should have written.
    pub fn fail_syncs(&self, times: u64) {
        self.0.lock().failing_syncs = times;
    }

    /// Files together may have so many bytes; `None` for any number.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity = bytes;
    }

    /// Ends the process and perhaps the machine; open files are dead, locks are free.
    pub fn restart(&self, crash: &Crash<'_>) {
        let mut state = self.0.lock();
        state.life += 1;
        state.crash_at = None;
        state.crashed = false;
        state.lock_held = false;
        let by_chance = match crash {
            Crash::Process => return,
            Crash::Power => None,
            Crash::PowerByChance(entropy) => Some(*entropy),
        };
        for dir in state.dirs.values_mut() {
            dir.lose(by_chance);
        }
        for file in state.files.values_mut() {
            let from = file.durable.len().min(file.data.len());
            let extra = (file.data.len() - from) as u64;
            let kept = by_chance
                .filter(|_| !file.lost)
                .map_or(0, |entropy| entropy.below(extra + 1));
            let end = from + usize::try_from(kept).unwrap_or(0);
            let data = file.data[..end].to_vec();
            file.data = data;
            file.durable.clone_from(&file.data);
            file.lost = false;
        }
    }
}

impl Dir {
    fn lose(&mut self, by_chance: Option<&Entropy>) {
        let names: BTreeSet<String> = self
            .entries
            .keys()
            .chain(self.durable.keys())
            .cloned()
            .collect();
        for name in names {
            let (now, then) = (self.entries.get(&name), self.durable.get(&name).copied());
            let keeps =
                by_chance.is_some_and(|entropy| !self.lost.contains(&name) && entropy.chance(0.5));
            if now == then.as_ref() || keeps {
                continue;
            }
            match then {
                Some(node) => self.entries.insert(name, node),
                None => self.entries.remove(&name),
            };
        }
        self.lost.clear();
        self.durable = self.entries.clone();
    }

    fn set(&mut self, name: String, node: Option<Node>) {
        self.lost.remove(&name);
        match node {
            Some(node) => self.entries.insert(name, node),
            None => self.entries.remove(&name),
        };
    }

    fn sync(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        let mut durable = self.entries.clone();
        for name in &lost {
            match self.durable.get(name) {
                Some(node) => durable.insert(name.clone(), *node),
                None => durable.remove(name),
            };
        }
        self.durable = durable;
        self.lost = lost;
    }

    fn fail_sync(&mut self) {
        let changed = self
            .entries
            .keys()
            .chain(self.durable.keys())
            .filter(|name| self.entries.get(*name) != self.durable.get(*name))
            .cloned()
            .collect::<Vec<_>>();
        self.lost.extend(changed);
    }
}

fn kind(kind: io::ErrorKind) -> io::Error {
    kind.into()
}

fn parts(path: &Path) -> impl Iterator<Item = String> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    })
}

impl State {
    fn step(&mut self) -> io::Result<()> {
        if self.crash_at.is_some_and(|at| self.steps >= at) {
            self.crashed = true;
        }
        self.steps += 1;
        if self.crashed {
            Err(io::Error::other("the simulated machine is down"))
        } else {
            Ok(())
        }
    }

    fn alive(&mut self, life: u64) -> io::Result<()> {
        if life != self.life {
            return Err(io::Error::other("a handle of a dead process"));
        }
        self.step()
    }

    fn new_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn find(&self, path: &Path) -> io::Result<Node> {
        let mut at = Node::Dir(ROOT);
        for name in parts(path) {
            let Node::Dir(dir) = at else {
                return Err(kind(io::ErrorKind::NotADirectory));
            };
            let dir = self
                .dirs
                .get(&dir)
                .ok_or_else(|| kind(io::ErrorKind::NotFound))?;
            at = *dir
                .entries
                .get(&name)
                .ok_or_else(|| kind(io::ErrorKind::NotFound))?;
        }
        Ok(at)
    }

    fn dir(&mut self, path: &Path) -> io::Result<&mut Dir> {
        match self.find(path)? {
            Node::Dir(id) => self
                .dirs
                .get_mut(&id)
                .ok_or_else(|| kind(io::ErrorKind::NotFound)),
            Node::File(_) => Err(kind(io::ErrorKind::NotADirectory)),
        }
    }

    fn file(&self, path: &Path) -> io::Result<(u64, &File)> {
        match self.find(path)? {
            Node::File(id) => Ok((
                id,
                self.files
                    .get(&id)
                    .ok_or_else(|| kind(io::ErrorKind::NotFound))?,
            )),
            Node::Dir(_) => Err(kind(io::ErrorKind::IsADirectory)),
        }
    }

    /// Changes the entry of `path` in its directory.
    fn enter(&mut self, path: &Path, node: Option<Node>, may_replace: bool) -> io::Result<()> {
        let name = parts(path)
            .last()
            .ok_or_else(|| kind(io::ErrorKind::InvalidInput))?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let dir = self.dir(parent)?;
        let there = dir.entries.contains_key(&name);
        match node {
            Some(_) if there && !may_replace => return Err(kind(io::ErrorKind::AlreadyExists)),
            None if !there => return Err(kind(io::ErrorKind::NotFound)),
            _ => {}
        }
        dir.set(name, node);
        Ok(())
    }

    fn used(&self) -> u64 {
        self.files.values().map(|file| file.data.len() as u64).sum()
    }

    /// True if this sync is to fail.
    fn sync_fails(&mut self) -> bool {
        let fails = self.failing_syncs > 0;
        self.failing_syncs = self.failing_syncs.saturating_sub(1);
        fails
    }
}

impl Fs for SimFs {
    fn temp(&self, dir: &Path, _spare: &Path) -> io::Result<Box<dyn TempFile>> {
        let mut state = self.0.lock();
        state.step()?;
        state.dir(dir)?;
        let id = state.new_id();
        state.files.insert(id, File::default());
        Ok(Box::new(SimTemp {
            fs: self.clone(),
            id,
            life: state.life,
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let mut state = self.0.lock();
        state.step()?;
        let data = Bytes::copy_from_slice(&state.file(path)?.1.data);
        Ok(Arc::new(SimReading {
            fs: self.clone(),
            life: state.life,
            data,
        }))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let mut state = self.0.lock();
        state.step()?;
        let len = state.file(path)?.1.data.len() as u64;
        Ok(Stat {
            len,
            modified_ms: 0,
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        let (id, _) = state.file(from)?;
        state.enter(to, Some(Node::File(id)), false)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.file(path)?;
        state.enter(path, None, true)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        match state.find(path) {
            Ok(Node::Dir(_)) => return Ok(()),
            Ok(Node::File(_)) => return Err(kind(io::ErrorKind::AlreadyExists)),
            Err(_) => {}
        }
        let id = state.new_id();
        state.dirs.insert(id, Dir::default());
        state.enter(path, Some(Node::Dir(id)), false)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        if !state.dir(path)?.entries.is_empty() {
            return Err(kind(io::ErrorKind::DirectoryNotEmpty));
        }
        state.enter(path, None, true)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn DirHandle>> {
        let mut state = self.0.lock();
        state.step()?;
        match state.find(path)? {
            Node::Dir(id) => Ok(Box::new(SimDir {
                fs: self.clone(),
                life: state.life,
                id,
            })),
            Node::File(_) => Err(kind(io::ErrorKind::NotADirectory)),
        }
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = self.0.lock();
        state.step()?;
        let entries = state
            .dir(path)?
            .entries
            .iter()
            .map(|(name, node)| DirEntry {
                name: name.clone(),
                is_dir: matches!(node, Node::Dir(_)),
            });
        Ok(entries.collect())
    }

    fn sync_all(&self, _path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.dirs.values_mut().for_each(Dir::sync);
        for file in state.files.values_mut().filter(|file| !file.lost) {
            file.durable.clone_from(&file.data);
        }
        Ok(())
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        let mut state = self.0.lock();
        state.step()?;
        let total = state.capacity.unwrap_or(u64::MAX);
        Ok(Space {
            free: total.saturating_sub(state.used()),
            total,
        })
    }

    fn lock(&self, path: &Path) -> io::Result<LockAnswer> {
        let mut state = self.0.lock();
        state.step()?;
        let id = match state.file(path) {
            Ok((id, _)) => id,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = state.new_id();
                state.files.insert(id, File::default());
                state.enter(path, Some(Node::File(id)), false)?;
                id
            }
            Err(error) => return Err(error),
        };
        let text = state
            .files
            .get(&id)
            .map(|file| file.data.clone())
            .unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        if state.lock_held {
            return Ok(LockAnswer::Held(text));
        }
        state.lock_held = true;
        let lock = SimLock {
            fs: self.clone(),
            life: state.life,
            id,
        };
        Ok(LockAnswer::Taken(Box::new(lock), text))
    }
}
