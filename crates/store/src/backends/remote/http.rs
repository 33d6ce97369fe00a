//! The HTTP connector: keeps what the store said about each request.
//!
//! `object_store` hides status and error code. Every request of ours runs in the scope of a
//! task-local note, which the connector fills in; requests of other tasks have notes of their own.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector as TlsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector as TcpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
        HttpResponse, HttpResponseBody, HttpService,
    },
};
use parking_lot::Mutex;

/// Time for a connection to be set up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An idle connection is closed after this long, before most stores close it themselves.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Idle connections kept: as many as WAL objects may be in flight, and as many reads.
const MAX_IDLE: usize = 64;
/// Largest error body that is read, in bytes.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// Largest listing that is read, in bytes: 1,000 keys of 1,024 bytes with their markup.
const MAX_LISTING: usize = 8 * 1024 * 1024;

/// What one request has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The request may have reached the store.
    pub(super) sent: bool,
    /// The answer's status.
    pub(super) status: Option<u16>,
    /// The store's code.
    pub(super) code: Option<String>,
    /// The store's words.
    pub(super) message: Option<String>,
    /// The body of an error was there, whatever it said.
    pub(super) had_body: bool,
}

tokio::task_local! {
    /// The note of the request that this task is making.
    static SEEN: Arc<Mutex<Seen>>;
}

/// Runs one request with a fresh note; returns what was noted.
pub(super) async fn noted<T>(request: impl Future<Output = T>) -> (T, Seen) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let result = SEEN.scope(seen.clone(), request).await;
    let seen = seen.lock().clone();
    (result, seen)
}

fn note(change: impl FnOnce(&mut Seen)) {
    // Requests outside a scope (credentials fetched in the background) have no note.
    let _ = SEEN.try_with(|seen| change(&mut seen.lock()));
}

/// Connections over plain TCP or TLS (ring, Mozilla's roots).
///
/// HTTP/1.1 without pipelining: a connection with a request under way is not used for another one,
/// so a hedge always goes over a connection of its own.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    client: Client<TlsConnector<TcpConnector>, HttpRequestBody>,
    /// Where all requests go instead, for tests: an address, and the bucket its paths start with.
    route: Option<(SocketAddr, String)>,
}

impl Connector {
    /// A connector with its own pool of connections.
    pub(super) fn new() -> Result<Self, String> {
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(60)));
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let provider = rustls::crypto::ring::default_provider();
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(provider)
            .map_err(|error| format!("cannot set up TLS: {error}"))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(tls);
        Ok(Self {
            client,
            route: None,
        })
    }

    /// Sends requests of a bucket's own host name to `address` instead.
    #[cfg(feature = "testing")]
    pub(super) fn routed(self, address: SocketAddr, bucket: &str) -> Self {
        Self {
            route: Some((address, bucket.to_owned())),
            ..self
        }
    }

    /// The URI that a request is sent to.
    fn target(&self, uri: &Uri) -> Option<Uri> {
        let (address, bucket) = self.route.as_ref()?;
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        format!("http://{address}/{bucket}{path}").parse().ok()
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

fn body_error(error: Box<dyn std::error::Error + Send + Sync>) -> HttpError {
    HttpError::new_boxed(HttpErrorKind::Interrupted, error)
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(target) = self.target(request.uri()) {
            *request.uri_mut() = target;
        }
        note(|seen| {
            *seen = Seen {
                sent: true,
                ..Seen::default()
            }
        });
        let is_get = request.method() == Method::GET;
        let is_head = request.method() == Method::HEAD;
        let has_query = request.uri().query().is_some();
        let answer = self.client.request(request).await;
        let response = answer.map_err(|error| {
            if error.is_connect() {
                note(|seen| seen.sent = false);
                return HttpError::new(HttpErrorKind::Connect, error);
            }
            HttpError::new(HttpErrorKind::Unknown, error)
        })?;
        note(|seen| seen.status = Some(response.status().as_u16()));
        let (mut parts, body) = response.into_parts();
        let is_good = parts.status.is_success();
        // An object's bytes are streamed, unless they look like an error in disguise.
        let is_object = is_good && is_get && !has_query && !is_small_xml(&parts.headers);
        if is_object || is_head {
            note_headers(&parts.headers);
            return Ok(HttpResponse::from_parts(parts, streamed(body)));
        }
        let limit = if is_good { MAX_LISTING } else { MAX_ERROR_BODY };
        let bytes = Limited::new(body, limit)
            .collect()
            .await
            .map_err(body_error)?
            .to_bytes();
        if !is_good || is_error(&bytes) {
            note_headers(&parts.headers);
            note_body(&bytes);
            if is_good {
                // 200 with an error body (K94): nothing may take it for success.
                parts.status = StatusCode::INTERNAL_SERVER_ERROR;
            }
        }
        Ok(HttpResponse::from_parts(
            parts,
            HttpResponseBody::from(bytes),
        ))
    }
}

fn streamed(body: Incoming) -> HttpResponseBody {
    HttpResponseBody::new(body.map_err(|error| body_error(error.into())))
}

fn is_small_xml(headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("")
    };
    let len = text(header::CONTENT_LENGTH).parse::<usize>();
    text(header::CONTENT_TYPE).contains("xml") && len.is_ok_and(|len| len <= MAX_ERROR_BODY)
}

fn is_error(body: &Bytes) -> bool {
    let front = String::from_utf8_lossy(&body[..body.len().min(512)]);
    let front = front.trim_start();
    front.starts_with('<') && front.contains("<Error>")
}

/// Azure names its code in a header, S3 the bucket's region.
fn note_headers(headers: &HeaderMap) {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    note(|seen| {
        seen.code = text("x-ms-error-code");
        seen.message = text("x-amz-bucket-region").map(|region| format!("bucket region {region}"));
    });
}

fn note_body(bytes: &Bytes) {
    let body = String::from_utf8_lossy(bytes);
    note(|seen| {
        seen.had_body = !body.trim().is_empty();
        if let Some(code) = element(&body, "Code") {
            seen.code = Some(code);
        }
        if let Some(message) = element(&body, "Message") {
            seen.message = Some(message);
        }
    });
}

/// The text of the first element of this name; enough for the flat error documents of the stores.
fn element(body: &str, name: &str) -> Option<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let (_, rest) = body.split_once(&open)?;
    let (text, _) = rest.split_once(&close)?;
    // Untrusted text that ends up in logs.
    let clean = text
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect::<String>();
    Some(clean.trim().to_owned()).filter(|text| !text.is_empty())
}
