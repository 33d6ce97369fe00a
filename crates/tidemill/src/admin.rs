//! The admin endpoint: `/metrics`, `/health/live`, `/health/ready`.
//!
//! Plain HTTP on `tidemill.admin.listen`, loopback by default: it has no authentication.

use std::{convert::Infallible, fmt, io, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tidemill_runtime::Runtime;
use tokio::{net::TcpListener, sync::Semaphore};

/// Connections served at once; more wait in the listen queue.
const CONNECTIONS_MAX: usize = 64;
/// Header time-out and largest header; hyper's own bound on both is looser.
const HEADER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
const HEADER_BYTES_MAX: usize = 16 << 10;

/// What the endpoint shows.
pub trait Admin: Send + Sync + 'static {
    /// Prometheus text.
    fn metrics(&self) -> String;
    /// `Ok` if clients can be served; otherwise why not.
    fn ready(&self) -> Result<(), String>;
}

/// The endpoint could not be opened.
#[derive(Debug)]
pub struct AdminError {
    address: String,
    source: io::Error,
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot listen on `{}` for `tidemill.admin.listen`: {}; name another address, or none \
             with an empty value",
            self.address, self.source
        )
    }
}

impl std::error::Error for AdminError {}

/// Opens the endpoint and serves it in the background.
///
/// # Errors
/// [`AdminError`] if the address is taken or is none.
pub async fn start(
    address: &str,
    admin: Arc<dyn Admin>,
    runtime: &Runtime,
) -> Result<SocketAddr, AdminError> {
    let failed = |source| AdminError {
        address: address.to_owned(),
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    runtime
        .tasks
        .spawn("admin", accept(listener, admin, runtime.clone()));
    Ok(bound)
}

async fn accept(listener: TcpListener, admin: Arc<dyn Admin>, runtime: Runtime) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: others must close theirs first.
                tracing::warn!(%error, "admin connection refused");
                runtime
                    .clock
                    .sleep(std::time::Duration::from_millis(100))
                    .await;
                continue;
            }
        };
        let admin = admin.clone();
        runtime.tasks.spawn("admin-connection", async move {
            let service = service_fn(move |request| {
                let admin = admin.clone();
                async move { Ok::<_, Infallible>(answer(&request, &*admin)) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(HEADER_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "admin connection ended");
            }
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, admin: &dyn Admin) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD\n".to_owned(),
        );
    }
    match request.uri().path() {
        "/metrics" => text(StatusCode::OK, admin.metrics()),
        "/health/live" => text(StatusCode::OK, "live\n".to_owned()),
        "/health/ready" => match admin.ready() {
            Ok(()) => text(StatusCode::OK, "ready\n".to_owned()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        _ => text(
            StatusCode::NOT_FOUND,
            "there are `/metrics`, `/health/live` and `/health/ready`\n".to_owned(),
        ),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    response
}
