//! What can be wrong with a message.

use std::fmt;

/// What reading a field comes to. Boxed, since an error is rare, and as large as it is it would
/// have to be moved at each of a thousand fields.
pub(crate) type Read<T> = Result<T, Box<DecodeError>>;

/// What writing a field comes to.
pub(crate) type Written = Result<(), Box<EncodeError>>;

/// Bytes that are not the message they claim to be.
pub type DecodeError = FieldError<DecodeErrorKind>;

/// A message that the version asked for cannot carry.
pub type EncodeError = FieldError<EncodeErrorKind>;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError<K> {
    /// What is wrong.
    pub kind: K,
    /// The innermost field, as `Struct.field`; empty if no field is to blame.
    pub field: &'static str,
}

impl<K> FieldError<K> {
    /// An error that no field is to blame for.
    #[must_use]
    pub const fn new(kind: K) -> Self {
        Self { kind, field: "" }
    }

    #[cold]
    pub(crate) fn boxed(kind: K) -> Box<Self> {
        Box::new(Self::new(kind))
    }

    /// Names the field, unless an inner field has been named already.
    #[cold]
    pub(crate) fn at(mut self, field: &'static str) -> Self {
        if self.field.is_empty() {
            self.field = field;
        }
        self
    }
}

impl<K> From<Box<FieldError<K>>> for FieldError<K> {
    fn from(error: Box<FieldError<K>>) -> Self {
        *error
    }
}

impl<K: fmt::Display> fmt::Display for FieldError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "`{}`: ", self.field)?;
        }
        self.kind.fmt(f)
    }
}

impl<K: fmt::Debug + fmt::Display> std::error::Error for FieldError<K> {}

/// The ways in which bytes can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The bytes end before the value does.
    Truncated {
        /// Bytes that the value needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A length or count below -1.
    NegativeLength(i64),
    /// An array's count exceeds what the bytes left could hold.
    TooManyItems {
        /// The count as claimed.
        count: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// The decoded arrays would take far more memory than the bytes they came from.
    MemoryLimit,
    /// Null in a field, or in a version, that has no null.
    Null,
    /// A string that is not UTF-8.
    InvalidUtf8,
    /// A string longer than Kafka allows (32,767 bytes).
    StringTooLong(usize),
    /// A variable-length integer that does not fit.
    VarintOverflow,
    /// A tagged field whose size is not that of its value.
    TagSize {
        /// The field's tag.
        tag: u32,
        /// Bytes of the field that its value did not take.
        left: usize,
    },
    /// No such version of this message.
    UnsupportedVersion(i16),
    /// No such API key.
    UnknownApiKey(i16),
}

impl fmt::Display for DecodeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, left } => {
                write!(f, "truncated: {needed} bytes needed, {left} left")
            }
            Self::NegativeLength(length) => write!(f, "negative length {length}"),
            Self::TooManyItems { count, left } => {
                write!(f, "{count} items claimed, {left} bytes left")
            }
            Self::MemoryLimit => f.write_str("too many items for a message of its size"),
            Self::Null => f.write_str("null where none is allowed"),
            Self::InvalidUtf8 => f.write_str("not UTF-8"),
            Self::StringTooLong(length) => write!(f, "string of {length} bytes"),
            Self::VarintOverflow => f.write_str("varint does not fit"),
            Self::TagSize { tag, left } => {
                write!(
                    f,
                    "tagged field {tag} is {left} bytes longer than its value"
                )
            }
            Self::UnsupportedVersion(version) => {
                write!(f, "unsupported version {version}")
            }
            Self::UnknownApiKey(key) => write!(f, "unknown api key {key}"),
        }
    }
}

/// The ways in which a message cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeErrorKind {
    /// A value other than the default in a field that the version lacks and that may not be
    /// dropped.
    NotInVersion(i16),
    /// Null in a field, or in a version, that has no null.
    Null,
    /// A string, an array or a frame too long for its length field.
    TooLong(usize),
    /// No such version of this message.
    UnsupportedVersion(i16),
}

impl fmt::Display for EncodeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInVersion(version) => {
                write!(f, "version {version} cannot carry this value")
            }
            Self::Null => f.write_str("null where none is allowed"),
            Self::TooLong(length) => write!(f, "length {length} does not fit"),
            Self::UnsupportedVersion(version) => {
                write!(f, "unsupported version {version}")
            }
        }
    }
}
