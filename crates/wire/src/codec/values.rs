//! Record data and ids that are no topic's.

use std::fmt;

use bytes::Bytes;

/// Record batches as they lie on the wire: slices of shared memory, never joined.
///
/// What is decoded is one slice; what is encoded may be many (a Fetch response made of cached
/// batches).
#[derive(Clone, Default)]
pub struct Records {
    // One slice is the common case, and must not cost a `Vec`.
    first: Bytes,
    rest: Vec<Bytes>,
}

impl Records {
    /// No records.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            first: Bytes::new(),
            rest: Vec::new(),
        }
    }

    /// Appends a slice; an empty one is dropped.
    pub fn push(&mut self, slice: Bytes) {
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
        self.first.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether there is no byte.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// The slices in order, none of them empty.
    pub fn slices(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first)
            .filter(|slice| !slice.is_empty())
            .chain(&self.rest)
    }

    /// The bytes as one slice: shared if there is one slice already, joined otherwise.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        if self.rest.is_empty() {
            return self.first.clone();
        }
        let mut joined = Vec::with_capacity(self.len());
        self.slices()
            .for_each(|slice| joined.extend_from_slice(slice));
        Bytes::from(joined)
    }
}

impl From<Bytes> for Records {
    fn from(first: Bytes) -> Self {
        Self {
            first,
            rest: Vec::new(),
        }
    }
}

impl From<Vec<Bytes>> for Records {
    fn from(slices: Vec<Bytes>) -> Self {
        slices.into_iter().collect()
    }
}

impl FromIterator<Bytes> for Records {
    fn from_iter<I: IntoIterator<Item = Bytes>>(slices: I) -> Self {
        let mut records = Self::new();
        slices.into_iter().for_each(|slice| records.push(slice));
        records
    }
}

/// Equal if the bytes are, however they are cut.
impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        if self.rest.is_empty() && other.rest.is_empty() {
            return self.first == other.first;
        }
        self.len() == other.len() && self.to_bytes() == other.to_bytes()
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
