//! One request, one answer.

use std::{
    collections::BTreeMap,
    fmt::Write,
    io,
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use tidemill_runtime::Clock;

use super::{S3Action, S3Latency, S3Request, State, date, express};
use crate::{
    backend::{Backend, ObjectMeta, Payload, PutAnswer},
    backends::Memory,
    error::StoreErrorKind,
    testing::Operation,
};

/// Bytes of a body sent at once.
const CHUNK: usize = 256 * 1024;
/// Keys in one page of a listing, at most.
const PAGE: usize = 1_000;

/// Google's XML interface differs in little: in how a create is asked for, and in copies.
const GCS_CONDITION: &str = "x-goog-if-generation-match";
const GCS_COPY_SOURCE: &str = "x-goog-copy-source";

type Body = BoxBody<Bytes, io::Error>;
type Answer = Response<Body>;

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed()
}

fn error(status: u16, code: &str) -> Answer {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
         <Message>an answer of the test server</Message></Error>"
    );
    with_status(status, "application/xml", body)
}

fn with_status(status: u16, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(full(body));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let content_type = header::HeaderValue::from_static(content_type);
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    answer
}

fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text
            .get(at + 1..at + 3)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A request taken apart.
struct Asked {
    operation: Operation,
    bucket: String,
    /// The key, or the prefix of a listing.
    key: String,
    query: BTreeMap<String, String>,
}

fn take_apart(method: &Method, path: &str, query: &str) -> Option<Asked> {
    let (bucket, key) = path
        .strip_prefix('/')?
        .split_once('/')
        .unwrap_or((&path[1..], ""));
    let query: BTreeMap<_, _> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (unescaped(name), unescaped(&value.replace('+', " "))))
        .collect();
    let (bucket, mut key) = (unescaped(bucket), unescaped(key));
    let operation = match *method {
        Method::GET if key.is_empty() => Operation::List,
        Method::GET => Operation::Get,
        Method::PUT if !key.is_empty() => Operation::Put,
        Method::HEAD if !key.is_empty() => Operation::Head,
        Method::DELETE if !key.is_empty() => Operation::Delete,
        _ => return None,
    };
    if operation == Operation::List {
        key = query.get("prefix").cloned().unwrap_or_default();
    }
    Some(Asked {
        operation,
        bucket,
        key,
        query,
    })
}

/// The access key id of a signature, version 4.
fn key_id(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    header.split_once("Credential=")?.1.split('/').next()
}

impl State {
    fn refusal(&self, headers: &HeaderMap) -> Option<Answer> {
        let key_id = key_id(headers).unwrap_or("");
        if !self.key_ids.is_empty() && !self.key_ids.contains(key_id) {
            return Some(error(403, "InvalidAccessKeyId"));
        }
        self.denied_key_ids
            .contains(key_id)
            .then(|| error(403, "AccessDenied"))
    }

    fn delay(&self, asked: &Asked, bytes: u64) -> S3Latency {
        let hook = self.latency.lock().clone();
        let request = S3Request {
            operation: asked.operation,
            key: &asked.key,
            bytes,
        };
        hook.map_or_else(S3Latency::default, |hook| hook(&request))
    }

    fn action(&self, asked: &Asked) -> Option<S3Action> {
        let mut rules = self.rules.lock();
        rules
            .iter_mut()
            .find_map(|rule| rule.take(asked.operation, &asked.key))
    }

