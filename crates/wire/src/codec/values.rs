//! Record data and ids that are no topic's.

use std::{fmt, io};

use bytes::Bytes;

use super::Slice;

/// Record batches as they lie on the wire: slices of shared memory or of files, never joined.
///
/// What is decoded is one slice of memory; what is encoded may be many (a Fetch response made of
/// cached batches), and parts of files.
#[derive(Clone, Default)]
pub struct Records {
    // One slice is the common case, and must not cost a `Vec`.
    first: Slice,
    rest: Vec<Slice>,
}

impl Records {
    /// No records.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            first: Slice::Memory(Bytes::new()),
            rest: Vec::new(),
        }
    }

    /// Appends a slice; an empty one is dropped.
    pub fn push(&mut self, slice: impl Into<Slice>) {
        let slice = slice.into();
        if slice.is_empty() {
        } else if self.first.is_empty() {
            self.first = slice;
        } else {
            self.rest.push(slice);
        }
    }

    /// Bytes in all slices together.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(Slice::len).sum::<usize>()
    }

    /// Whether there is no byte.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// The slices in order, none of them empty.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        std::iter::once(&self.first)
            .filter(|slice| !slice.is_empty())
            .chain(&self.rest)
    }

    /// The bytes as one slice: shared if there is one slice of memory, else joined, and read where
    /// they lie in files, which may block.
    ///
    /// # Errors
    /// As a file's read.
    pub fn read(&self) -> io::Result<Bytes> {
        if self.rest.is_empty() {
            return self.first.to_bytes();
        }
        let mut joined = Vec::with_capacity(self.len());
        for slice in self.slices() {
            match slice.memory() {
                Some(bytes) => joined.extend_from_slice(bytes),
                None => joined.extend_from_slice(&slice.to_bytes()?),
            }
        }
        Ok(joined.into())
    }

    /// The same of records that lie in memory, as all do that were decoded: that never fails. Of
    /// others that cannot be read there are no bytes at all, rather than some of them.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.read().unwrap_or_default()
    }
}

impl From<Bytes> for Records {
    fn from(first: Bytes) -> Self {
        Self {
            first: Slice::Memory(first),
            rest: Vec::new(),
        }
    }
}

impl<S: Into<Slice>> From<Vec<S>> for Records {
    fn from(slices: Vec<S>) -> Self {
        slices.into_iter().collect()
    }
}

impl<S: Into<Slice>> FromIterator<S> for Records {
    fn from_iter<I: IntoIterator<Item = S>>(slices: I) -> Self {
        let mut records = Self::new();
        slices.into_iter().for_each(|slice| records.push(slice));
        records
    }
}

/// Equal if the bytes are, however they are cut; never if a file cannot be read.
impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        if self.rest.is_empty() && other.rest.is_empty() {
            return self.first == other.first;
        }
        let same = || Some(self.read().ok()? == other.read().ok()?);
        self.len() == other.len() && same() == Some(true)
    }
}

impl Eq for Records {}

/// The size only: record data is long, and is other people's.
impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Records({} bytes in {} slices)",
            self.len(),
            self.slices().count()
        )
    }
}

/// A UUID that is not a topic's (a member, a directory, a client instance).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Kafka's "no id".
    pub const ZERO: Self = Self([0; 16]);
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

/// Lower-case hexadecimal with the UUID's hyphens.
impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::ids::TopicId(self.0).fmt(f)
    }
}
