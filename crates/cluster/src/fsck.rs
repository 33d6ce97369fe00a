//! Proof from the bucket alone: `root`, the metadata log and its snapshots, and all that the log
//! has stored for the partitions they name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tidemill_log::{
    ckpt::{ChainError, find_closing},
    fsck::{Finding, FsckOptions, Report, check},
    keys,
};
use tidemill_store::{
    NumberedLog, PutId, ROOT_KEY, RootError, Store, StoreError, envelope::EnvelopeError, read_root,
};
use tidemill_wire::ids::{PartitionId, WriterId};

use crate::{
    cluster::{Cluster, ClusterOptions, META_PREFIX, SNAPSHOT_EVERY, SNAPSHOT_PREFIX},
    error::MetadataError,
    format::{ClosedWal, decode_entry, decode_snapshot, encode_snapshot},
    image::{FIRST_ENTRY, Image},
    reread::read_decoded,
};

/// Folder of what a start moved out of the way.
const LOST_AND_FOUND: &str = "lost+found/";
/// What a metadata object of a stranger is called.
const FOREIGN: &str = "belongs to another cluster";
/// How often a check is made anew because topics were created or deleted meanwhile.
const TRIES: u32 = 5;

/// The check itself failed; nothing can be said.
#[derive(Debug)]
pub enum FsckError {
    /// There is no usable `root`.
    Root(RootError),
    /// The store did not answer.
    Store(StoreError),
    /// An object of a newer version of this program.
    TooNew {
        /// Its key.
        key: String,
        /// What is new.
        what: String,
    },
}

impl fmt::Display for FsckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::TooNew { key, what } => {
                write!(
                    f,
                    "`{key}`: {what} of a newer version; upgrade this tidemill"
                )
            }
        }
    }
}

impl std::error::Error for FsckError {}

impl From<StoreError> for FsckError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Checks everything stored, beside a live broker or without; writes nothing. With `deep` every
/// byte is read. `progress` is told what is being looked at.
///
/// # Errors
/// [`FsckError`]
pub async fn fsck(
    store: &Store,
    deep: bool,
    patience: Duration,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Report, FsckError> {
    let cluster_id = match read_root(store, patience).await {
        Ok(root) => root.cluster_id,
        Err(error) => return without_root(store, error).await,
    };
    let mut tries = 1;
    loop {
        let mut metadata = Metadata {
            store,
            cluster_id,
            deep,
            progress,
            report: Report::default(),
        };
        let known = metadata.check().await?;
        let options = FsckOptions {
            deep,
            partitions: known.as_ref().map(Known::partitions),
        };
        let mut report = check(store, &options, progress).await?;
        if let Some(Finding { key, what }) = report.too_new.pop() {
            return Err(FsckError::TooNew { key, what });
        }
        metadata.add_to(&mut report);
        // Of a topic that a live broker has created or deleted meanwhile nothing can be said.
        if report.is_clean() || tries == TRIES || !Known::has_changed(known).await {
            return Ok(report);
        }
        tries += 1;
        progress("the metadata has changed meanwhile; checking once more");
    }
}

/// Objects of ours without `root` are damage; anything else was not ours to check.
async fn without_root(store: &Store, error: RootError) -> Result<Report, FsckError> {
    let mut what = error.to_string();
    let is_damage = match error {
        RootError::Invalid { .. } => true,
        RootError::Missing { .. } => {
            let listed = store.list_all("").await?;
            let is_ours = |key: &str| is_metadata(store, key) || keys::parse(key).is_some();
            "is missing, although objects of tidemill are there".clone_into(&mut what);
            listed.iter().any(|meta| is_ours(&meta.key))
        }
        _ => false,
    };
    if !is_damage {
        return Err(FsckError::Root(error));
    }
    let damage = vec![Finding {
        key: ROOT_KEY.to_owned(),
        what,
    }];
    Ok(Report {
        damage,
        ..Report::default()
    })
}

/// True for keys of the metadata.
fn is_metadata(store: &Store, key: &str) -> bool {
    let is_number = |prefix: &str| {
        let log = NumberedLog::new(store.clone(), prefix);
        log.number_of(key).is_some()
    };
    key == ROOT_KEY || is_number(META_PREFIX) || is_number(SNAPSHOT_PREFIX)
}

/// The metadata as it was when the check began.
struct Known {
    cluster: Arc<Cluster>,
    image: Arc<Image>,
}

impl Known {
    fn partitions(&self) -> BTreeSet<PartitionId> {
        let topics = self.image.topics();
        let partitions = topics.flat_map(|topic| topic.partitions());
        partitions.map(|(id, _)| id).collect()
    }

    /// True if there are new entries.
    async fn has_changed(known: Option<Self>) -> bool {
        let Some(known) = known else {
            return false;
        };
        let refreshed = known.cluster.refresh().await;
        refreshed.is_ok_and(|image| image.next() != known.image.next())
    }
}

struct Metadata<'a> {
    store: &'a Store,
    cluster_id: [u8; 16],
    deep: bool,
    progress: &'a (dyn Fn(&str) + Sync),
    report: Report,
}

