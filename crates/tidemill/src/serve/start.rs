//! Starting: store, cluster, log, broker, listeners, admin endpoint.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use tidemill_broker::{
    Broker, BrokerOptions,
    config::{BrokerConfig, Listener},
    net::Advertised,
};
use tidemill_cluster::{
    MetadataError, RecoverError, StartError as ClusterError, StartOptions,
    format::{BrokerRegistration, Listener as RegisteredListener},
    seal::{SealError, TornPolicy},
    start as start_cluster,
};
use tidemill_log::{
    Log,
    ckpt::ChainError,
    recover::ReplayError,
    roll::{Roll, ShutdownError, SoleLeader},
    wal::StartError as WalError,
};
use tidemill_runtime::{Instant, Runtime};
use tidemill_store::{
    LocalSync, OpenError, OpenOptions, RootError, Store, StoreErrorKind, StoreOptions, open,
};
use tokio::net::TcpSocket;

use super::health::Health;
use crate::{admin, exit::Exit};

/// Connections that wait to be accepted; the system's own bound is usually lower.
const BACKLOG: u32 = 1024;

/// Why the broker did not start.
#[derive(Debug)]
pub enum StartError {
    /// The data cannot be opened.
    Open(OpenError),
    /// The cluster part refused.
    Cluster(ClusterError),
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The admin endpoint.
    Admin(admin::AdminError),
    /// `cluster.id` is not one.
    ClusterId(String),
}

impl StartError {
    /// The exit code: some of these do not get better by another try.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Cluster(ClusterError::Superseded) => Exit::Superseded,
            Self::Cluster(error) if is_damage(error) => Exit::Damaged,
            Self::ClusterId(_) | Self::Open(OpenError::Settings { .. }) => Exit::Usage,
            _ => Exit::Failed,
        }
    }
}

/// True for damage and for objects of a newer version, false if the store has failed.
fn is_damage(error: &ClusterError) -> bool {
    match error {
        ClusterError::Root(error) => {
            matches!(error, RootError::TooNew { .. } | RootError::Invalid { .. })
        }
        ClusterError::Metadata(error) => !matches!(error, MetadataError::Store(_)),
        ClusterError::Seal(error) => !matches!(error, SealError::Store(_)),
        ClusterError::Recover(error) => !matches!(
            error,
            RecoverError::Chain(ChainError::Store(_)) | RecoverError::Replay(ReplayError::Store(_))
        ),
        ClusterError::Wal(_) | ClusterError::Superseded => false,
    }
}

/// True if there was no space for what a start writes.
fn is_full(error: &ClusterError) -> bool {
    let store = match error {
        ClusterError::Root(
            RootError::Refused { error, .. } | RootError::TimedOut { error, .. },
        ) => error,
        ClusterError::Metadata(MetadataError::Store(error))
        | ClusterError::Seal(SealError::Store(error))
        | ClusterError::Wal(WalError::Store(error)) => error,
        _ => return false,
    };
    store.kind == StoreErrorKind::Full
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Cluster(error) if is_full(error) => {
                write!(
                    f,
                    "{error}; not even a start fits on the disk: make room there by something \
                     that is not below the data directory, start again, then delete topics or \
                     records"
                )
            }
            Self::Cluster(error) => error.fmt(f),
            Self::Listen { address, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "`{address}` is in use by another process; stop it, or give another address \
                     with --listen"
                )
            }
            Self::Listen { address, source } => {
                write!(
                    f,
                    "cannot listen on `{address}`: {source}; give an address of this machine with \
                     --listen"
                )
            }
            Self::Admin(error) => error.fmt(f),
            Self::ClusterId(text) => {
                write!(
                    f,
                    "`cluster.id` `{text}` is no cluster id; leave it out to take the data's"
                )
            }
        }
    }
}

impl std::error::Error for StartError {}

/// A broker that serves.
pub struct Running {
    config: Arc<BrokerConfig>,
    store: Store,
    broker: Arc<Broker>,
    /// The log.
    pub log: Arc<Log>,
    roll: Arc<Roll>,
    listening: Vec<(SocketAddr, Advertised)>,
    admin: Option<SocketAddr>,
    took: Duration,
}

/// How often a broker that stops looks whether its data directory is still there.
const GONE_EVERY: Duration = Duration::from_millis(500);

