//! The extents of a partition: what has left the WAL and where it lies.

use tidemill_wire::ids::Offset;

use crate::{
    format::checkpoint::{PartitionUpdate, Splice},
    types::{Extent, ManifestRef},
};

/// A partition's extents in ascending order: the bulk in manifests, read when needed, the newest
/// beside them. Offsets between two extents are declared gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentList {
    /// Manifests, ascending.
    pub manifests: Vec<ManifestRef>,
    /// Extents above the manifests, ascending.
    pub recent: Vec<Extent>,
}

impl ExtentList {
    /// True if nothing has been rolled, or nothing of it is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.manifests.is_empty() && self.recent.is_empty()
    }

    /// One past the last offset that left the WAL; offset 0 if none did.
    #[must_use]
    pub fn end_offset(&self) -> Offset {
        let recent = self.recent.last().map(|extent| extent.end_offset);
        recent.unwrap_or_else(|| self.manifests_end())
    }

    /// One past the last offset of the manifests; offset 0 without manifests.
    #[must_use]
    pub fn manifests_end(&self) -> Offset {
        self.manifests
            .last()
            .map_or(Offset(0), |manifest| manifest.end_offset)
    }

    /// Bytes of all extents' batches. What lies below the log start in a manifest that reaches
    /// above it is counted, too.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let manifests: u64 = self
            .manifests
            .iter()
            .map(|manifest| manifest.size_bytes)
            .sum();
        manifests + self.recent.iter().map(Extent::size_bytes).sum::<u64>()
    }

    /// The first extent beside the manifests that ends above `offset`.
    #[must_use]
    pub fn recent_at(&self, offset: Offset) -> Option<&Extent> {
        first_above(&self.recent, offset)
    }

    /// The first manifest that ends above `offset`.
    #[must_use]
    pub fn manifest_at(&self, offset: Offset) -> Option<&ManifestRef> {
        let index = self
            .manifests
            .partition_point(|manifest| manifest.end_offset <= offset);
        self.manifests.get(index)
    }

    /// Applies what a checkpoint says of the partition.
    pub fn apply(&mut self, update: &PartitionUpdate) {
        if update.whole {
            *self = Self::default();
        }
        if let Some(manifests) = &update.manifests {
            self.manifests.clone_from(manifests);
            let end = self.manifests_end();
            self.recent.retain(|extent| extent.base_offset >= end);
        }
        for splice in &update.splices {
            self.splice(splice);
        }
        self.drop_below(update.head.log_start);
    }

    /// Applies one change of the extents beside the manifests.
    pub fn splice(&mut self, splice: &Splice) {
        let start = self
            .recent
            .partition_point(|extent| extent.base_offset < splice.from);
        let end = self
            .recent
            .partition_point(|extent| extent.base_offset < splice.to);
        self.recent
            .splice(start..end.max(start), splice.with.iter().cloned());
    }

    /// Drops extents and manifests that end at or below the log start.
    pub fn drop_below(&mut self, log_start: Offset) {
        self.manifests
            .retain(|manifest| manifest.end_offset > log_start);
        self.recent.retain(|extent| extent.end_offset > log_start);
    }
}

impl Extent {
    /// Bytes of its batches.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The first of `extents` (ascending) that ends above `offset`.
#[must_use]
pub fn first_above(extents: &[Extent], offset: Offset) -> Option<&Extent> {
    let index = extents.partition_point(|extent| extent.end_offset <= offset);
    extents.get(index)
}
