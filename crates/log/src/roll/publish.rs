//! Publishing changes: manifests, garbage, the checkpoint, and what follows once it counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tidemill_store::PutId;
use tidemill_wire::ids::PartitionId;

use super::{
    Known, RollError, Roller, WalTrim,
    build::joined,
    change::{Change, whole_update},
};
use crate::{
    ckpt::{Published, Round},
    error::AppendFailed,
    extents::ExtentList,
    format::{checkpoint::PartitionUpdate, manifest},
    types::{DataObjectId, Extent, ManifestRef, PartitionHead},
};

/// Extents kept beside the manifests when a manifest is written: what merges may still touch.
const RECENT_KEPT: usize = 16;
/// Extents at which a manifest is left alone and the next one begun.
const MANIFEST_EXTENTS_MAX: u32 = 1_024;

/// What is to happen when a checkpoint counts.
#[derive(Debug)]
pub(super) struct Pending {
    changes: Vec<Change>,
    /// Heads of partitions that a full checkpoint holds although they did not change.
    unchanged: Vec<(PartitionHead, Arc<ExtentList>)>,
    /// Partitions that were taken over, dropped, and never held by a checkpoint.
    orphaned: BTreeSet<PartitionId>,
    dropped: Vec<PartitionId>,
    cut: Option<u64>,
    garbage: BTreeSet<DataObjectId>,
}

impl Roller {
    /// Finishes a step whose checkpoint may or may not have landed.
    pub(super) async fn resume(&mut self) -> Result<(), RollError> {
        if self.log.is_fenced() {
            return Err(RollError::Fenced);
        }
        if self.pending.is_some() {
            match self
                .ckpt
                .resume()
                .await
                .map_err(|error| self.failed(error.into()))?
            {
                Some(published) => self.published(published),
                None => self.pending = None,
            }
        }
        self.disown();
        Ok(())
    }

    /// Objects of steps that failed before their checkpoint was begun: this writer knows that
    /// nobody will ever list them.
    fn disown(&mut self) {
        if self.pending.is_none() {
            let orphans = std::mem::take(&mut self.unpublished);
            self.garbage
                .extend(orphans.into_iter().map(|object| (object, None)));
        }
    }

    /// Fails once the log has stopped. A stopped log lists no partitions, which must not be taken
    /// for their deletion: to be called after every look at them, before anything is concluded.
    pub(super) fn still_leads(&self) -> Result<(), RollError> {
        match self.log.stopped() {
            None => Ok(()),
            Some(AppendFailed::Fenced) => Err(RollError::Fenced),
            Some(AppendFailed::Closed) => Err(RollError::Stopped),
        }
    }

    fn failed(&self, error: RollError) -> RollError {
        if error == RollError::Fenced {
            self.log.fence();
        }
        error
    }

    /// Publishes `changes` and, after the look, installs them.
    pub(super) async fn publish(
        &mut self,
        mut changes: Vec<Change>,
        dropped: Vec<PartitionId>,
        cut: Option<u64>,
    ) -> Result<(), RollError> {
        let full = self.ckpt.full_is_due();
        let mut named = self.write_manifests(&mut changes).await?;
        let orphaned = self
            .gone_unpublished()
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        let mut added = self.find_garbage(&changes, &dropped).await?;
        for change in &changes {
            named.extend(change.after.recent.iter().map(|extent| extent.object));
        }
        // A log start that moved meanwhile may have passed what was just written.
        added.extend(self.unpublished.difference(&named));
        let replay_from = cut.unwrap_or(self.replay_from).max(self.replay_from);
        let (updates, unchanged) = self.updates(&changes, full);
        self.still_leads()?;
        let mut garbage: BTreeSet<DataObjectId> = added.clone();
        // Those not said yet go with this one; all of them with a full one.
        let waiting = self.garbage.iter().filter(|(_, due)| full || due.is_none());
        garbage.extend(waiting.map(|(object, _)| *object));
        let round = Round {
            full,
            replay_from,
            decided_below: self.log.decided_below(),
            next_data_seq: self.next_seq,
            cleanup: self.cleanup.iter().copied().collect(),
            garbage: garbage.into_iter().collect(),
            dropped: dropped.clone(),
            updates,
        };
        self.pending = Some(Pending {
            changes,
            unchanged,
            orphaned,
            dropped,
            cut,
            garbage: added,
        });
        let published = self
            .ckpt
            .publish(round)
            .await
            .map_err(|error| self.failed(error.into()))?;
        // What was written has taken its space before it ceases to count as unrolled.
        self.log.wal().look_at_space().await;
        self.published(published);
        if published.full {
            // What cannot be trimmed now goes after the next full one.
            if let Err(error) = self.ckpt.trim().await {
                tracing::warn!(%error, "checkpoints could not be trimmed");
            }
        }
        Ok(())
    }