/// Why a stop was not clean.
#[derive(Debug)]
pub enum StopError {
    /// Not all could be stored in time.
    Shutdown(ShutdownError),
    /// The directory of this name was deleted.
    Gone(String),
}

/// Starts a broker.
pub async fn start(config: Arc<BrokerConfig>, runtime: Runtime) -> Result<Running, StartError> {
    let began = runtime.clock.monotonic();
    warn(&config);
    let cluster_id = cluster_id(&config)?;
    // Taken ports must be known before anything is written or sealed.
    let sockets = bind(&config).await?;
    let store = open_store(&config, &runtime).await?;
    let health = Arc::new(Health::new(store.clone()));
    let admin = match config.admin_listen {
        Some(address) => {
            let address = address.to_string();
            let shown = admin::start(&address, health.clone(), &runtime).await;
            Some(shown.map_err(StartError::Admin)?)
        }
        None => None,
    };
    let options = start_options(&config, &store, &runtime, cluster_id);
    let started = start_cluster(options).await.map_err(StartError::Cluster)?;
    for warning in &started.warnings {
        tracing::warn!(%warning, "started after another broker");
    }
    let broker = Broker::new(BrokerOptions {
        cluster: started.cluster.clone(),
        log: started.log.clone(),
        runtime: runtime.clone(),
        config: config.clone(),
    });
    let mut listening = Vec::new();
    for (socket, advertised) in sockets {
        let failed = |source| StartError::Listen {
            address: advertised.host.clone(),
            source,
        };
        let socket = socket.listen(BACKLOG).map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        broker.serve(socket, advertised.clone());
        listening.push((bound, advertised));
    }
    health.serves(broker.clone());
    let took = runtime.clock.monotonic().saturating_duration_since(began);
    let log = started.log.clone();
    let roll = Roll::start(log.clone(), Arc::new(SoleLeader));
    Ok(Running {
        config,
        store,
        broker,
        log,
        roll,
        listening,
        admin,
        took,
    })
}

fn warn(config: &BrokerConfig) {
    for (name, origin) in config.settings.without_effect() {
        tracing::warn!(
            setting = name,
            origin,
            "this Kafka setting has no effect here"
        );
    }
    for listener in config.exposed() {
        tracing::warn!(
            listener = %listener.bind_address(),
            "other machines can reach this listener, and nobody is asked who he is"
        );
    }
    if let Some(admin) = config
        .admin_listen
        .filter(|admin| !admin.ip().is_loopback())
    {
        tracing::warn!(
            listener = %admin,
            setting = "tidemill.admin.listen",
            "other machines can reach this listener, and nobody is asked who he is"
        );
    }
}

fn start_options(
    config: &Arc<BrokerConfig>,
    store: &Store,
    runtime: &Runtime,
    cluster_id: Option<[u8; 16]>,
) -> StartOptions {
    let mut options = StartOptions::new(
        store.clone(),
        registration(config, runtime),
        config.log_limits(),
    );
    options.cluster_id = cluster_id;
    options.exclusive = config.settings.is_local();
    options.patience = config.start_timeout;
    options.torn = match config.local_sync {
        LocalSync::Always => TornPolicy::Corruption,
        LocalSync::Os => TornPolicy::NeverLanded,
    };
    let settings = Arc::clone(config);
    options.settings = Arc::new(move |image, topic| settings.topic_in(image, topic).partition());
    options
}

/// Takes the ports without listening yet: until the broker serves, clients are refused at once
/// instead of waiting.
async fn bind(config: &BrokerConfig) -> Result<Vec<(TcpSocket, Advertised)>, StartError> {
    let mut sockets = Vec::new();
    for (listener, advertised) in &config.listeners {
        let address = listener.bind_address();
        let socket = bind_one(&address, config)
            .await
            .map_err(|source| StartError::Listen { address, source })?;
        sockets.push((socket, advertise(advertised)));
    }
    // Port 0 asks the system for one; clients must then be told which.
    for (socket, advertised) in &mut sockets {
        if advertised.port == 0
            && let Ok(bound) = socket.local_addr()
        {
            advertised.port = bound.port();
        }
    }
    Ok(sockets)
}

