//! One broker: what all handlers share, and its life.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tidemill_cluster::Cluster;
use tidemill_log::Log;
use tidemill_runtime::{Instant, Runtime};
use tidemill_wire::{Str, ids::ProducerId};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    api,
    config::BrokerConfig,
    fetch::{cold::ColdReads, session::SessionCache},
    groups::Coordinator,
    metrics::{Metrics, gauge},
    net::{
        Advertised, Call, Frame, NetLimits, NetShared, Peer, Phase, Service, Weight, accept_loop,
        next_connection, serve_connection,
    },
    topics::TopicCache,
    validation::Validation,
};

/// How often producers that have long been silent are forgotten.
const PRODUCER_EXPIRY_INTERVAL: Duration = Duration::from_secs(600);

/// Time left at shutdown to tell clients that their requests have failed.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How often shutdown looks whether the last connection has gone.
const SHUTDOWN_POLL: Duration = Duration::from_millis(10);

/// What a broker is made of.
pub struct BrokerOptions {
    /// The metadata log; this broker has registered there.
    pub cluster: Arc<Cluster>,
    /// The log of this broker's writer.
    pub log: Arc<Log>,
    /// Clock, entropy, tasks.
    pub runtime: Runtime,
    /// Settings.
    pub config: Arc<BrokerConfig>,
}

/// A broker. Shared by all its connections.
pub struct Broker {
    cluster: Arc<Cluster>,
    log: Arc<Log>,
    runtime: Runtime,
    config: Arc<BrokerConfig>,
    metrics: Metrics,
    sessions: SessionCache,
    cold_reads: Arc<ColdReads>,
    topics: TopicCache,
    validation: Validation,
    net: NetShared,
    phase: watch::Sender<Phase>,
    next_producer: AtomicU32,
    cluster_id: Str,
    pub(crate) coordinator: Arc<Coordinator>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("writer", &self.log.writer())
            .finish_non_exhaustive()
    }
}

impl Broker {
    /// A broker that serves nobody yet. Its periodic work starts here.
    #[must_use]
    pub fn new(options: BrokerOptions) -> Arc<Self> {
        let BrokerOptions {
            cluster,
            log,
            runtime,
            config,
        } = options;
        let broker = Arc::new(Self {
            metrics: Metrics::default(),
            sessions: SessionCache::new(runtime.entropy.fork(), config.fetch_sessions_max),
            cold_reads: ColdReads::new(runtime.clone()),
            topics: TopicCache::default(),
            validation: Validation::new(runtime.tasks.clone()),
            net: NetShared::new(NetLimits::from(&*config), runtime.clock.clone()),
            phase: watch::channel(Phase::Run).0,
            next_producer: AtomicU32::new(0),
            cluster_id: Str::from(base64url(&cluster.cluster_id())),
            coordinator: Coordinator::new(
                log.clone(),
                cluster.clone(),
                runtime.clone(),
                config.groups,
            ),
            cluster,
            log,
            runtime,
            config,
        });
        broker.apply_topic_configs();
        broker.lead_groups();
        let weak = Arc::downgrade(&broker);
        let (clock, mut phase) = (broker.runtime.clock.clone(), broker.phase.subscribe());
        broker.runtime.tasks.spawn("producer expiry", async move {
            loop {
                tokio::select! {
                    biased;
                    _ = phase.wait_for(|phase| *phase != Phase::Run) => return,
                    () = clock.sleep(PRODUCER_EXPIRY_INTERVAL) => {}
                }
                let Some(broker) = weak.upgrade() else { return };
                broker.log.expire_producers();
            }
        });
        broker
    }

    /// Serves a listener until [`Broker::shutdown`]. Clients are told to come back to `advertised`.
    pub fn serve(self: &Arc<Self>, listener: TcpListener, advertised: Advertised) {
        let tasks = self.runtime.tasks.clone();
        let accept = accept_loop(
            Arc::clone(self),
            self.net.clone(),
            tasks.clone(),
            listener,
            advertised,
            self.phase.subscribe(),
        );
        tasks.spawn("listener", accept);
    }

    /// Serves one stream that is no socket of a listener (tests, simulation).
    pub fn serve_stream<IO>(self: &Arc<Self>, stream: IO, advertised: Advertised)
    where
        IO: crate::net::Transport + 'static,
    {
        let peer = Peer {
            connection: next_connection(),
            address: None,
            advertised: Arc::new(advertised),
            produce_turn: Arc::default(),
            group_turn: Arc::default(),
        };
        let serve = serve_connection(
            Arc::clone(self),
            self.net.clone(),
            Arc::new(peer),
            stream,
            self.phase.subscribe(),
        );
        self.runtime.tasks.spawn("connection", serve);
    }

