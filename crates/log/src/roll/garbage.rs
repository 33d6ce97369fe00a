//! Which data objects nobody lists any more, and their deletion.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tidemill_runtime::Instant;
use tidemill_store::Envelope;
use tidemill_wire::ids::{Offset, PartitionId};

use super::{Fate, RollError, Roller, WalTrim, change::Change};
use crate::{
    ckpt::numbers_below,
    extents::{ExtentList, first_above},
    format::data::{RUN_LEN, Run},
    keys,
    read::ReadError,
    types::{DataObjectId, Extent, ManifestRef},
};

/// A set object of which no more than one part in so many is alive is rewritten.
const SPARSE_SHARE: u64 = 4;
/// The same while space is low.
const SPARSE_SHARE_LOW: u64 = 2;

/// Objects that something has just ceased to list.
#[derive(Debug, Default)]
struct Candidates {
    /// Data objects with the extent that named them.
    data: BTreeMap<DataObjectId, Extent>,
    manifests: BTreeSet<DataObjectId>,
}

impl Candidates {
    fn add(&mut self, extent: &Extent) {
        self.data
            .entry(extent.object)
            .or_insert_with(|| extent.clone());
    }
}

/// The lists as they will be once the checkpoint counts.
struct After<'a> {
    changes: BTreeMap<PartitionId, &'a Change>,
    dropped: &'a [PartitionId],
}

impl Roller {
    /// Objects that nobody lists once `changes` and `dropped` are published. Notes runs of set
    /// objects worth rewriting on the way.
    pub(super) async fn find_garbage(
        &mut self,
        changes: &[Change],
        dropped: &[PartitionId],
    ) -> Result<BTreeSet<DataObjectId>, RollError> {
        let mut candidates = Candidates::default();
        for change in changes {
            self.candidates_of(change, &mut candidates).await?;
        }
        for partition in dropped {
            if let Some(known) = self.known.get(partition).cloned() {
                self.all_of(&known.extents, known.log_start, &mut candidates)
                    .await?;
            }
        }
        for (_, list) in self.gone_unpublished() {
            self.all_of(&list, Offset(0), &mut candidates).await?;
        }
        for (_, list) in self.orphans.clone() {
            self.all_of(&list, Offset(0), &mut candidates).await?;
        }
        let after = After {
            changes: changes.iter().map(|c| (c.partition.id(), c)).collect(),
            dropped,
        };
        let mut garbage = self.unlisted_manifests(&candidates.manifests, &after);
        for (object, extent) in &candidates.data {
            if self.is_unlisted(*object, extent, &after).await? {
                garbage.insert(*object);
            }
        }
        Ok(garbage)
    }

    /// What a change of one partition lists no more.
    async fn candidates_of(
        &self,
        change: &Change,
        candidates: &mut Candidates,
    ) -> Result<(), RollError> {
        let log_start = change.head.log_start;
        for extent in &change.before.recent {
            let moved = first_above(&change.moved, extent.base_offset) == Some(extent);
            let kept = first_above(&change.after.recent, extent.base_offset) == Some(extent);
            if !moved && !kept {
                candidates.add(extent);
            }
        }
        change
            .replaced
            .iter()
            .for_each(|extent| candidates.add(extent));
        let published = self
            .known
            .get(&change.partition.id())
            .map(|known| known.log_start);
        let from = published.unwrap_or(Offset(0));
        for manifest in &change.before.manifests {
            let names = |other: &ManifestRef| other.object == manifest.object;
            if !change.after.manifests.iter().any(names) {
                candidates.manifests.insert(manifest.object);
            }
            if manifest.base_offset >= log_start || manifest.end_offset <= from {
                continue;
            }
            let extents = self.log.reader().manifest(manifest).await?;
            let passed = extents
                .iter()
                .skip_while(|extent| extent.end_offset <= from);
            passed
                .take_while(|extent| extent.end_offset <= log_start)
                .for_each(|extent| {
                    candidates.add(extent);
                });
        }
        Ok(())
    }

    /// Everything a deleted partition listed.
    async fn all_of(
        &self,
        list: &ExtentList,
        log_start: Offset,
        candidates: &mut Candidates,
    ) -> Result<(), RollError> {
        for manifest in &list.manifests {
            candidates.manifests.insert(manifest.object);
            let extents = self.log.reader().manifest(manifest).await?;
            let alive = extents
                .iter()
                .filter(|extent| extent.end_offset > log_start);
            alive.for_each(|extent| candidates.add(extent));
        }
        list.recent.iter().for_each(|extent| candidates.add(extent));
        Ok(())
    }

    fn unlisted_manifests(
        &self,
        candidates: &BTreeSet<DataObjectId>,
        after: &After<'_>,
    ) -> BTreeSet<DataObjectId> {
        let mut unlisted = candidates.clone();
        if unlisted.is_empty() || !self.ownership.is_sole_leader() {
            return BTreeSet::new();
        }
        for partition in self.log.partitions() {
            let extents;
            let list = match after.changes.get(&partition.id()) {
                Some(change) => &change.after,
                None => {
                    extents = partition.extents();
                    &*extents
                }
            };
            list.manifests.iter().for_each(|manifest| {
                unlisted.remove(&manifest.object);
            });
        }
        unlisted
    }

