//! What is different in a directory bucket of S3 Express One Zone: sessions, and listings without
//! order.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use super::date;
use crate::{
    backend::{Backend, ObjectMeta},
    backends::Memory,
    error::StoreError,
};

/// The names of directory buckets end so.
pub const SUFFIX: &str = "--x-s3";
/// Carries the session in every request but the one that creates it.
const TOKEN_HEADER: &str = "x-amz-s3session-token";
const TOKEN: &str = "session-of-the-test-server";
/// A session's life.
const LIFE: Duration = Duration::from_secs(300);

pub fn is_directory(bucket: &str) -> bool {
    bucket.ends_with(SUFFIX)
}

pub fn has_session(headers: &HeaderMap) -> bool {
    headers
        .get(TOKEN_HEADER)
        .is_some_and(|token| token == TOKEN)
}

/// The answer to `CreateSession`.
pub fn session(now_ms: i64) -> String {
    let life = i64::try_from(LIFE.as_millis()).unwrap_or(0);
    let expiration = date::iso(now_ms + life);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <CreateSessionResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Credentials>\
         <SessionToken>{TOKEN}</SessionToken><SecretAccessKey>secret</SecretAccessKey>\
         <AccessKeyId>session</AccessKeyId><Expiration>{expiration}</Expiration>\
         </Credentials></CreateSessionResult>"
    )
}

/// A page of a listing, and the token of the next one, which is a position in an order of the
/// server's own.
pub async fn page(
    memory: &Memory,
    prefix: &str,
    token: Option<&str>,
    limit: usize,
) -> Result<(Vec<ObjectMeta>, Option<String>), StoreError> {
    let mut all = memory.list(prefix, None, usize::MAX).await?;
    all.sort_by_key(|meta| crc32c::crc32c(&Bytes::copy_from_slice(meta.key.as_bytes())));
    let at: usize = token.and_then(|token| token.parse().ok()).unwrap_or(0);
    let end = at.saturating_add(limit).min(all.len());
    let next = (end < all.len()).then(|| end.to_string());
    let page = all.drain(at.min(end)..end).collect();
    Ok((page, next))
}
