//! Pieces of a message: memory, or a part of an open file that a socket takes without a copy.

use std::{
    fmt,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    sync::Arc,
};

use bytes::{Buf, Bytes};

/// An open file whose bytes may be sent. It stays readable after its name is gone.
pub trait PayloadFile: fmt::Debug + Send + Sync {
    /// For `sendfile(2)`.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// As the file system's read; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
}

impl PayloadFile for File {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, into, offset)
    }
}

/// A part of a file. Holds the file open, and no memory.
#[derive(Clone, Debug)]
pub struct FileSlice {
    file: Arc<dyn PayloadFile>,
    offset: u64,
    len: usize,
}

impl FileSlice {
    /// `len` bytes of `file` from `offset` on.
    #[must_use]
    pub fn new(file: Arc<dyn PayloadFile>, offset: u64, len: usize) -> Self {
        Self { file, offset, len }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &dyn PayloadFile {
        &*self.file
    }

    /// Where it begins in the file.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads the first `into.len()` bytes of it, fewer if it is shorter. May block.
    ///
    /// # Errors
    /// As the file system's read; `UnexpectedEof` if the file has become shorter.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let wanted = into.len().min(self.len);
        self.file.read_exact_at(&mut into[..wanted], self.offset)?;
        Ok(wanted)
    }
}

/// Equal if they are the same part of the same open file.
impl PartialEq for FileSlice {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && (self.offset, self.len) == (other.offset, other.len)
    }
}

impl Eq for FileSlice {}

/// A piece of what is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slice {
    /// In memory.
    Memory(Bytes),
    /// In a file.
    File(FileSlice),
}

impl Slice {
    /// Bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(file) => file.len,
        }
    }

    /// Whether there is no byte.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are in memory.
    #[inline]
    #[must_use]
    pub const fn memory(&self) -> Option<&Bytes> {
        match self {
            Self::Memory(bytes) => Some(bytes),
            Self::File(_) => None,
        }
    }

    /// Leaves out the first `count` bytes, of which there must be so many.
    pub fn advance(&mut self, count: usize) {
        match self {
            Self::Memory(bytes) => bytes.advance(count),
            Self::File(file) => {
                let count = count.min(file.len);
                file.offset += count as u64;
                file.len -= count;
            }
        }
    }

    /// The bytes: shared if they are in memory, else read, which may block.
    ///
    /// # Errors
    /// As [`FileSlice::read`].
    pub fn to_bytes(&self) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File(file) => {
                let mut bytes = vec![0; file.len];
                file.read(&mut bytes)?;
                Ok(bytes.into())
            }
        }
    }
}

impl Default for Slice {
    fn default() -> Self {
        Self::Memory(Bytes::new())
    }
}

impl From<Bytes> for Slice {
    fn from(bytes: Bytes) -> Self {
        Self::Memory(bytes)
    }
}

impl From<FileSlice> for Slice {
    fn from(file: FileSlice) -> Self {
        Self::File(file)
    }
}