    async fn is_unlisted(
        &mut self,
        object: DataObjectId,
        extent: &Extent,
        after: &After<'_>,
    ) -> Result<bool, RollError> {
        if is_only_run(extent) {
            return Ok(true);
        }
        let directory = match self.log.reader().directory(object, extent.object_len).await {
            Ok(directory) => directory,
            // Deleted already, by this writer before it crashed.
            Err(error) if error.is_missing() => return Ok(false),
            Err(error @ ReadError::Corrupt { .. }) => {
                tracing::warn!(%error, "object is kept: nothing says who lists it");
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let mut alive = Vec::new();
        let mut alive_bytes = 0;
        for run in &directory.runs {
            if self.lists(run, object, after).await? {
                alive_bytes += run.range.end - run.range.start;
                alive.push((run.partition, run.base_offset));
            }
        }
        let share = match self.log.wal().is_space_wanted() {
            true => SPARSE_SHARE_LOW,
            false => SPARSE_SHARE,
        };
        if !alive.is_empty() && alive_bytes < extent.object_len / share {
            self.sparse.extend(alive.iter().copied());
        }
        Ok(alive.is_empty())
    }

    /// True if the run's partition will list the run.
    async fn lists(
        &self,
        run: &Run,
        object: DataObjectId,
        after: &After<'_>,
    ) -> Result<bool, RollError> {
        if after.dropped.contains(&run.partition) {
            return Ok(false);
        }
        let extents;
        let (list, log_start) = match after.changes.get(&run.partition) {
            Some(change) => (&change.after, change.head.log_start),
            None => {
                let Some(partition) = self.log.partition(run.partition) else {
                    return Ok(self.ownership.fate(run.partition) == Fate::Elsewhere);
                };
                extents = partition.extents();
                let known = self.known.get(&run.partition);
                (&*extents, known.map_or(Offset(0), |known| known.log_start))
            }
        };
        // A manifest still names what the published log start has passed.
        if run.end_offset <= log_start {
            return Ok(false);
        }
        let found = self.log.reader().extent_at(list, run.base_offset).await?;
        Ok(found.is_some_and(|found| found.object == object && found.range == run.range))
    }

    /// Trims and deletes what is due. Returns how many objects went.
    pub async fn tidy(&mut self) -> usize {
        self.tidy_for(Duration::MAX).await
    }

    /// The same, but begins nothing more once it has taken `slice` for each of both. Where deleting
    /// takes longer than writing, all of it at once would hold up rounds and retention, and then be
    /// more the next time.
    pub(super) async fn tidy_for(&mut self, slice: Duration) -> usize {
        self.delete_garbage(slice).await + self.trim_wal(slice).await
    }

    /// True until `slice` has passed since `began`.
    fn is_within(&self, began: Instant, slice: Duration) -> bool {
        self.now().saturating_duration_since(began) < slice
    }

    /// Deletes objects whose grace has passed; what fails is tried again later. Returns how many.
    async fn delete_garbage(&mut self, slice: Duration) -> usize {
        let now = self.now();
        let due = |due: &Option<Instant>| due.is_some_and(|due| due <= now);
        let objects: Vec<DataObjectId> = self
            .garbage
            .iter()
            .filter(|(_, at)| due(at))
            .map(|(object, _)| *object)
            .collect();
        let mut count = 0;
        for object in objects {
            if !self.is_within(now, slice) {
                break;
            }
            match self.log.store().delete(&keys::data_key(object)).await {
                Ok(()) => {
                    self.garbage.remove(&object);
                    count += 1;
                }
                Err(error) => {
                    tracing::warn!(%error, "object could not be deleted");
                    break;
                }
            }
        }
        count
    }

    /// Trims WAL numbers whose grace has passed: ascending, one by one, by listing, never the
    /// newest. Returns how many.
    async fn trim_wal(&mut self, slice: Duration) -> usize {
        let began = self.now();
        let mut count = 0;
        while self.find_trims().await {
            while let Some(number) = self.trimming.front().copied() {
                if !self.is_within(began, slice) {
                    return count;
                }
                if let Err(error) = self.log.wal_objects().delete(number).await {
                    tracing::warn!(%error, "WAL could not be trimmed");
                    return count;
                }
                self.trimming.pop_front();
                count += 1;
            }
        }
        count
    }

    /// Lists the numbers to trim, unless some are left of the last time; false if none are due.
    async fn find_trims(&mut self) -> bool {
        if !self.trimming.is_empty() {
            return true;
        }
        let now = self.now();
        let is_due = |trim: &&WalTrim| trim.due <= now;
        let due = self.wal_trims.iter().take_while(is_due).count();
        let Some(trim) = self.wal_trims.drain(..due).next_back() else {
            return false;
        };
        match numbers_below(self.log.wal_objects(), trim.below).await {
            Ok(numbers) => {
                self.trimming.extend(numbers);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "WAL could not be listed");
                self.wal_trims.push_front(trim);
                false
            }
        }
    }
}

/// True if the extent is all that its object holds: a segment of one run.
fn is_only_run(extent: &Extent) -> bool {
    let bodies = (Envelope::LEN + 4 + RUN_LEN) as u64;
    extent.range.start == bodies && extent.footer.end == extent.object_len
}
