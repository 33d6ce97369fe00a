//! What is stored, by listing.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_store::StoreError;
use tidemill_wire::ids::WriterId;

use super::Check;
use crate::{keys, types::DataObjectId};

/// Keys of the store, sorted by what they name.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Data objects with their sizes.
    pub(super) data: BTreeMap<DataObjectId, u64>,
    /// WAL numbers of each writer with their sizes.
    pub(super) wal: BTreeMap<WriterId, BTreeMap<u64, u64>>,
    /// Checkpoint numbers of each writer.
    pub(super) checkpoints: BTreeMap<WriterId, BTreeSet<u64>>,
}

impl Survey {
    /// Writers with a WAL or a checkpoint log.
    pub(super) fn writers(&self) -> BTreeSet<WriterId> {
        self.wal
            .keys()
            .chain(self.checkpoints.keys())
            .copied()
            .collect()
    }
}

impl Check<'_> {
    pub(super) async fn survey(&mut self) -> Result<(), StoreError> {
        self.say("listing");
        for meta in self.store.list_all("").await? {
            match keys::parse(&meta.key) {
                Some(keys::Named::Data(object)) => {
                    self.found.data.insert(object, meta.size);
                }
                Some(keys::Named::Wal(writer, number)) => {
                    self.found
                        .wal
                        .entry(writer)
                        .or_default()
                        .insert(number, meta.size);
                }
                Some(keys::Named::Checkpoint(writer, number)) => {
                    self.found
                        .checkpoints
                        .entry(writer)
                        .or_default()
                        .insert(number);
                }
                None => self.report.others.push(meta.key),
            }
        }
        Ok(())
    }
}
