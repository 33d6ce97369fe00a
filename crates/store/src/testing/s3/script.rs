//! Scripted answers and delays.

use std::time::Duration;

use crate::testing::Operation;

/// A request, as rules and latency see it.
#[derive(Clone, Copy, Debug)]
pub struct S3Request<'a> {
    /// What it asks for.
    pub operation: Operation,
    /// The key, or the prefix of a listing.
    pub key: &'a str,
    /// Bytes of the body: of a PUT as received, of a GET as sent.
    pub bytes: u64,
}

/// How long a request takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct S3Latency {
    /// Until the first byte of the answer, the transfer of a PUT's body not counted.
    pub first_byte: Duration,
    /// For the body's transfer: a PUT's answer and a GET's last byte come so much later.
    pub transfer: Duration,
}

/// What happens instead of the usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum S3Action {
    /// This status and code; not carried out.
    Status(u16, &'static str),
    /// Carried out, then this status and code.
    StatusAfter(u16, &'static str),
    /// Status 200 with an error document of this code; not carried out.
    ErrorBody(&'static str),
    /// A 404 with a page of something in between; not carried out.
    Page404,
    /// The connection is closed without an answer; not carried out.
    ResetBefore,
    /// Carried out, then the connection is closed without an answer.
    ResetAfter,
    /// Carried out; the first byte of the answer comes so late.
    SlowFirstByte(Duration),
    /// Of a GET's body only half is sent, then the connection is closed.
    Truncated,
}

/// A scripted answer.
#[derive(Clone, Debug)]
pub struct S3Rule {
    /// The operation; `None` for all.
    pub operation: Option<Operation>,
    /// What the key (the prefix of a listing) must contain; empty for all.
    pub key: String,
    /// What happens.
    pub action: S3Action,
    /// Matching requests let through first.
    pub skip: u64,
    /// Matching requests it happens to after that; `None` for all.
    pub times: Option<u64>,
}

impl S3Rule {
    /// `action` for every `operation` on keys that contain `key`.
    #[must_use]
    pub fn new(operation: Operation, key: impl Into<String>, action: S3Action) -> Self {
        Self {
            operation: Some(operation),
            key: key.into(),
            action,
            skip: 0,
            times: None,
        }
    }

    /// `action` for every request.
    #[must_use]
    pub fn all(action: S3Action) -> Self {
        Self {
            operation: None,
            key: String::new(),
            action,
            skip: 0,
            times: None,
        }
    }

    /// Only the first `times`.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    pub(super) fn take(&mut self, operation: Operation, key: &str) -> Option<S3Action> {
        let fits = self.operation.is_none_or(|wanted| wanted == operation)
            && key.contains(&self.key)
            && self.times != Some(0);
        if !fits {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if let Some(times) = &mut self.times {
            *times -= 1;
        }
        Some(self.action)
    }
}
