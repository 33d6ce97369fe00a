//! Open files, directories and locks of the simulated file system.

use std::{io, ops::Range, path::Path};

use bytes::Bytes;

use super::{Node, SimFs, kind};
use crate::backends::directory::fs::{DirHandle, Lock, ReadFile, TempFile};

#[derive(Debug)]
pub(super) struct SimTemp {
    pub(super) fs: SimFs,
    pub(super) id: u64,
    pub(super) life: u64,
}

impl TempFile for SimTemp {
    fn write(&mut self, slices: &[Bytes]) -> io::Result<()> {
        let mut state = self.fs.0.lock();
        for slice in slices {
            state.alive(self.life)?;
            let used = state.used() + slice.len() as u64;
            if state.capacity.is_some_and(|capacity| used > capacity) {
                return Err(kind(io::ErrorKind::StorageFull));
            }
            if let Some(file) = state.files.get_mut(&self.id) {
                file.data.extend_from_slice(slice);
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.fs.0.lock();
        state.alive(self.life)?;
        let fails = state.sync_fails();
        let Some(file) = state.files.get_mut(&self.id) else {
            return Ok(());
        };
        file.lost |= fails;
        if !file.lost {
            file.durable.clone_from(&file.data);
        }
        if fails {
            Err(io::Error::other("input/output error"))
        } else {
            Ok(())
        }
    }

    fn link(&mut self, to: &Path) -> io::Result<()> {
        let mut state = self.fs.0.lock();
        state.alive(self.life)?;
        let node = Node::File(self.id);
        state.enter(to, Some(node), false)
    }

    fn replace(self: Box<Self>, to: &Path) -> io::Result<()> {
        let mut state = self.fs.0.lock();
        state.alive(self.life)?;
        state.enter(to, Some(Node::File(self.id)), true)
    }
}

impl Drop for SimTemp {
    fn drop(&mut self) {
        let mut state = self.fs.0.lock();
        let node = Node::File(self.id);
        let named = state.dirs.values().any(|dir| {
            dir.entries
                .values()
                .chain(dir.durable.values())
                .any(|it| *it == node)
        });
        if !named {
            state.files.remove(&self.id);
        }
    }
}

#[derive(Debug)]
pub(super) struct SimReading {
    pub(super) fs: SimFs,
    pub(super) life: u64,
    pub(super) data: Bytes,
}

impl ReadFile for SimReading {
    fn size(&self) -> io::Result<u64> {
        Ok(self.data.len() as u64)
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.fs.0.lock().alive(self.life)?;
        let bound = |at: u64| {
            usize::try_from(at)
                .unwrap_or(usize::MAX)
                .min(self.data.len())
        };
        Ok(self.data.slice(bound(range.start)..bound(range.end)))
    }
}

#[derive(Debug)]
pub(super) struct SimDir {
    pub(super) fs: SimFs,
    pub(super) life: u64,
    pub(super) id: u64,
}

impl DirHandle for SimDir {
    fn sync(&self) -> io::Result<()> {
        let mut state = self.fs.0.lock();
        state.alive(self.life)?;
        let fails = state.sync_fails();
        let Some(dir) = state.dirs.get_mut(&self.id) else {
            return Ok(());
        };
        if fails {
            dir.fail_sync();
            return Err(io::Error::other("input/output error"));
        }
        dir.sync();
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct SimLock {
    pub(super) fs: SimFs,
    pub(super) life: u64,
    pub(super) id: u64,
}

impl Lock for SimLock {
    fn write(&self, text: &str) -> io::Result<()> {
        let mut state = self.fs.0.lock();
        state.alive(self.life)?;
        if let Some(file) = state.files.get_mut(&self.id) {
            file.data = text.as_bytes().to_vec();
        }
        Ok(())
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.fs.0.lock();
        if state.life == self.life {
            state.lock_held = false;
        }
    }
}
