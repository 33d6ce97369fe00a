//! From a store to a log that serves: what every broker start does, in order.
//!
//! `root`, metadata log, registration (which gives the writer id), WAL object 0, sealing of
//! predecessors, `WriterSealed` and the new tenures, replay, and the log. Each step is a
//! put-if-absent or a read, so a start that dies anywhere is followed by another one.

mod error;
mod recover;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tidemill_log::{Log, LogLimits, LogOptions, PartitionConfig, keys::wal_prefix};
use tidemill_runtime::{Instant, Runtime};
use tidemill_store::{NumberedLog, Store, open_root};
use tidemill_wire::ids::WriterId;

pub use error::{StartError, StartWarning};
pub use recover::RecoverError;

use crate::{
    cluster::{Cluster, ClusterOptions, SNAPSHOT_EVERY},
    error::CommitError,
    format::{BrokerRegistration, Change},
    image::{Image, Topic},
    leadership::Leadership,
    seal::{SealOptions, Sealed, TornPolicy, seal},
};

/// A writer sealed so soon after its last write may still be alive (R6: only a warning).
const RECENT: Duration = Duration::from_secs(60);
/// The lowest WAL number that can hold entries: object 0 is empty.
const FIRST_WAL: u64 = 1;

/// Makes a partition's settings of the metadata.
pub type PartitionSettings = Arc<dyn Fn(&Image, &Topic) -> PartitionConfig + Send + Sync>;

/// What a broker starts with.
pub struct StartOptions {
    /// The store.
    pub store: Store,
    /// Clock, entropy, tasks.
    pub runtime: Runtime,
    /// `cluster.id`, if set; must then be `root`'s.
    pub cluster_id: Option<[u8; 16]>,
    /// What the broker says of itself.
    pub registration: BrokerRegistration,
    /// Limits of the log.
    pub limits: LogLimits,
    /// True while a lock on the whole store is held (a local directory's).
    pub exclusive: bool,
    /// What a torn WAL object means.
    pub torn: TornPolicy,
    /// `tidemill.start.timeout.ms`.
    pub patience: Duration,
    /// Entries between metadata snapshots; [`SNAPSHOT_EVERY`] outside of tests.
    pub snapshot_every: u64,
    /// Settings of partitions; [`default_settings`] reads the topic's own.
    pub settings: PartitionSettings,
}

impl StartOptions {
    /// Options with the defaults of a broker that is alone on its store.
    #[must_use]
    pub fn new(store: Store, registration: BrokerRegistration, limits: LogLimits) -> Self {
        Self {
            runtime: store.runtime().clone(),
            store,
            cluster_id: None,
            registration,
            limits,
            exclusive: false,
            torn: TornPolicy::Corruption,
            patience: Duration::from_secs(60),
            snapshot_every: SNAPSHOT_EVERY,
            settings: Arc::new(|_, topic| default_settings(topic)),
        }
    }
}

/// A broker's core.
#[derive(Clone, Debug)]
pub struct Started {
    /// The metadata log.
    pub cluster: Arc<Cluster>,
    /// The partitions this broker leads.
    pub log: Arc<Log>,
    /// Keeps the log in step with the metadata; a task follows every new image.
    pub leadership: Arc<Leadership>,
    /// What an operator should know.
    pub warnings: Vec<StartWarning>,
}

/// `retention.ms` and `retention.bytes` of the topic, else the log's defaults.
#[must_use]
pub fn default_settings(topic: &Topic) -> PartitionConfig {
    let number = |key: &str| topic.configs.get(key).and_then(|value| value.parse().ok());
    let default = PartitionConfig::default();
    PartitionConfig {
        retention_ms: number("retention.ms").unwrap_or(default.retention_ms),
        retention_bytes: number("retention.bytes").unwrap_or(default.retention_bytes),
    }
}

/// Starts a broker: afterwards it leads all partitions of the writers before it, which can publish
/// nothing any more.
///
/// # Errors
/// [`StartError`]; another start may be tried.
pub async fn start(options: StartOptions) -> Result<Started, StartError> {
    let clock = options.runtime.clock.clone();
    let deadline = clock.monotonic() + options.patience;
    let root = open_root(&options.store, options.cluster_id, options.patience).await?;
    let cluster = Cluster::open(ClusterOptions {
        store: options.store.clone(),
        runtime: options.runtime.clone(),
        cluster_id: root.cluster_id,
        snapshot_every: options.snapshot_every,
    })
    .await?;
    let started = lead(&options, &cluster, deadline).await;
    if started.is_err() {
        cluster.close();
    }
    started
}

