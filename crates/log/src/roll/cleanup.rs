//! Cleaning up after sealed writers (R11): on the word of this writer's own checkpoint, which holds
//! every partition they led, and of a listing that shows the closing checkpoint as their log's
//! newest.

use std::collections::BTreeSet;

use tidemill_store::NumberedLog;
use tidemill_wire::ids::WriterId;

use super::{RollError, Roller};
use crate::{
    ckpt::{Closed, find_closing, trim_below},
    keys,
    types::DataObjectId,
};

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
        let listed = self.listed(writer).await?;
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

    /// Objects of `writer` that some partition lists, or that wait for their deletion.
    async fn listed(&self, writer: WriterId) -> Result<BTreeSet<DataObjectId>, RollError> {
        let mut listed = BTreeSet::new();
        for partition in self.log.partitions() {
            let list = partition.extents();
            for manifest in &list.manifests {
                listed.insert(manifest.object);
                let extents = self.log.reader().manifest(manifest).await?;
                listed.extend(extents.iter().map(|extent| extent.object));
            }
            listed.extend(list.recent.iter().map(|extent| extent.object));
        }
        listed.extend(self.garbage.keys());
        listed.retain(|object| object.writer == writer);
        Ok(listed)
    }
}