impl Metadata<'_> {
    fn damage(&mut self, key: String, what: impl fmt::Display) {
        let what = what.to_string();
        self.report.damage.push(Finding { key, what });
    }

    /// What cannot be decoded is damage, unless it is new.
    fn broken(&mut self, key: String, error: EnvelopeError) -> Result<(), FsckError> {
        if let EnvelopeError::TooNew { what } = error {
            return Err(FsckError::TooNew { key, what });
        }
        self.damage(key, error);
        Ok(())
    }

    /// None if the metadata is too damaged to be used.
    async fn check(&mut self) -> Result<Option<Known>, FsckError> {
        (self.progress)("the metadata log");
        let options = ClusterOptions {
            store: self.store.clone(),
            runtime: self.store.runtime().clone(),
            cluster_id: self.cluster_id,
            snapshot_every: SNAPSHOT_EVERY,
        };
        let known = match Cluster::open(options).await {
            Ok(cluster) => {
                let image = cluster.image();
                self.report.topics = image.topic_count() as u64;
                self.check_seals(&image).await?;
                Some(Known { cluster, image })
            }
            Err(MetadataError::Store(error)) => return Err(error.into()),
            Err(MetadataError::Object { key, error }) => {
                self.broken(key, error)?;
                None
            }
            Err(MetadataError::ForeignCluster { key }) => {
                self.damage(key, FOREIGN);
                None
            }
            // Named below.
            Err(MetadataError::Gap { .. }) => None,
        };
        // `root`, which has been read.
        self.report.objects += 1;
        let snapshots = self.read_snapshots().await?;
        self.check_entries(&snapshots).await?;
        Ok(known)
    }

    async fn read_snapshots(&mut self) -> Result<BTreeMap<u64, Image>, FsckError> {
        let log = NumberedLog::new(self.store.clone(), SNAPSHOT_PREFIX);
        let mut images = BTreeMap::new();
        for (number, size) in log.list_from(0).await? {
            (self.progress)(&log.key(number));
            match read_decoded(&log, number, decode_snapshot).await? {
                // A newer one has taken its place meanwhile.
                None => continue,
                Some(Err(error)) => self.broken(log.key(number), error)?,
                Some(Ok((cluster_id, _))) if cluster_id != self.cluster_id => {
                    self.damage(log.key(number), FOREIGN);
                }
                Some(Ok((_, image))) => drop(images.insert(number, image)),
            }
            self.report.objects += 1;
            self.report.bytes += size;
        }
        Ok(images)
    }

    /// All entries below the highest are there; deep, they can be read, and the snapshots say what
    /// they make.
    async fn check_entries(&mut self, snapshots: &BTreeMap<u64, Image>) -> Result<(), FsckError> {
        let log = NumberedLog::new(self.store.clone(), META_PREFIX);
        let listed: BTreeMap<u64, u64> = log.list_from(0).await?.into_iter().collect();
        self.report.objects += listed.len() as u64;
        self.report.bytes += listed.values().sum::<u64>();
        let highest = listed.last_key_value().map_or(0, |(number, _)| *number);
        // None once something is damaged: what follows cannot be compared.
        let mut made = Some(Image::default());
        for number in FIRST_ENTRY..=highest {
            if !self.deep && listed.contains_key(&number) {
                continue;
            }
            (self.progress)(&log.key(number));
            // What a listing lacks is asked for by name.
            let entry = match read_decoded(&log, number, decode_entry).await? {
                Some(Ok(entry)) if entry.cluster_id == self.cluster_id => Some(entry),
                Some(Ok(_)) => {
                    self.damage(log.key(number), FOREIGN);
                    None
                }
                Some(Err(error)) => {
                    self.broken(log.key(number), error)?;
                    None
                }
                None => {
                    let what = format!("is missing, although entry {highest} exists");
                    self.damage(log.key(number), what);
                    None
                }
            };
            made = made.zip(entry).map(|(mut image, entry)| {
                image.apply(&entry.changes);
                image
            });
            if let (true, Some(made), Some(found)) = (self.deep, &made, snapshots.get(&number))
                && self.bytes_of(found) != self.bytes_of(made)
            {
                let key = format!("{SNAPSHOT_PREFIX}/{number:020}");
                self.damage(key, "does not say what the entries make");
            }
        }
        Ok(())
    }

    fn bytes_of(&self, image: &Image) -> Bytes {
        encode_snapshot(image, PutId([0; 16]), self.cluster_id, WriterId(0))
    }

    /// Partitions belong to writers that exist; of those that are sealed the closing checkpoint
    /// stands, and is the recorded one. Deep, of all that ever were.
    async fn check_seals(&mut self, image: &Image) -> Result<(), FsckError> {
        let mut writers = BTreeSet::new();
        for (_, partition) in image.topics().flat_map(|topic| topic.partitions()) {
            writers.extend(partition.tenures().map(|tenure| tenure.writer));
        }
        for writer in &writers {
            if image.writer(*writer).is_none() {
                let key = format!("{META_PREFIX}/{:020}", writer.0);
                self.damage(key, "partitions name this writer, which never registered");
            }
        }
        let all = image
            .writers()
            .filter(|state| self.deep || writers.contains(&state.id));
        let sealed: Vec<_> = all
            .filter_map(|state| Some((state.id, state.sealed?)))
            .collect();
        for (writer, recorded) in sealed {
            (self.progress)(&format!("writer {writer}"));
            self.check_seal(writer, recorded).await?;
        }
        Ok(())
    }

    async fn check_seal(&mut self, writer: WriterId, recorded: ClosedWal) -> Result<(), FsckError> {
        let what = match find_closing(self.store, writer).await {
            Ok(Some(closed))
                if closed.number == recorded.checkpoint
                    && closed.put_id == recorded.checkpoint_put_id =>
            {
                return Ok(());
            }
            Ok(Some(_)) => "is not closed by the checkpoint that the metadata names".to_owned(),
            Ok(None) => format!(
                "is not closed, but recorded as closed at {}",
                recorded.checkpoint
            ),
            Err(ChainError::Store(error)) => return Err(error.into()),
            Err(ChainError::Object { key, error }) => return self.broken(key, error),
            Err(error @ ChainError::Missing { .. }) => error.to_string(),
        };
        self.damage(keys::ckpt_prefix(writer), what);
        Ok(())
    }

    /// Adds what was found here to what the log's check has found. Keys that are neither the log's
    /// nor the metadata's are garbage.
    fn add_to(self, report: &mut Report) {
        report.topics = self.report.topics;
        report.objects += self.report.objects;
        report.bytes += self.report.bytes;
        report.damage.splice(0..0, self.report.damage);
        let strangers = std::mem::take(&mut report.others).into_iter();
        let strangers = strangers.filter(|key| !is_metadata(self.store, key));
        report.garbage.extend(strangers.map(|key| {
            let what = match key.starts_with(LOST_AND_FOUND) {
                true => "set aside as torn",
                false => "no object of tidemill's",
            };
            let what = what.to_owned();
            Finding { key, what }
        }));
    }
}