    fn updates(
        &self,
        changes: &[Change],
        full: bool,
    ) -> (Vec<PartitionUpdate>, Vec<(PartitionHead, Arc<ExtentList>)>) {
        let mut updates = BTreeMap::new();
        let mut unchanged = Vec::new();
        for change in changes {
            let id = change.partition.id();
            // The first word on a partition is its whole state.
            let whole = full || !self.known.contains_key(&id);
            updates.insert(id, change.update(whole));
        }
        if full {
            for partition in self.log.partitions() {
                if updates.contains_key(&partition.id()) || self.is_inherited(&partition) {
                    continue;
                }
                let head = partition.head();
                let extents = partition.extents();
                updates.insert(partition.id(), whole_update(&head, &extents));
                unchanged.push((head, extents));
            }
        }
        (updates.into_values().collect(), unchanged)
    }

    /// Moves extents into manifests where too many lie beside them; one object for all partitions.
    /// Returns what the new lists name, the object included.
    async fn write_manifests(
        &mut self,
        changes: &mut [Change],
    ) -> Result<BTreeSet<DataObjectId>, RollError> {
        let mut lists: Vec<(PartitionId, Vec<Extent>)> = Vec::new();
        let mut kept = Vec::new();
        for (index, change) in changes.iter_mut().enumerate() {
            if let Some((manifest, list)) = &change.rewritten {
                let manifests = &change.after.manifests;
                // The log start may have passed it meanwhile.
                let Some(at) = manifests.iter().position(|other| other == manifest) else {
                    continue;
                };
                lists.push((change.partition.id(), list.clone()));
                kept.push((index, Some(at), manifests.clone()));
                continue;
            }
            if change.after.recent.len() > self.options.recent_max {
                let (list, manifests) = self.overflow(change).await?;
                change.moved.clone_from(&list);
                lists.push((change.partition.id(), list));
                kept.push((index, None, manifests));
            }
        }
        if lists.is_empty() {
            return Ok(BTreeSet::new());
        }
        let object = self.next_object();
        let extents = lists.iter().flat_map(|(_, list)| list);
        let mut named: BTreeSet<_> = extents.map(|extent| extent.object).collect();
        named.insert(object);
        let put_id = PutId(self.log.runtime().entropy.bytes16());
        let cluster_id = self.log.options().cluster_id;
        let (payload, refs) = manifest::encode(object, &lists, put_id, cluster_id);
        let put = joined(self.put_object(object, payload, put_id)).await;
        self.noting_full(put)?;
        for ((index, at, mut manifests), (_, manifest)) in kept.into_iter().zip(refs) {
            match at.and_then(|at| manifests.get_mut(at)) {
                Some(place) => *place = manifest,
                None => manifests.push(manifest),
            }
            if let Some(change) = changes.get_mut(index) {
                change.set_manifests(manifests);
            }
        }
        Ok(named)
    }

    /// The list of a partition's next manifest, and the manifests before it.
    async fn overflow(
        &self,
        change: &Change,
    ) -> Result<(Vec<Extent>, Vec<ManifestRef>), RollError> {
        let recent = &change.after.recent;
        let moved = recent.len() - RECENT_KEPT.min(self.options.recent_max / 2);
        let mut manifests = change.after.manifests.clone();
        let mut list = Vec::new();
        if manifests
            .last()
            .is_some_and(|last| last.extents < MANIFEST_EXTENTS_MAX)
            && let Some(last) = manifests.pop()
        {
            list.extend(self.log.reader().manifest(&last).await?.iter().cloned());
            list.retain(|extent| extent.end_offset > change.head.log_start);
        }
        list.extend(recent.iter().take(moved).cloned());
        Ok((list, manifests))
    }

    /// A checkpoint counts: readers see it, and what it lets go may go after the grace.
    fn published(&mut self, published: Published) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        for change in pending.changes {
            let extents = Arc::new(change.after);
            self.note(&change.head, &extents);
            change.partition.install_extents(extents, change.end);
        }
        for (head, extents) in &pending.unchanged {
            self.note(head, extents);
        }
        for partition in &pending.dropped {
            self.known.remove(partition);
            self.first_newest.remove(partition);
        }
        self.orphans.clear();
        let known = &self.known;
        self.inherited
            .retain(|(id, _)| !pending.orphaned.contains(id) && !known.contains_key(id));
        self.unpublished.clear();
        let due = self.now() + self.options.grace;
        self.garbage
            .extend(pending.garbage.into_iter().map(|object| (object, None)));
        for waiting in self.garbage.values_mut() {
            waiting.get_or_insert(due);
        }
        if let Some(cut) = pending.cut
            && cut > self.replay_from
        {
            self.replay_from = cut;
            self.log.set_replay_from(cut);
            self.wal_trims.push_back(WalTrim { due, below: cut });
        }
        self.log.note_checkpoint();
        let (number, full) = (published.id.number, published.full);
        tracing::debug!(number, full, "checkpoint published");
    }

    fn note(&mut self, head: &PartitionHead, extents: &Arc<crate::extents::ExtentList>) {
        let known = Known {
            leader_epoch: head.leader_epoch,
            next_offset: head.next_offset,
            log_start: head.log_start,
            extents: extents.clone(),
        };
        self.known.insert(head.partition, known);
    }
}