async fn lead(
    options: &StartOptions,
    cluster: &Arc<Cluster>,
    deadline: Instant,
) -> Result<Started, StartError> {
    let left = deadline.saturating_duration_since(options.runtime.clock.monotonic());
    let registration = options.registration.clone();
    let writer = cluster.register(registration, Some(left)).await?;
    let cluster_id = cluster.cluster_id();
    let wal = NumberedLog::new(options.store.clone(), wal_prefix(writer));
    tidemill_log::wal::start(&options.runtime, &wal, writer, cluster_id, Some(deadline)).await?;
    let sealed = seal_predecessors(options, cluster).await?;
    let image = take_over(cluster, &sealed).await?;
    let recovered = recover::recover(options, cluster, &image, &sealed).await?;
    let log = Log::open(
        LogOptions {
            writer,
            cluster_id,
            store: options.store.clone(),
            runtime: options.runtime.clone(),
            limits: options.limits.clone(),
            exclusive: options.exclusive,
        },
        recovered,
    );
    let settings = Arc::clone(&options.settings);
    let leadership = Leadership::new(Arc::clone(cluster), Arc::clone(&log), settings, image);
    let follower = Arc::clone(&leadership);
    let follow = async move { follower.follow().await };
    options.runtime.tasks.spawn("metadata follower", follow);
    let forgetter = Arc::clone(&leadership);
    let forget = async move { forgetter.forget().await };
    options.runtime.tasks.spawn("deleted topics", forget);
    Ok(Started {
        cluster: Arc::clone(cluster),
        log,
        leadership,
        warnings: warnings(options, &sealed),
    })
}

/// Seals all writers before this one that are not sealed yet.
async fn seal_predecessors(
    options: &StartOptions,
    cluster: &Arc<Cluster>,
) -> Result<Vec<Sealed>, StartError> {
    let me = cluster.writer();
    let how = SealOptions {
        store: options.store.clone(),
        cluster_id: cluster.cluster_id(),
        sealer: me,
        torn: options.torn,
        deadline: None,
    };
    let mut sealed = Vec::new();
    for writer in cluster.image().unsealed().filter(|writer| writer.id < me) {
        sealed.push(seal(writer.id, &how).await?);
    }
    Ok(sealed)
}

/// Appends `WriterSealed` for all that were sealed, and inherits from every sealed writer.
async fn take_over(cluster: &Arc<Cluster>, sealed: &[Sealed]) -> Result<Arc<Image>, StartError> {
    let me = cluster.writer();
    let sealed: Vec<_> = sealed.iter().map(|s| (s.writer, s.closed)).collect();
    let decide = move |image: &Image| {
        let mut changes = Vec::new();
        for (writer, closed) in &sealed {
            if image.may_write(*writer) {
                changes.push(Change::WriterSealed {
                    writer: *writer,
                    closed: *closed,
                });
            }
        }
        // Also what a broker sealed that died before it took over.
        let is_sealed = |leader: &WriterId| {
            let in_image = image.writer(*leader).is_some_and(|w| w.sealed.is_some());
            in_image || sealed.iter().any(|(writer, _)| writer == leader)
        };
        for from in leaders(image).into_iter().filter(is_sealed) {
            changes.push(Change::TenuresInherited {
                from,
                to: me,
                first_wal: FIRST_WAL,
            });
        }
        Ok::<_, std::convert::Infallible>(changes)
    };
    match cluster.commit(decide).await {
        Ok(image) => Ok(image),
        Err(CommitError::Metadata(error)) => Err(error.into()),
        Err(CommitError::Rejected(never)) => match never {},
        Err(CommitError::Superseded | CommitError::Closed) => Err(StartError::Superseded),
    }
}

fn leaders(image: &Image) -> BTreeSet<WriterId> {
    let topics = image.topics();
    let partitions = topics.flat_map(|topic| topic.partitions.iter());
    partitions.map(|state| state.leader()).collect()
}

fn warnings(options: &StartOptions, sealed: &[Sealed]) -> Vec<StartWarning> {
    let now = options.runtime.clock.now_ms();
    let mut warnings = Vec::new();
    for sealed in sealed {
        // Our clock may lag behind the store's.
        let age_ms = sealed.last_write_ms.map(|at| now.saturating_sub(at).max(0));
        let age = age_ms.map(|ms| Duration::from_millis(ms.unsigned_abs()));
        if let Some(age) = age.filter(|age| *age < RECENT && !options.store.is_local()) {
            warnings.push(StartWarning::RecentlyAlive {
                writer: sealed.writer,
                age,
            });
        }
        if !sealed.lost.is_empty() {
            warnings.push(StartWarning::TornObjects {
                keys: sealed.lost.clone(),
            });
        }
    }
    warnings
}
