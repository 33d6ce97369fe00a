//! What a step changes of one partition.

use std::sync::Arc;

use tidemill_wire::ids::Offset;

use crate::{
    extents::ExtentList,
    format::checkpoint::{PartitionUpdate, Splice},
    partition::Partition,
    types::{Extent, ManifestRef, PartitionHead},
};

/// A change of one partition's head and extents, to be published and then installed.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) partition: Arc<Partition>,
    pub(super) head: PartitionHead,
    /// The list as it was.
    pub(super) before: Arc<ExtentList>,
    /// The list as it will be.
    pub(super) after: ExtentList,
    splices: Vec<Splice>,
    manifests: Option<Vec<ManifestRef>>,
    /// Everything below is in extents.
    pub(super) end: Offset,
    /// A manifest whose list becomes this one.
    pub(super) rewritten: Option<(ManifestRef, Vec<Extent>)>,
    /// The list of the manifest that takes over what lay beside the manifests.
    pub(super) moved: Vec<Extent>,
    /// Extents that the rewritten list names no more.
    pub(super) replaced: Vec<Extent>,
}

impl Change {
    /// No change yet. The head is taken now: after the cut of the round.
    pub(super) fn new(partition: &Arc<Partition>) -> Self {
        let before = partition.extents();
        let head = partition.head();
        let mut after = (*before).clone();
        after.drop_below(head.log_start);
        Self {
            partition: partition.clone(),
            end: before.end_offset(),
            before,
            after,
            head,
            splices: Vec::new(),
            manifests: None,
            rewritten: None,
            moved: Vec::new(),
            replaced: Vec::new(),
        }
    }

    /// Adds extents at the end.
    pub(super) fn append(&mut self, extents: Vec<Extent>) {
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else {
            return;
        };
        self.end = self.end.max(last.end_offset);
        let from = first.base_offset;
        self.splice(Splice {
            from,
            to: from,
            with: extents,
        });
    }

    /// Replaces extents beside the manifests.
    pub(super) fn splice(&mut self, splice: Splice) {
        self.after.splice(&splice);
        self.after.drop_below(self.head.log_start);
        self.splices.push(splice);
    }

    /// Puts `with` in the place of `old` in the list of `manifest`, which is `list` now.
    pub(super) fn rewrite(
        &mut self,
        manifest: ManifestRef,
        list: &[Extent],
        old: &[Extent],
        with: Vec<Extent>,
    ) {
        let mut after: Vec<Extent> = list
            .iter()
            .filter(|extent| !old.contains(extent))
            .cloned()
            .chain(with)
            .collect();
        after.sort_by_key(|extent| extent.base_offset);
        self.rewritten = Some((manifest, after));
        self.replaced = old.to_vec();
    }

    /// Replaces the manifests; what the last one covers leaves the list beside them.
    pub(super) fn set_manifests(&mut self, manifests: Vec<ManifestRef>) {
        self.after.manifests = manifests.clone();
        let end = self.after.manifests_end();
        self.after.recent.retain(|extent| extent.base_offset >= end);
        self.manifests = Some(manifests);
        // The manifests come first in an update, so what they took over is in no splice any more.
        let recent = self.after.recent.clone();
        let from = end;
        self.splices = vec![Splice {
            from,
            to: Offset(i64::MAX),
            with: recent,
        }];
    }

    /// The update as a checkpoint holds it: the whole state, or what changed.
    pub(super) fn update(&self, whole: bool) -> PartitionUpdate {
        if whole {
            return whole_update(&self.head, &self.after);
        }
        PartitionUpdate {
            head: self.head.clone(),
            whole: false,
            manifests: self.manifests.clone(),
            splices: self.splices.clone(),
        }
    }
}

/// A partition's whole state.
pub(super) fn whole_update(head: &PartitionHead, list: &ExtentList) -> PartitionUpdate {
    let splices = if list.recent.is_empty() {
        Vec::new()
    } else {
        vec![Splice {
            from: Offset(0),
            to: Offset(i64::MAX),
            with: list.recent.clone(),
        }]
    };
    let manifests = (!list.manifests.is_empty()).then(|| list.manifests.clone());
    PartitionUpdate {
        head: head.clone(),
        whole: true,
        manifests,
        splices,
    }
}