    /// Accepts and reads no more, answers what runs (waiting fetches at once), and closes all
    /// connections; what is still unanswered at `deadline` is dropped. If the store has not taken
    /// what is pending [`LAST_ANSWERS`] before that, the log is closed and those who wait are told
    /// REQUEST_TIMED_OUT. The caller drains the log afterwards.
    pub async fn shutdown(&self, deadline: Instant) {
        self.phase.send_replace(Phase::Drain);
        let clock = &self.runtime.clock;
        let left = deadline.saturating_duration_since(clock.monotonic());
        let patience = left.saturating_sub(LAST_ANSWERS);
        if clock
            .timeout(patience, self.no_connections())
            .await
            .is_err()
        {
            self.log.close();
            if clock
                .timeout_at(deadline, self.no_connections())
                .await
                .is_err()
            {
                let connections = self.metrics.connections();
                tracing::warn!(connections, "connections cut off");
            }
        }
        self.phase.send_replace(Phase::Stop);
    }

    /// True once the broker has begun to shut down.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.phase.borrow() != Phase::Run
    }

    async fn no_connections(&self) {
        while self.metrics.connections() > 0 {
            self.runtime.clock.sleep(SHUTDOWN_POLL).await;
        }
    }

    /// Ends once the broker has begun to shut down.
    pub(crate) async fn draining(&self) {
        // The sender lives as long as `self`.
        let _ = self
            .phase
            .subscribe()
            .wait_for(|phase| *phase != Phase::Run)
            .await;
    }

    /// The metadata log.
    #[must_use]
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Clock, entropy, tasks.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Settings.
    #[must_use]
    pub fn config(&self) -> &Arc<BrokerConfig> {
        &self.config
    }

    /// All that is counted, in Prometheus text format.
    pub fn render_metrics(&self, out: &mut String) {
        self.metrics.render(self.log.stages(), out);
        let sessions = self.sessions.len() as u64;
        gauge(
            "tidemill_fetch_sessions",
            "Incremental fetch sessions.",
            sessions,
            out,
        );
        let pending = self.log.pending_bytes();
        gauge(
            "tidemill_pending_bytes",
            "Bytes appended and not yet durable.",
            pending,
            out,
        );
        let partitions = self.log.partitions().len() as u64;
        gauge(
            "tidemill_partitions",
            "Partitions led by this broker.",
            partitions,
            out,
        );
        let panics = self.runtime.tasks.panics();
        gauge(
            "tidemill_task_panics",
            "Tasks that ended by a panic.",
            panics,
            out,
        );
    }

    /// Counters.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The cluster's id as Kafka writes ids: 16 bytes in URL-safe base64 without padding.
    pub(crate) fn cluster_id(&self) -> Str {
        self.cluster_id.clone()
    }

    pub(crate) fn sessions(&self) -> &SessionCache {
        &self.sessions
    }

    /// Reads of the store for Fetch requests.
    pub(crate) fn cold_reads(&self) -> &Arc<ColdReads> {
        &self.cold_reads
    }

    pub(crate) fn topics(&self) -> &TopicCache {
        &self.topics
    }

    pub(crate) fn validation(&self) -> &Validation {
        &self.validation
    }

    /// A producer id nobody has had: the writer id makes it unique, so nothing is written.
    pub(crate) fn new_producer_id(&self) -> ProducerId {
        let counter = self.next_producer.fetch_add(1, Ordering::Relaxed);
        let writer = self.log.writer().0 & u64::from(u32::MAX >> 1);
        ProducerId(((writer << 32) | u64::from(counter)).cast_signed())
    }
}

fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for digit in 0..=group.len() {
            let index = (bits >> (18 - 6 * digit)) & 63;
            out.push(char::from(DIGITS[index as usize]));
        }
    }
    out
}

impl Service for Broker {
    fn call(self: &Arc<Self>, peer: &Arc<Peer>, frame: Frame) -> Option<Call> {
        let bytes = frame.bytes.len() as u64;
        let mut call = api::call(self, peer, frame)?;
        if call.weight == Weight::Produce && self.log.must_wait_for_space(bytes) {
            // Muting alone would let each connection's next request in once the last is answered.
            let (log, reply) = (Arc::clone(&self.log), call.reply);
            let peer = Arc::clone(peer);
            call.reply = Box::pin(async move {
                // Of one connection, no small one passes a large one: producers number them.
                let turn = peer.produce_turn.lock().await;
                let taken = log.wait_for_space(bytes).await;
                drop(turn);
                let answer = reply.await;
                drop(taken);
                answer
            });
        }
        Some(call)
    }

    fn no_room(&self) -> Option<BoxFuture<'static, ()>> {
        if self.log.is_below_limit() {
            return None;
        }
        let log = Arc::clone(&self.log);
        Some(Box::pin(async move { log.below_limit().await }))
    }

    fn wrote(&self, ready: Option<Duration>, committed: Option<Duration>) {
        let stages = self.metrics.stages();
        ready.into_iter().for_each(|took| stages.send.observe(took));
        let first_byte = &stages.first_byte;
        committed
            .into_iter()
            .for_each(|took| first_byte.observe(took));
    }

    fn connected(&self) {
        self.metrics.connected();
    }

    fn disconnected(&self) {
        self.metrics.disconnected();
    }
}