    fn count(&self, asked: &Asked, body: u64) {
        let counters = &self.counters;
        let counter = match asked.operation {
            Operation::Put | Operation::Copy => &counters.puts,
            Operation::Get => &counters.gets,
            Operation::Head => &counters.heads,
            Operation::Delete => &counters.deletes,
            Operation::List => &counters.lists,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        counters.bytes_up.fetch_add(body, Ordering::Relaxed);
    }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// The answer of scripts that keep a request from being carried out.
fn instead(action: Option<S3Action>) -> Option<Result<Answer, io::Error>> {
    Some(match action? {
        S3Action::Status(status, code) => Ok(error(status, code)),
        S3Action::ErrorBody(code) => Ok(error(200, code)),
        S3Action::Page404 => Ok(with_status(
            404,
            "text/html",
            "<html>nothing here</html>".to_owned(),
        )),
        S3Action::ResetBefore => Err(reset()),
        _ => return None,
    })
}

/// Answers a request; an error closes the connection without an answer.
pub(super) async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Answer, io::Error> {
    let (parts, mut incoming) = request.into_parts();
    let query = parts.uri.query().unwrap_or("");
    let Some(asked) = take_apart(&parts.method, parts.uri.path(), query) else {
        return Ok(error(405, "MethodNotAllowed"));
    };
    let mut body = Payload::new();
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|_| reset())?;
        if let Ok(data) = frame.into_data() {
            body.push(data);
        }
    }
    let len = body.len();
    state.count(&asked, len);
    let action = state.action(&asked);
    if let Some(scripted) = instead(action) {
        return scripted;
    }
    if let Some(refusal) = state.refusal(&parts.headers) {
        return Ok(refusal);
    }
    let Some(memory) = state.buckets.get(&asked.bucket) else {
        return Ok(error(404, "NoSuchBucket"));
    };
    let clock = state.runtime.clock.clone();
    if express::is_directory(&asked.bucket) {
        if query == "session" {
            state.counters.sessions.fetch_add(1, Ordering::Relaxed);
            let session = express::session(clock.now_ms());
            return Ok(with_status(200, "application/xml", session));
        }
        if !express::has_session(&parts.headers) {
            return Ok(error(403, "AccessDenied"));
        }
    }
    if asked.operation == Operation::Put {
        let delay = state.delay(&asked, len);
        clock.sleep(delay.first_byte + delay.transfer).await;
    }
    let answered = carry_out(&state, memory, &asked, &parts.headers, body).await;
    match action {
        Some(S3Action::StatusAfter(status, code)) => return Ok(error(status, code)),
        Some(S3Action::ResetAfter) => return Err(reset()),
        Some(S3Action::SlowFirstByte(late)) => clock.sleep(late).await,
        _ => {}
    }
    let truncated = action == Some(S3Action::Truncated);
    match answered {
        Found::Answer(answer) => {
            if asked.operation != Operation::Put {
                clock.sleep(state.delay(&asked, 0).first_byte).await;
            }
            Ok(answer)
        }
        Found::Object(answer, bytes) => {
            let delay = state.delay(&asked, bytes.len() as u64);
            clock.sleep(delay.first_byte).await;
            state
                .counters
                .bytes_down
                .fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(answer.map(|()| paced(bytes, delay.transfer, truncated, clock)))
        }
    }
}

/// A body sent in chunks over `transfer`, or only half of it.
fn paced(bytes: Bytes, transfer: Duration, truncated: bool, clock: Clock) -> Body {
    let chunks: Vec<_> = (0..bytes.len())
        .step_by(CHUNK)
        .map(|at| bytes.slice(at..(at + CHUNK).min(bytes.len())))
        .collect();
    let pause = transfer / u32::try_from(chunks.len()).unwrap_or(u32::MAX).max(1);
    let mut frames: Vec<Result<Bytes, io::Error>> = chunks.into_iter().map(Ok).collect();
    if truncated {
        frames = vec![Ok(bytes.slice(..bytes.len() / 2)), Err(reset())];
    }
    let paced = stream::iter(frames).then(move |frame| {
        let clock = clock.clone();
        async move {
            if !pause.is_zero() {
                clock.sleep(pause).await;
            }
            frame.map(Frame::data)
        }
    });
    BodyExt::boxed(StreamBody::new(paced))
}

enum Found {
    Answer(Answer),
    /// Headers, and the body to send.
    Object(Response<()>, Bytes),
}

async fn carry_out(
    state: &State,
    memory: &Memory,
    asked: &Asked,
    headers: &HeaderMap,
    body: Payload,
) -> Found {
    match asked.operation {
        Operation::Put | Operation::Copy => {
            let conditional =
                headers.contains_key(header::IF_NONE_MATCH) || headers.contains_key(GCS_CONDITION);
            let body = match headers.get(GCS_COPY_SOURCE) {
                Some(source) => match copied(memory, source).await {
                    Ok(body) => body,
                    Err(refused) => return Found::Answer(refused),
                },
                None => body,
            };
            Found::Answer(put(state, memory, &asked.key, conditional, body).await)
        }
        Operation::Get => get(memory, asked, headers).await,
        Operation::Head => Found::Answer(match memory.head(&asked.key).await {
            Ok(meta) => {
                let builder = object_headers(&meta).header(header::CONTENT_LENGTH, meta.size);
                builder
                    .body(full(""))
                    .unwrap_or_else(|_| error(500, "InternalError"))
            }
            Err(_) => with_status(404, "application/xml", String::new()),
        }),
        Operation::Delete => Found::Answer(match memory.delete(&asked.key).await {
            Ok(()) => with_status(204, "application/xml", String::new()),
            Err(_) => error(400, "InvalidArgument"),
        }),
        Operation::List => Found::Answer(list(memory, asked).await),
    }
}

/// The body of a copy's source, `bucket/key`.
async fn copied(memory: &Memory, source: &header::HeaderValue) -> Result<Payload, Answer> {
    let source = unescaped(source.to_str().unwrap_or(""));
    let key = source
        .trim_start_matches('/')
        .split_once('/')
        .map_or("", |(_, key)| key);
    let bytes = memory.get(key).await.map_err(|_| error(404, "NoSuchKey"))?;
    Ok(bytes.into())
}

