//! What can be wrong with a message.

use std::fmt;

/// What reading a field comes to. Boxed, since an error is rare, and as large as it is it would
/// have to be moved at each of a thousand fields.
pub(crate) type Read<T> = Result<T, Box<DecodeError>>;

/// What writing a field comes to.
pub(crate) type Written = Result<(), Box<EncodeError>>;

/// Bytes that are not the message they claim to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// The innermost field, as `Struct.field`; empty if no field is to blame.
    pub field: &'static str,
}

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

impl DecodeError {
    /// An error that no field is to blame for.
    #[must_use]
    pub const fn new(kind: DecodeErrorKind) -> Self {
        Self { kind, field: "" }
    }

    #[cold]
    pub(crate) fn boxed(kind: DecodeErrorKind) -> Box<Self> {
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

impl From<Box<DecodeError>> for DecodeError {
    fn from(error: Box<DecodeError>) -> Self {
        *error
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "`{}`: ", self.field)?;
        }
        match &self.kind {
            DecodeErrorKind::Truncated { needed, left } => {
                write!(f, "truncated: {needed} bytes needed, {left} left")
            }
            DecodeErrorKind::NegativeLength(length) => write!(f, "negative length {length}"),
            DecodeErrorKind::TooManyItems { count, left } => {
                write!(f, "{count} items claimed, {left} bytes left")
            }
            DecodeErrorKind::MemoryLimit => f.write_str("too many items for a message of its size"),
            DecodeErrorKind::Null => f.write_str("null where none is allowed"),
            DecodeErrorKind::InvalidUtf8 => f.write_str("not UTF-8"),
            DecodeErrorKind::StringTooLong(length) => write!(f, "string of {length} bytes"),
            DecodeErrorKind::VarintOverflow => f.write_str("varint does not fit"),
            DecodeErrorKind::TagSize { tag, left } => {
                write!(
                    f,
                    "tagged field {tag} is {left} bytes longer than its value"
                )
            }
            DecodeErrorKind::UnsupportedVersion(version) => {
                write!(f, "unsupported version {version}")
            }
            DecodeErrorKind::UnknownApiKey(key) => write!(f, "unknown api key {key}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A message that the version asked for cannot carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeError {
    /// What is wrong.
    pub kind: EncodeErrorKind,
    /// The innermost field, as `Struct.field`; empty if no field is to blame.
    pub field: &'static str,
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

impl EncodeError {
    /// An error that no field is to blame for.
    #[must_use]
    pub const fn new(kind: EncodeErrorKind) -> Self {
        Self { kind, field: "" }
    }

    #[cold]
    pub(crate) fn boxed(kind: EncodeErrorKind) -> Box<Self> {
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

impl From<Box<EncodeError>> for EncodeError {
    fn from(error: Box<EncodeError>) -> Self {
        *error
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "`{}`: ", self.field)?;
        }
        match &self.kind {
            EncodeErrorKind::NotInVersion(version) => {
                write!(f, "version {version} cannot carry this value")
            }
            EncodeErrorKind::Null => f.write_str("null where none is allowed"),
            EncodeErrorKind::TooLong(length) => write!(f, "length {length} does not fit"),
            EncodeErrorKind::UnsupportedVersion(version) => {
                write!(f, "unsupported version {version}")
            }
        }
    }
}

impl std::error::Error for EncodeError {}
