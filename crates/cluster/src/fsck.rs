//! Proof from the bucket alone: `root`, the metadata log and its snapshots, and all that the log
//! has stored for the partitions they name.

use std::{collections::BTreeSet, fmt, time::Duration};

use tidemill_log::{
    fsck::{Finding, FsckOptions, Report, check},
    keys::ckpt_prefix,
};
use tidemill_store::{
    Envelope, NumberedLog, PutId, ROOT_KEY, RootError, Store, StoreError, read_root,
};
use tidemill_wire::ids::WriterId;

use crate::{
    cluster::{META_PREFIX, SNAPSHOT_PREFIX},
    format::{ClosedWal, decode_entry, decode_snapshot, encode_snapshot},
    image::{FIRST_ENTRY, Image},
    reread::read_decoded,
};

/// Folder of what a start moved out of the way.
const LOST_AND_FOUND: &str = "lost+found/";

/// The check itself failed; nothing can be said.
#[derive(Debug)]
pub enum FsckError {
    /// There is no usable `root`.
    Root(RootError),
    /// The store did not answer.
    Store(StoreError),
}

impl fmt::Display for FsckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FsckError {}

impl From<RootError> for FsckError {
    fn from(error: RootError) -> Self {
        Self::Root(error)
    }
}

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
    let root = read_root(store, patience).await?;
    let mut metadata = Metadata {
        store,
        cluster_id: root.cluster_id,
        damage: Vec::new(),
    };
    progress("metadata log");
    let image = metadata.replay().await?;
    let partitions = image
        .topics()
        .flat_map(|topic| topic.partitions())
        .map(|(id, _)| id);
    let options = FsckOptions {
        deep,
        partitions: Some(partitions.collect::<BTreeSet<_>>()),
    };
    let mut report = check(store, &options, progress).await?;
    report.damage.append(&mut metadata.damage);
    // What the log does not know is the metadata's, or a stranger's.
    let ours = |key: &String| {
        key == ROOT_KEY
            || key.starts_with(LOST_AND_FOUND)
            || [META_PREFIX, SNAPSHOT_PREFIX].iter().any(|prefix| {
                NumberedLog::new(store.clone(), *prefix)
                    .number_of(key)
                    .is_some()
            })
    };
    report.others.retain(|key| !ours(key));
    Ok(report)
}

struct Metadata<'a> {
    store: &'a Store,
    cluster_id: [u8; 16],
    damage: Vec<Finding>,
}

impl Metadata<'_> {
    fn damage(&mut self, key: String, what: impl fmt::Display) {
        let what = what.to_string();
        self.damage.push(Finding { key, what });
    }

    /// Reads every entry from the first on, and compares the snapshots with what the entries make.
    async fn replay(&mut self) -> Result<Image, StoreError> {
        let meta = NumberedLog::new(self.store.clone(), META_PREFIX);
        let snapshots = NumberedLog::new(self.store.clone(), SNAPSHOT_PREFIX);
        let snapshots_at: BTreeSet<u64> = snapshots
            .list_from(0)
            .await?
            .into_iter()
            .map(|(n, _)| n)
            .collect();
        let highest = meta.head_by_listing().await?.unwrap_or(0);
        let mut image = Image::default();
        for number in FIRST_ENTRY.. {
            match read_decoded(&meta, number, decode_entry).await? {
                Some(Ok(entry)) if entry.cluster_id == self.cluster_id => {
                    image.apply(&entry.changes);
                }
                Some(Ok(_)) => self.damage(meta.key(number), "belongs to another cluster"),
                Some(Err(error)) => self.damage(meta.key(number), error),
                None if number <= highest => self.damage(meta.key(number), "is missing"),
                None => break,
            }
            // After damage the image is not what it should be, yet the numbers go on.
            image.next = number + 1;
            if self.damage.is_empty() && snapshots_at.contains(&number) {
                self.compare(&snapshots, number, &image).await?;
            }
        }
        self.check_seals(&image).await?;
        Ok(image)
    }

    async fn compare(
        &mut self,
        snapshots: &NumberedLog,
        number: u64,
        image: &Image,
    ) -> Result<(), StoreError> {
        let bytes =
            |image: &Image| encode_snapshot(image, PutId([0; 16]), self.cluster_id, WriterId(0));
        let what = match read_decoded(snapshots, number, decode_snapshot).await? {
            // A newer one has taken its place meanwhile.
            None => return Ok(()),
            Some(Err(error)) => error.to_string(),
            Some(Ok((cluster_id, _))) if cluster_id != self.cluster_id => {
                "belongs to another cluster".to_owned()
            }
            Some(Ok((_, found))) if bytes(&found) != bytes(image) => {
                "does not say what the entries make".to_owned()
            }
            Some(Ok(_)) => return Ok(()),
        };
        self.damage(snapshots.key(number), what);
        Ok(())
    }

    /// The closing checkpoint of every sealed writer stands, and is the recorded one.
    async fn check_seals(&mut self, image: &Image) -> Result<(), StoreError> {
        for state in image.writers() {
            if let Some(closed) = state.sealed {
                self.check_seal(state.id, closed).await?;
            }
        }
        Ok(())
    }

    async fn check_seal(&mut self, writer: WriterId, closed: ClosedWal) -> Result<(), StoreError> {
        let log = NumberedLog::new(self.store.clone(), ckpt_prefix(writer));
        let decode = |bytes: &_| Envelope::decode_header(bytes);
        let found = read_decoded(&log, closed.checkpoint, |bytes| decode(bytes)).await?;
        let what = match found {
            Some(Ok((envelope, _, _))) if envelope.put_id == closed.checkpoint_put_id => {
                return Ok(());
            }
            Some(Ok(_)) => "is not the closing checkpoint that the metadata names".to_owned(),
            Some(Err(error)) => error.to_string(),
            None => "closing checkpoint is missing".to_owned(),
        };
        self.damage(log.key(closed.checkpoint), what);
        Ok(())
    }
}
