//! What an answer of a remote store lets one conclude.

use object_store::Error;

use super::http::Seen;
use crate::{
    backend::PutAnswer,
    error::{StoreError, StoreErrorKind},
};

fn text(error: &Error, seen: &Seen) -> String {
    if let Some(message) = &seen.message {
        return message.clone();
    }
    if seen.status.is_some_and(|status| status >= 300) {
        return "refused by the store".to_owned();
    }
    // The innermost cause; those around it repeat the request's URL.
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn build(
    kind: StoreErrorKind,
    operation: &'static str,
    key: &str,
    error: &Error,
    seen: &Seen,
) -> StoreError {
    let mut built = StoreError::new(kind, operation, key, text(error, seen));
    built.status = seen.status;
    built.code.clone_from(&seen.code);
    built
}

/// True if the store says that the source of a copy is missing.
pub(super) fn is_missing(error: &Error, seen: &Seen) -> bool {
    matches!(error, Error::NotFound { .. })
        && kind_of(error, seen, true) == StoreErrorKind::NotFound
}

/// The answer to a create that did not succeed plainly.
pub(super) fn write_answer(
    operation: &'static str,
    key: &str,
    error: Error,
    seen: &Seen,
) -> Result<PutAnswer, StoreError> {
    // 412 and 304: taken. 409: a conflicting request is under way, or (Azure) taken. Which of them
    // does not matter: only a look at the key is proof (R2).
    if matches!(seen.status, Some(412 | 304 | 409)) {
        return Ok(PutAnswer::Exists);
    }
    let kind = kind_of(&error, seen, false);
    Err(build(kind, operation, key, &error, seen))
}

/// The error of a read, a listing or a delete.
pub(super) fn read_error(
    operation: &'static str,
    key: &str,
    error: Error,
    seen: &Seen,
) -> StoreError {
    let kind = if matches!(error, Error::InvalidPath { .. }) {
        StoreErrorKind::Invalid
    } else {
        kind_of(&error, seen, true)
    };
    build(kind, operation, key, &error, seen)
}

/// `reads`: an object that is missing is an answer; to a create it makes no sense (K94).
fn kind_of(error: &Error, seen: &Seen, reads: bool) -> StoreErrorKind {
    use StoreErrorKind as Kind;
    let code = seen.code.as_deref().unwrap_or("");
    let Some(status) = seen.status else {
        return if seen.sent {
            Kind::Unknown
        } else {
            Kind::Unavailable
        };
    };
    match (status, code) {
        (404, "NoSuchBucket" | "ContainerNotFound") => Kind::Refused,
        (404, "NoSuchKey" | "BlobNotFound" | "ResourceNotFound" | "NoSuchVersion") if reads => {
            Kind::NotFound
        }
        // An answer to HEAD has no body. One with a body that does not name the key as missing
        // comes from something in between.
        (404, "") if reads && !seen.had_body => Kind::NotFound,
        (404, _) => Kind::Unavailable,
        (416, _) => Kind::Invalid,
        // K94: these are over after a while, and the second was never carried out.
        (400, "RequestTimeout") | (408, _) => Kind::Unknown,
        (403, "RequestTimeTooSkewed" | "RequestExpired") => Kind::Unavailable,
        (429, _) | (503, "SlowDown" | "ServiceUnavailable" | "ServerBusy" | "Throttling") => {
            Kind::Unavailable
        }
        (507, _) | (_, "XMinioStorageFull" | "InsufficientStorage") => Kind::Full,
        // 200 with an error body: half done for all that one can know.
        (200..=299, "SlowDown" | "InternalError") => Kind::Unknown,
        // Azure's batch of one deletion: the batch succeeds, its part says 404.
        (200..=299, _) if reads && matches!(error, Error::NotFound { .. }) => Kind::NotFound,
        (200..=299, _) => Kind::Unknown,
        (300..=499, _) => Kind::Refused,
        _ => Kind::Unknown,
    }
}
