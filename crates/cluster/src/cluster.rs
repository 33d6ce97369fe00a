//! The metadata log as a broker uses it.

mod commit;
mod read;
mod snapshot;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tidemill_runtime::Runtime;
use tidemill_store::{CreateOutcome, NumberedLog, Payload, PutId, Store, envelope::EnvelopeError};
use tidemill_wire::ids::WriterId;
use tokio::sync::{Semaphore, watch};

use crate::{
    error::MetadataError,
    format::{BrokerRegistration, Change, Entry, decode_entry, encode_entry},
    image::Image,
};

/// Folder of the metadata log.
pub const META_PREFIX: &str = "meta";
/// Folder of its snapshots.
pub const SNAPSHOT_PREFIX: &str = "meta-snap";

/// Commits that wait at once; further callers wait for a place, so that the queue is bounded.
const PENDING_COMMITS_MAX: usize = 4_096;

/// What a [`Cluster`] is opened with.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Where the metadata log lies.
    pub store: Store,
    /// Clock, entropy, tasks.
    pub runtime: Runtime,
    /// The cluster's id, as `root` has it.
    pub cluster_id: [u8; 16],
    /// A snapshot is written after this many entries: a start reads at most about as many objects.
    pub snapshot_every: u64,
}

/// Default of [`ClusterOptions::snapshot_every`]: some 16 rounds of parallel GETs at start.
pub const SNAPSHOT_EVERY: u64 = 256;

/// The metadata log with its newest known image. Shared by all of a broker.
#[derive(Debug)]
pub struct Cluster {
    options: ClusterOptions,
    meta: NumberedLog,
    snapshots: NumberedLog,
    image: watch::Sender<Arc<Image>>,
    /// This broker's writer id; 0 before it has registered.
    writer: AtomicU64,
    /// Next entry after the newest snapshot known.
    snapshot_next: AtomicU64,
    queue: Mutex<commit::Queue>,
    places: Semaphore,
}

impl Cluster {
    /// Reads the metadata log: the newest snapshot and what follows it.
    ///
    /// # Errors
    /// [`MetadataError`] if the store fails or an object is damaged, foreign or of a newer broker.
    pub async fn open(options: ClusterOptions) -> Result<Arc<Self>, MetadataError> {
        let meta = NumberedLog::new(options.store.clone(), META_PREFIX);
        let snapshots = NumberedLog::new(options.store.clone(), SNAPSHOT_PREFIX);
        let cluster = Arc::new(Self {
            options,
            meta,
            snapshots,
            image: watch::channel(Arc::new(Image::default())).0,
            writer: AtomicU64::new(0),
            snapshot_next: AtomicU64::new(0),
            queue: Mutex::default(),
            places: Semaphore::new(PENDING_COMMITS_MAX),
        });
        cluster.load().await?;
        Ok(cluster)
    }

    /// The newest known image.
    #[must_use]
    pub fn image(&self) -> Arc<Image> {
        Arc::clone(&self.image.borrow())
    }

    /// Follows the image, version by version (some may be passed over).
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Image>> {
        self.image.subscribe()
    }

    /// The cluster's id.
    #[must_use]
    pub fn cluster_id(&self) -> [u8; 16] {
        self.options.cluster_id
    }

    /// This broker's writer id; 0 before [`Cluster::register`].
    #[must_use]
    pub fn writer(&self) -> WriterId {
        WriterId(self.writer.load(Ordering::Acquire))
    }

    /// The store the metadata lies in.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.options.store
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.options.runtime
    }

    /// Announces this broker; the number of the entry becomes its writer id.
    ///
    /// # Errors
    /// [`MetadataError`] if the log cannot be written within `deadline`; the registration may be in
    /// the log all the same, as one of a writer that never wrote anything.
    pub async fn register(
        &self,
        registration: BrokerRegistration,
        deadline: Option<Duration>,
    ) -> Result<WriterId, MetadataError> {
        let put_id = self.put_id();
        let changes = vec![Change::BrokerRegistered(registration)];
        loop {
            let number = self.image().next();
            if self
                .create_entry(number, put_id, &changes, deadline)
                .await?
            {
                self.writer.store(number, Ordering::Release);
                return Ok(WriterId(number));
            }
        }
    }

    fn put_id(&self) -> PutId {
        PutId(self.options.runtime.entropy.bytes16())
    }

    /// Creates entry `number`; false if somebody else's entry was there. Either is applied.
    async fn create_entry(
        &self,
        number: u64,
        put_id: PutId,
        changes: &[Change],
        deadline: Option<Duration>,
    ) -> Result<bool, MetadataError> {
        let bytes = encode_entry(&Entry {
            put_id,
            cluster_id: self.options.cluster_id,
            writer: self.writer(),
            changes: changes.to_vec(),
        });
        let body = Payload::from(bytes);
        match self.meta.create(number, body, put_id, deadline).await? {
            CreateOutcome::Ours => {
                self.apply_if_next(number, changes);
                Ok(true)
            }
            CreateOutcome::Foreign(bytes) => {
                let entry = self.checked(number, decode_entry(&bytes))?;
                self.apply_if_next(number, &entry.changes);
                Ok(false)
            }
        }
    }

    fn checked(
        &self,
        number: u64,
        entry: Result<Entry, EnvelopeError>,
    ) -> Result<Entry, MetadataError> {
        let key = self.meta.key(number);
        match entry {
            Ok(entry) if entry.cluster_id == self.options.cluster_id => Ok(entry),
            Ok(_) => Err(MetadataError::ForeignCluster { key }),
            Err(error) => Err(MetadataError::Object { key, error }),
        }
    }

    /// Applies entry `number` unless it is applied already. Entries come from several tasks, each
    /// of which has applied all lower ones before.
    fn apply_if_next(&self, number: u64, changes: &[Change]) {
        self.image.send_if_modified(|image| {
            if image.next() != number {
                debug_assert!(
                    image.next() > number,
                    "entry {number} is ahead of the image"
                );
                return false;
            }
            let mut next = Image::clone(image);
            next.apply(changes);
            *image = Arc::new(next);
            true
        });
    }
}
