//! The metadata log, its snapshots, and what they say of writers.

use std::{collections::BTreeSet, sync::Arc};

use tidemill_cluster::{
    Cluster, ClusterOptions, Image, META_PREFIX, MetadataError, SNAPSHOT_EVERY, SNAPSHOT_PREFIX,
    format::{ClosedWal, decode_entry, decode_snapshot},
};
use tidemill_log::{
    ckpt::{ChainError, find_closing},
    keys,
};
use tidemill_store::{NumberedLog, Store, StoreError, envelope::EnvelopeError, root::ROOT_KEY};
use tidemill_wire::ids::{PartitionId, WriterId};

use super::report::Findings;

/// The first number of the metadata log.
const FIRST_ENTRY: u64 = tidemill_cluster::image::FIRST_ENTRY;

/// True for keys of the metadata.
pub fn is_metadata(key: &str) -> bool {
    let folder = key.split_once('/').map(|(folder, _)| folder);
    key == ROOT_KEY || folder.is_some_and(|f| f == META_PREFIX || f == SNAPSHOT_PREFIX)
}

/// True for keys of the metadata and of the log.
pub fn is_ours(key: &str) -> bool {
    is_metadata(key) || keys::parse(key).is_some()
}

/// The metadata as it was when the check began.
pub struct Metadata {
    cluster: Arc<Cluster>,
    image: Arc<Image>,
}

impl Metadata {
    /// The partitions that exist.
    pub fn partitions(&self) -> BTreeSet<PartitionId> {
        let topics = self.image.topics();
        topics
            .flat_map(|topic| topic.partitions())
            .map(|(id, _)| id)
            .collect()
    }

    /// True if there are new entries.
    pub async fn has_changed(&self) -> bool {
        let refreshed = self.cluster.refresh().await;
        refreshed.is_ok_and(|image| image.next() != self.image.next())
    }
}

/// Checks the metadata; `None` if it is too damaged to be used.
///
/// # Errors
/// Why nothing can be said: the store does not answer, or an object is newer than this version.
pub async fn check(
    store: &Store,
    cluster_id: [u8; 16],
    deep: bool,
    found: &mut Findings,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Option<Metadata>, String> {
    say("the metadata log");
    let options = ClusterOptions {
        store: store.clone(),
        runtime: store.runtime().clone(),
        cluster_id,
        snapshot_every: SNAPSHOT_EVERY,
    };
    let cluster = match Cluster::open(options).await {
        Ok(cluster) => cluster,
        Err(error) => {
            note(error, found)?;
            return Ok(None);
        }
    };
    let image = cluster.image();
    found.topics(image.topic_count());
    let mut check = Check {
        store,
        cluster_id,
        found,
        say,
    };
    check.entries(image.next(), deep).await?;
    check.snapshots().await?;
    check.writers(&image).await?;
    Ok(Some(Metadata { cluster, image }))
}

/// Damage is a finding, all else ends the check.
fn note(error: MetadataError, found: &mut Findings) -> Result<(), String> {
    let text = error.to_string();
    match error {
        MetadataError::Store(_)
        | MetadataError::Object {
            error: EnvelopeError::TooNew { .. },
            ..
        } => return Err(text),
        MetadataError::Object { key, error } => found.damage(&key, &error.to_string()),
        MetadataError::ForeignCluster { key } => found.damage(&key, "of another cluster"),
        MetadataError::Gap { key, highest } => {
            found.damage(&key, &format!("missing, although entry {highest} exists"));
        }
    }
    Ok(())
}

fn silent(error: StoreError) -> String {
    error.to_string()
}

struct Check<'a> {
    store: &'a Store,
    cluster_id: [u8; 16],
    found: &'a mut Findings,
    say: &'a (dyn Fn(&str) + Sync),
}

impl Check<'_> {
    /// All entries below `next` are there; deep, they can be read too.
    async fn entries(&mut self, next: u64, deep: bool) -> Result<(), String> {
        let log = NumberedLog::new(self.store.clone(), META_PREFIX);
        let listed = log.list_from(0).await.map_err(silent)?;
        self.found.looked_at(
            listed.len() as u64,
            listed.iter().map(|(_, size)| size).sum(),
        );
        let there: BTreeSet<u64> = listed.into_iter().map(|(number, _)| number).collect();
        for number in FIRST_ENTRY..next {
            let key = log.key(number);
            if !deep && there.contains(&number) {
                continue;
            }
            (self.say)(&key);
            // What a listing lacks is asked for by name.
            match log.read(number).await.map_err(silent)? {
                None => self
                    .found
                    .damage(&key, "missing; entries are never deleted"),
                Some(bytes) => {
                    let decoded = decode_entry(&bytes).map(|entry| entry.cluster_id);
                    self.decoded(&key, decoded)?;
                }
            }
        }
        Ok(())
    }

    async fn snapshots(&mut self) -> Result<(), String> {
        let log = NumberedLog::new(self.store.clone(), SNAPSHOT_PREFIX);
        for (number, size) in log.list_from(0).await.map_err(silent)? {
            let key = log.key(number);
            (self.say)(&key);
            // One that is gone by now has been replaced by a newer one.
            if let Some(bytes) = log.read(number).await.map_err(silent)? {
                self.found.looked_at(1, size);
                let decoded = decode_snapshot(&bytes).map(|(cluster_id, _)| cluster_id);
                self.decoded(&key, decoded)?;
            }
        }
        Ok(())
    }

    fn decoded(
        &mut self,
        key: &str,
        cluster_id: Result<[u8; 16], EnvelopeError>,
    ) -> Result<(), String> {
        match cluster_id {
            Ok(id) if id == self.cluster_id => {}
            Ok(_) => self.found.damage(key, "of another cluster"),
            Err(EnvelopeError::TooNew { what }) => {
                return Err(format!(
                    "`{key}`: {what} of a newer version; upgrade this tidemill"
                ));
            }
            Err(error) => self.found.damage(key, &error.to_string()),
        }
        Ok(())
    }

    /// Partitions belong to writers that exist; sealed ones are closed as recorded.
    async fn writers(&mut self, image: &Image) -> Result<(), String> {
        let mut leaders: BTreeSet<WriterId> = BTreeSet::new();
        for (_, partition) in image.topics().flat_map(|topic| topic.partitions()) {
            leaders.extend(partition.tenures().map(|tenure| tenure.writer));
        }
        for writer in leaders {
            (self.say)(&format!("writer {writer}"));
            let Some(state) = image.writer(writer) else {
                let key = format!("{META_PREFIX}/{:020}", writer.0);
                self.found
                    .damage(&key, "partitions name this writer, which never registered");
                continue;
            };
            if let Some(recorded) = state.sealed {
                self.closed(writer, recorded).await?;
            }
        }
        Ok(())
    }

    async fn closed(&mut self, writer: WriterId, recorded: ClosedWal) -> Result<(), String> {
        let key = keys::ckpt_prefix(writer);
        let wanted = recorded.checkpoint;
        match find_closing(self.store, writer).await {
            Ok(Some(closed)) if closed.number == wanted => {}
            Ok(Some(closed)) => {
                let number = closed.number;
                let what = format!("closed at {number}, but recorded as closed at {wanted}");
                self.found.damage(&key, &what);
            }
            Ok(None) => {
                let what = format!("not closed, but recorded as closed at {wanted}");
                self.found.damage(&key, &what);
            }
            Err(ChainError::Store(error)) => return Err(error.to_string()),
            Err(error) => self.found.damage(&key, &error.to_string()),
        }
        Ok(())
    }
}
