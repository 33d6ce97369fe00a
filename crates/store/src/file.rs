//! Objects as open files, for readers that need no copy of them.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    sync::Arc,
};

use crate::{
    backends::directory::OpenFile,
    stats::add,
    store::{Shared, Store},
};

/// An object's open file. It stays readable when the object is deleted. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ObjectFile {
    file: Arc<OpenFile>,
    len: u64,
    shared: Arc<Shared>,
}

impl ObjectFile {
    /// Length in bytes when it was opened.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it was empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The descriptor, for `sendfile(2)`.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.file().as_fd()
    }

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// As the file system's read; `UnexpectedEof` if the file ends before.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.file().read_exact_at(into, offset)?;
        add(&self.shared.counters.bytes_down, into.len() as u64);
        Ok(())
    }
}

impl Store {
    /// The object as an open file, if the store has objects as files and lends this one; else, and
    /// after any failure, [`Store::get_range`] is to be asked. Counts as a GET. May block.
    #[must_use]
    pub fn open(&self, key: &str) -> Option<ObjectFile> {
        let lent = self.lent(self.shared.backend.open(key)?);
        add(&self.shared.counters.gets, 1);
        Some(lent)
    }

    /// The same if the file is open already. Asks nothing of the store, and does not block.
    #[must_use]
    pub fn opened(&self, key: &str) -> Option<ObjectFile> {
        Some(self.lent(self.shared.backend.opened(key)?))
    }

    fn lent(&self, (file, len): (Arc<OpenFile>, u64)) -> ObjectFile {
        ObjectFile {
            file,
            len,
            shared: self.shared.clone(),
        }
    }
}
