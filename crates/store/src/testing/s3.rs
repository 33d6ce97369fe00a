//! An S3 server in process, for tests and benchmarks.
//!
//! It keeps objects in memory, honours `If-None-Match: *` atomically, and knows `GET` with ranges,
//! `HEAD`, `PUT`, `DELETE` and `ListObjectsV2`, path-style. Signatures are not verified; the access
//! key id decides.

mod answer;
mod date;
mod express;
mod script;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tidemill_runtime::Runtime;
use tokio::{net::TcpListener, sync::watch};

use crate::{
    backends::{Memory, Remote, remote},
    open::OpenError,
};

pub use script::{S3Action, S3Latency, S3Request, S3Rule};

/// Delays of every request, decided once per request.
type LatencyHook = Arc<dyn Fn(&S3Request<'_>) -> S3Latency + Send + Sync>;

/// What a server knows at start.
#[derive(Clone, Debug, Default)]
pub struct S3Options {
    /// The buckets that exist.
    pub buckets: Vec<String>,
    /// Access key ids that are known; all if empty. Others get `InvalidAccessKeyId`.
    pub key_ids: Vec<String>,
    /// Known access key ids that may do nothing: `AccessDenied`.
    pub denied_key_ids: Vec<String>,
    /// Overwrites although told `If-None-Match: *`, as some stores do.
    pub ignores_conditions: bool,
    /// The address to listen on; a free port of the loopback interface by default.
    pub listen: Option<SocketAddr>,
}

/// Requests and bytes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct S3Counts {
    /// PUT requests.
    pub puts: u64,
    /// GET requests of objects.
    pub gets: u64,
    /// HEAD requests.
    pub heads: u64,
    /// DELETE requests.
    pub deletes: u64,
    /// LIST requests.
    pub lists: u64,
    /// Sessions created, of directory buckets.
    pub sessions: u64,
    /// Bytes of bodies received.
    pub bytes_up: u64,
    /// Bytes of bodies sent.
    pub bytes_down: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) puts: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) heads: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) sessions: AtomicU64,
    pub(crate) bytes_up: AtomicU64,
    pub(crate) bytes_down: AtomicU64,
}

pub(crate) struct State {
    pub(crate) runtime: Runtime,
    pub(crate) buckets: BTreeMap<String, Memory>,
    pub(crate) key_ids: BTreeSet<String>,
    pub(crate) denied_key_ids: BTreeSet<String>,
    pub(crate) ignores_conditions: bool,
    pub(crate) rules: Mutex<Vec<S3Rule>>,
    pub(crate) latency: Mutex<Option<LatencyHook>>,
    pub(crate) counters: Counters,
}

/// A running server; it stops when dropped.
pub struct S3Server {
    address: SocketAddr,
    state: Arc<State>,
    stop: watch::Sender<bool>,
}

impl std::fmt::Debug for S3Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("S3Server").field(&self.address).finish()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl S3Server {
    /// Listens and serves.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub async fn start(options: S3Options, runtime: Runtime) -> io::Result<Self> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(options.listen.unwrap_or(any)).await?;
        let address = listener.local_addr()?;
        let buckets = options.buckets.into_iter();
        let state = Arc::new(State {
            buckets: buckets
                .map(|name| (name, Memory::new(runtime.clock.clone())))
                .collect(),
            runtime: runtime.clone(),
            key_ids: options.key_ids.into_iter().collect(),
            denied_key_ids: options.denied_key_ids.into_iter().collect(),
            ignores_conditions: options.ignores_conditions,
            rules: Mutex::default(),
            latency: Mutex::default(),
            counters: Counters::default(),
        });
        let stop = watch::channel(false).0;
        let accepting = accept(listener, state.clone(), runtime.clone(), stop.subscribe());
        runtime.tasks.spawn("s3-accept", accepting);
        Ok(Self {
            address,
            state,
            stop,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its endpoint, for `AWS_ENDPOINT_URL`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The environment of a client of this server.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Opens a directory bucket (S3 Express One Zone) of this server: requests to its zonal
    /// endpoint come here instead.
    ///
    /// # Errors
    /// As [`open`](crate::open()).
    pub fn open_express(&self, bucket: &str, prefix: &str) -> Result<Remote, OpenError> {
        let mut environment = self.environment();
        environment.remove("AWS_ENDPOINT_URL");
        remote::open_routed(
            &format!("s3://{bucket}/{prefix}"),
            &environment,
            self.address,
        )
    }

    /// The environment of a client that speaks Google's XML interface, which the server knows well
    /// enough for the operations of [`Backend`](crate::Backend).
    #[must_use]
    pub fn gcs_environment(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("GOOGLE_BASE_URL", self.endpoint()),
            ("GOOGLE_BEARER_TOKEN", "test".to_owned()),
        ];
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// The objects of a bucket.
    #[must_use]
    pub fn bucket(&self, name: &str) -> Option<Memory> {
        self.state.buckets.get(name).cloned()
    }

    /// Adds a scripted answer; the first rule that matches a request is used.
    pub fn script(&self, rule: S3Rule) {
        self.state.rules.lock().push(rule);
    }

    /// Removes all scripted answers.
    pub fn clear_script(&self) {
        self.state.rules.lock().clear();
    }

    /// Delays every request as `hook` says.
    pub fn set_latency(&self, hook: impl Fn(&S3Request<'_>) -> S3Latency + Send + Sync + 'static) {
        *self.state.latency.lock() = Some(Arc::new(hook));
    }

    /// Requests and bytes since the start.
    #[must_use]
    pub fn counts(&self) -> S3Counts {
        let counters = &self.state.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        S3Counts {
            puts: read(&counters.puts),
            gets: read(&counters.gets),
            heads: read(&counters.heads),
            deletes: read(&counters.deletes),
            lists: read(&counters.lists),
            sessions: read(&counters.sessions),
            bytes_up: read(&counters.bytes_up),
            bytes_down: read(&counters.bytes_down),
        }
    }
}

async fn accept(
    listener: TcpListener,
    state: Arc<State>,
    runtime: Runtime,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        // A client that is gone before it was accepted is its own business.
        let Ok((socket, _)) = accepted else { continue };
        let _ = socket.set_nodelay(true);
        let (state, mut stop) = (state.clone(), stop.clone());
        runtime.tasks.spawn("s3-connection", async move {
            let service = service_fn(move |request| answer::answer(state.clone(), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service);
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => {}
                // Ends with an error when a script resets it.
                _ = connection => {}
            }
        });
    }
}