async fn put(
    state: &State,
    memory: &Memory,
    key: &str,
    conditional: bool,
    body: Payload,
) -> Answer {
    let overwrite = !conditional || state.ignores_conditions;
    loop {
        match memory.put_if_absent(key, body.clone()).await {
            Ok(PutAnswer::Created) => {
                let mut answer = with_status(200, "application/xml", String::new());
                let etag = header::HeaderValue::from_static("\"created\"");
                answer.headers_mut().insert(header::ETAG, etag);
                return answer;
            }
            Ok(PutAnswer::Exists) if !overwrite => return error(412, "PreconditionFailed"),
            Ok(PutAnswer::Exists) => {
                // Whatever the answer, the next round tells.
                let _ = memory.delete(key).await;
            }
            Err(refused) => {
                debug_assert_eq!(refused.kind, StoreErrorKind::Invalid);
                return error(400, "InvalidArgument");
            }
        }
    }
}

fn object_headers(meta: &ObjectMeta) -> http::response::Builder {
    let etag = format!("\"{:x}-{:x}\"", meta.size, meta.modified_ms);
    Response::builder()
        .header(header::ETAG, etag)
        .header(header::LAST_MODIFIED, date::http(meta.modified_ms))
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CONTENT_TYPE, "binary/octet-stream")
}

fn parse_range(text: &str, size: u64) -> Option<Range<u64>> {
    let (start, end) = text.strip_prefix("bytes=")?.split_once('-')?;
    if start.is_empty() {
        let last: u64 = end.parse().ok()?;
        return Some(size.saturating_sub(last)..size);
    }
    let start: u64 = start.parse().ok()?;
    let end = if end.is_empty() {
        size
    } else {
        end.parse::<u64>().ok()?.saturating_add(1)
    };
    Some(start..end.min(size))
}

async fn get(memory: &Memory, asked: &Asked, headers: &HeaderMap) -> Found {
    let (Ok(meta), Ok(bytes)) = (memory.head(&asked.key).await, memory.get(&asked.key).await)
    else {
        return Found::Answer(error(404, "NoSuchKey"));
    };
    let size = bytes.len() as u64;
    let wanted = headers
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok());
    let mut builder = object_headers(&meta);
    let mut slice = bytes;
    if let Some(range) = wanted.and_then(|text| parse_range(text, size)) {
        if range.start >= range.end {
            return Found::Answer(error(416, "InvalidRange"));
        }
        let (start, end) = (range.start, range.end);
        let bound = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        slice = slice.slice(bound(start)..bound(end));
        builder = builder.status(StatusCode::PARTIAL_CONTENT).header(
            header::CONTENT_RANGE,
            format!("bytes {start}-{}/{size}", end - 1),
        );
    }
    match builder.header(header::CONTENT_LENGTH, slice.len()).body(()) {
        Ok(answer) => Found::Object(answer, slice),
        Err(_) => Found::Answer(error(500, "InternalError")),
    }
}

/// A page of a listing, and the token of the next one.
async fn page(
    memory: &Memory,
    asked: &Asked,
    limit: usize,
) -> Result<(Vec<ObjectMeta>, Option<String>), Answer> {
    let failed = |_| error(500, "InternalError");
    let token = asked.query.get("continuation-token").map(String::as_str);
    let start_after = asked.query.get("start-after").map(String::as_str);
    if express::is_directory(&asked.bucket) {
        let is_folder = asked.key.is_empty() || asked.key.ends_with('/');
        if start_after.is_some() || !is_folder {
            return Err(error(400, "InvalidArgument"));
        }
        let page = express::page(memory, &asked.key, token, limit).await;
        return page.map_err(failed);
    }
    // The token is the last key of the page before.
    let after = token.or(start_after);
    let mut page = memory
        .list(&asked.key, after, limit + 1)
        .await
        .map_err(failed)?;
    let more = page.len() > limit;
    page.truncate(limit);
    let last = page.last().filter(|_| more).map(|meta| meta.key.clone());
    Ok((page, last))
}

async fn list(memory: &Memory, asked: &Asked) -> Answer {
    if asked.query.contains_key("delimiter") {
        return error(501, "NotImplemented");
    }
    let limit = asked
        .query
        .get("max-keys")
        .and_then(|text| text.parse().ok())
        .unwrap_or(PAGE);
    let limit = limit.min(PAGE);
    let (page, token) = match page(memory, asked, limit).await {
        Ok(page) => page,
        Err(refused) => return refused,
    };
    let more = token.is_some();
    let mut body = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
    );
    let _ = write!(
        body,
        "<IsTruncated>{more}</IsTruncated><KeyCount>{}</KeyCount>",
        page.len()
    );
    if let Some(token) = token {
        let token = escaped(&token);
        let _ = write!(
            body,
            "<NextContinuationToken>{token}</NextContinuationToken>"
        );
    }
    for meta in page {
        let (key, modified) = (escaped(&meta.key), date::iso(meta.modified_ms));
        let _ = write!(
            body,
            "<Contents><Key>{key}</Key><LastModified>{modified}</LastModified><ETag>\"x\"</ETag>\
             <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
            meta.size
        );
    }
    body.push_str("</ListBucketResult>");
    with_status(200, "application/xml", body)
}
