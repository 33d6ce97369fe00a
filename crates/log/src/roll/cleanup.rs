//! Cleaning up after sealed writers (R11): on the word of this writer's own checkpoint, which holds
//! every partition they led, and of a listing that shows the closing checkpoint as their log's
//! newest.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tidemill_store::{Envelope, NumberedLog};
use tidemill_wire::ids::WriterId;

use super::{RollError, Roller};
use crate::{
    ckpt::{Closed, find_closing, trim_below},
    extents::ExtentList,
    keys::{self, Named},
    types::DataObjectId,
};

/// Size of a closed marker; WAL objects have a directory.
const MARKER_BYTES: u64 = Envelope::LEN as u64;

/// What a listing shows of one writer's logs.
#[derive(Default)]
struct Left {
    checkpoints: u64,
    /// WAL numbers that are no markers.
    wal: BTreeSet<u64>,
    newest_wal: Option<u64>,
}

impl Roller {
    /// Frees what sealed writers left: WAL numbers that landed, checkpoints below the closing one,
    /// data objects that nobody lists. Does nothing before a checkpoint of this writer counts.
    /// Returns how many objects went.
    ///
    /// # Errors
    /// The store did not answer; the rest goes next time.
    pub async fn clean_up(&mut self) -> Result<usize, RollError> {
        if self.ckpt.newest().is_none() || !self.ownership.is_sole_leader() {
            return Ok(0);
        }
        // No checkpoint of this writer holds a partition that is left out and was taken over.
        if self.log.partitions().iter().any(|p| self.is_inherited(p)) {
            return Ok(0);
        }
        if !self.is_swept {
            self.sweep().await?;
            self.is_swept = true;
        }
        let mut count = 0;
        for writer in self.cleanup.clone() {
            let Some(closed) = find_closing(self.log.store(), writer).await? else {
                tracing::warn!(
                    writer = writer.0,
                    "sealed writer's checkpoint log is not closed"
                );
                continue;
            };
            count += self.trim_sealed(writer, &closed).await?;
            count += self.delete_unlisted(writer).await?;
            self.cleanup.remove(&writer);
        }
        Ok(count)
    }

    /// Finds writers of long ago whose objects have come late: a PUT that was still under way when
    /// its writer was sealed may land after all was cleaned up (I20, R11). One listing a start.
    async fn sweep(&mut self) -> Result<(), RollError> {
        let mut left: BTreeMap<WriterId, Left> = BTreeMap::new();
        let mut data = Vec::new();
        for meta in self.log.store().list_all("").await? {
            match keys::parse(&meta.key) {
                Some(Named::Data(object)) => data.push(object),
                Some(Named::Wal(writer, number)) => {
                    let left = left.entry(writer).or_default();
                    left.newest_wal = left.newest_wal.max(Some(number));
                    if meta.size > MARKER_BYTES {
                        left.wal.insert(number);
                    }
                }
                Some(Named::Checkpoint(writer, _)) => {
                    left.entry(writer).or_default().checkpoints += 1;
                }
                None => {}
            }
        }
        let is_old = |left: &Left| {
            // The newest number stays whatever it is, and so does the closing checkpoint.
            left.checkpoints > 1 || left.wal.iter().any(|n| Some(*n) != left.newest_wal)
        };
        let own = self.log.writer();
        let old = left
            .into_iter()
            .filter(|(writer, left)| *writer < own && is_old(left));
        let mut found: BTreeSet<WriterId> = old.map(|(writer, _)| writer).collect();
        let listed = self.listed(|object| object.writer < own).await?;
        data.retain(|object| object.writer < own && !listed.contains(object));
        found.extend(data.iter().map(|object| object.writer));
        for writer in found.difference(&self.cleanup) {
            tracing::info!(%writer, "has left objects that came late");
        }
        self.cleanup.extend(found);
        Ok(())
    }

    async fn trim_sealed(&self, writer: WriterId, closed: &Closed) -> Result<usize, RollError> {
        let store = self.log.store();
        let wal = NumberedLog::new(store.clone(), keys::wal_prefix(writer));
        let numbers = wal.list_from(0).await?;
        let newest = numbers.last().map(|(number, _)| *number);
        let mut count = 0;
        for (number, _) in numbers {
            // Markers are kept for ever, whatever stands in their place.
            if Some(number) == newest || !closed.closing.landed(number) {
                continue;
            }
            wal.delete(number).await?;
            count += 1;
        }
        let checkpoints = NumberedLog::new(store.clone(), keys::ckpt_prefix(writer));
        count += trim_below(&checkpoints, closed.number).await?;
        Ok(count)
    }

    async fn delete_unlisted(&self, writer: WriterId) -> Result<usize, RollError> {
        let store = self.log.store();
        let prefix = format!("{}/", keys::data_prefix(writer));
        let stored = store.list_all(&prefix).await?;
        if stored.is_empty() {
            return Ok(0);
        }
        let listed = self.listed(|object| object.writer == writer).await?;
        self.still_leads()?;
        let mut count = 0;
        for meta in stored {
            let Some(keys::Named::Data(object)) = keys::parse(&meta.key) else {
                continue;
            };
            if !listed.contains(&object) {
                store.delete(&meta.key).await?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Those of the objects that some partition lists, that one that is gone listed and a round has
    /// not freed yet, or that wait for their deletion.
    async fn listed(
        &self,
        wanted: impl Fn(&DataObjectId) -> bool,
    ) -> Result<BTreeSet<DataObjectId>, RollError> {
        let mut lists: Vec<Arc<ExtentList>> = Vec::new();
        lists.extend(
            self.log
                .partitions()
                .iter()
                .map(|partition| partition.extents()),
        );
        let gone = self.gone();
        lists.extend(
            gone.iter()
                .filter_map(|id| Some(self.known.get(id)?.extents.clone())),
        );
        lists.extend(self.gone_unpublished().into_iter().map(|(_, list)| list));
        lists.extend(self.orphans.iter().map(|(_, list)| Arc::new(list.clone())));
        let mut listed = BTreeSet::new();
        for list in lists {
            for manifest in &list.manifests {
                listed.insert(manifest.object);
                let extents = self.log.reader().manifest(manifest).await?;
                listed.extend(extents.iter().map(|extent| extent.object));
            }
            listed.extend(list.recent.iter().map(|extent| extent.object));
        }
        listed.extend(self.garbage.keys());
        listed.retain(|object| wanted(object));
        Ok(listed)
    }
}