async fn bind_one(address: &str, config: &BrokerConfig) -> io::Result<TcpSocket> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host(address).await? {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // Connections of a predecessor that linger do not count as taken.
        socket.set_reuseaddr(true)?;
        // Connections inherit both; the one for receiving counts only if set before they open.
        if let Some(bytes) = config.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = config.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        match socket.bind(address) {
            Ok(()) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn advertise(listener: &Listener) -> Advertised {
    Advertised {
        host: listener.host.clone(),
        port: listener.port,
    }
}

async fn open_store(config: &BrokerConfig, runtime: &Runtime) -> Result<Store, StartError> {
    let options = OpenOptions {
        sync: config.local_sync,
        read_only: false,
        environment: environment(),
    };
    #[cfg(feature = "bench")]
    if let Some(model) = tidemill_bench::store::open_model(&config.data_location, runtime) {
        let what = |error: tidemill_bench::BenchError| OpenError::Settings {
            what: error.to_string(),
        };
        let model = model.map_err(|error| StartError::Open(what(error)))?;
        return Ok(Store::new(model, runtime.clone(), StoreOptions::default()));
    }
    let backend = open(&config.data_location, &options, runtime.clone())
        .await
        .map_err(StartError::Open)?;
    Ok(Store::new(
        backend,
        runtime.clone(),
        StoreOptions::default(),
    ))
}

/// The variables that stores read; those that are no text are none of theirs.
pub fn environment() -> std::collections::BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

fn registration(config: &BrokerConfig, runtime: &Runtime) -> BrokerRegistration {
    let listener = |(_, told): &(Listener, Listener)| RegisteredListener {
        name: told.name.clone(),
        host: told.host.clone(),
        port: told.port,
    };
    BrokerRegistration {
        listeners: config.listeners.iter().map(listener).collect(),
        rack: config.rack.clone(),
        ..BrokerRegistration::new(config.node_id, runtime.clock.now_ms())
    }
}

fn cluster_id(config: &BrokerConfig) -> Result<Option<[u8; 16]>, StartError> {
    let Some(text) = config.cluster_id.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let bad = || StartError::ClusterId(text.to_owned());
    decode_id(text).map(Some).ok_or_else(bad)
}

/// A cluster id as Kafka writes ids: 16 bytes in URL-safe base64 without padding.
fn decode_id(text: &str) -> Option<[u8; 16]> {
    const LENGTH: usize = 22;
    let digit = |c: u8| {
        Some(match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        })
    };
    if text.len() != LENGTH {
        return None;
    }
    let mut bits: u32 = 0;
    let mut count = 0;
    let mut bytes = Vec::with_capacity(16);
    for c in text.bytes() {
        bits = bits << 6 | u32::from(digit(c)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    bytes.try_into().ok()
}

impl Running {
    /// Says where to connect.
    pub fn announce(&self) {
        use std::io::Write;
        let mut out = std::io::stdout().lock();
        let took = self.took.as_millis();
        // If nobody reads standard output there is nobody to tell.
        let _ = writeln!(out, "tidemill is ready after {took} ms");
        for (bound, advertised) in &self.listening {
            // An IPv6 address needs brackets beside a port.
            let told = match advertised.host.parse() {
                Ok(host) => SocketAddr::new(host, advertised.port).to_string(),
                Err(_) => format!("{}:{}", advertised.host, advertised.port),
            };
            let _ = writeln!(out, "  connect to   {told} (listening on {bound})");
        }
        let _ = writeln!(out, "  data         {}", self.store.describe());
        if let Some(admin) = self.admin {
            let _ = writeln!(out, "  metrics      http://{admin}/metrics");
        }
        let _ = out.flush();
        tracing::info!(
            writer = %self.log.writer(),
            node = %self.config.node_id,
            ready_ms = took,
            "serving"
        );
    }

    /// Stops cleanly until `deadline`, or at once where there is nothing left to wait for.
    ///
    /// # Errors
    /// What could not be done in time.
    pub async fn stop(self, deadline: Instant) -> Result<(), StopError> {
        let connections = self.broker.shutdown(deadline);
        let log = self.roll.shutdown(deadline);
        let stopping = async { tokio::join!(connections, log).1 };
        tokio::select! {
            biased;
            stopped = stopping => stopped.map_err(StopError::Shutdown),
            () = self.gone() => Err(StopError::Gone(self.store.describe())),
        }
    }

    /// Ends once the directory that holds everything is not there any more.
    async fn gone(&self) {
        let clock = &self.log.runtime().clock;
        loop {
            clock.sleep(GONE_EVERY).await;
            let space = self.store.backend().space().await;
            if space.is_err_and(|error| error.kind == StoreErrorKind::NotFound) {
                return;
            }
        }
    }
}
