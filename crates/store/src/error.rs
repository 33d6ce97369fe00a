//! What can go wrong with a store, and whether the outcome is known.

use std::fmt;

/// Why a request failed. The kind decides what the caller may conclude, never the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// No object has this key.
    NotFound,
    /// The store refuses for good: wrong credentials, missing bucket, unwritable directory.
    /// Nothing was written.
    Refused,
    /// The store certainly did not carry the request out, and a later try may succeed
    /// (503, throttling, connection refused before anything was sent).
    Unavailable,
    /// The request may or may not have been carried out (time-out, reset, 5xx after sending).
    Unknown,
    /// The answer was short, torn or not what was asked for.
    Corrupt,
    /// No space is left.
    Full,
    /// The request itself is wrong (range beyond the object, bad key).
    Invalid,
}

/// A failed request, with all that the store said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// What may be concluded.
    pub kind: StoreErrorKind,
    /// The operation, for example `put`.
    pub operation: &'static str,
    /// The object's key or the listing's prefix.
    pub key: String,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// The store's own code, for example `NoSuchBucket`.
    pub code: Option<String>,
    /// The cause in words.
    pub message: String,
}

impl StoreError {
    /// An error without HTTP details.
    #[must_use]
    pub fn new(
        kind: StoreErrorKind,
        operation: &'static str,
        key: &str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            operation,
            key: key.to_owned(),
            status: None,
            code: None,
            message: message.into(),
        }
    }

    /// True if the request may have been carried out.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.kind == StoreErrorKind::Unknown
    }

    /// True if a later try of the same request may succeed.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Unavailable | StoreErrorKind::Unknown | StoreErrorKind::Full
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` of `{}` failed: {}",
            self.operation, self.key, self.message
        )?;
        if let Some(status) = self.status {
            write!(f, " (status {status})")?;
        }
        if let Some(code) = &self.code {
            write!(f, " (code `{code}`)")?;
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {}
