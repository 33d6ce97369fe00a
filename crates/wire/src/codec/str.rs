//! A string that shares the bytes it was read from.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;

use super::{DecodeError, DecodeErrorKind};

/// A UTF-8 string, cheap to clone, read from a frame without a copy.
///
/// It keeps the whole frame it was read from alive: what outlives its request (a member id, a
/// topic name in an image) is to be stored as [`Str::detached`].
#[derive(Clone, Default)]
pub struct Str(Bytes);

impl Str {
    /// The empty string.
    pub const EMPTY: Self = Self(Bytes::new());

    /// A string that costs nothing.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Takes the bytes as they are.
    ///
    /// # Errors
    /// If they are not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Result<Self, DecodeError> {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(DecodeError::new(DecodeErrorKind::InvalidUtf8)),
        }
    }

    /// The text. Checked again at each call, since `unsafe` is not worth the few nanoseconds.
    #[inline]
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked when it was made")
    }

    /// The bytes, shared.
    #[inline]
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// A copy with memory of its own, which does not keep a frame alive.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

impl Deref for Str {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl From<&'static str> for Str {
    fn from(text: &'static str) -> Self {
        Self::from_static(text)
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl From<Str> for String {
    fn from(text: Str) -> Self {
        text.as_str().to_owned()
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Str {}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<String> for Str {
    fn eq(&self, other: &String) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str {
    // The order of UTF-8 bytes is the order of `str`, as `Borrow` asks for.
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl Hash for Str {
    // The hash of `str`, as `Borrow` asks for.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}
