//! Writing data objects: several at once, none larger than its limit.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use tidemill_runtime::TaskHandle;
use tidemill_store::{PutId, StoreError};
use tidemill_wire::ids::{Offset, PartitionId};

use super::{RollError, Roller};
use crate::{
    format::data::{BatchInfo, BuiltObject, DataBuilder},
    keys,
    limits::BATCHES_IN_A_ROW,
    types::{DataObjectId, Extent},
};

type Upload = TaskHandle<Result<(), StoreError>>;

/// Objects under construction and on their way to the store.
#[derive(Default)]
pub(super) struct Output {
    uploads: Vec<Upload>,
    extents: BTreeMap<PartitionId, Vec<Extent>>,
    /// Runs of the set object, sorted when it is written.
    set: Vec<OutRun>,
    set_bytes: u64,
}

/// One batch on its way into an object.
pub(super) struct OutBatch {
    pub(super) info: BatchInfo,
    pub(super) slices: Vec<Bytes>,
}

impl OutBatch {
    pub(super) fn len(&self) -> u64 {
        self.slices.iter().map(|slice| slice.len() as u64).sum()
    }
}

/// A run to be written: batches of one partition that cover these offsets.
pub(super) struct OutRun {
    pub(super) partition: PartitionId,
    pub(super) offsets: Range<Offset>,
    pub(super) batches: Vec<OutBatch>,
}

impl OutRun {
    fn len(&self) -> u64 {
        self.batches.iter().map(OutBatch::len).sum()
    }
}

impl Roller {
    /// Adds a run, to a segment of its own if it is large, else to the set object. No run exceeds
    /// the size of a segment by more than a batch.
    pub(super) async fn put_run(&mut self, out: &mut Output, run: OutRun) -> Result<(), RollError> {
        let len = run.len();
        if len >= self.segment_bytes_min() {
            return self.upload(out, vec![run]).await;
        }
        if !out.set.is_empty() && out.set_bytes + len > self.options.set_bytes_max {
            self.end_set(out).await?;
        }
        out.set_bytes += len;
        out.set.push(run);
        Ok(())
    }

    async fn end_set(&mut self, out: &mut Output) -> Result<(), RollError> {
        let mut runs = std::mem::take(&mut out.set);
        out.set_bytes = 0;
        if runs.is_empty() {
            return Ok(());
        }
        runs.sort_by_key(|run| (run.partition, run.offsets.start));
        self.upload(out, runs).await
    }

    /// Ends the set object and waits until all objects are stored; or, if what came before has
    /// failed, until none is on its way: one would appear after it was given up with the rest.
    pub(super) async fn finish(
        &mut self,
        mut out: Output,
        before: Result<(), RollError>,
    ) -> Result<BTreeMap<PartitionId, Vec<Extent>>, RollError> {
        let mut ended = match before {
            Ok(()) => self.end_set(&mut out).await,
            failed @ Err(_) => failed,
        };
        for upload in out.uploads.drain(..) {
            ended = ended.and(joined(upload).await);
        }
        self.noting_full(ended)?;
        for extents in out.extents.values_mut() {
            extents.sort_by_key(|extent| extent.base_offset);
        }
        Ok(out.extents)
    }

    async fn upload(&mut self, out: &mut Output, runs: Vec<OutRun>) -> Result<(), RollError> {
        while out.uploads.len() >= self.options.uploads.max(1) {
            joined(out.uploads.remove(0)).await?;
        }
        let mut builder = DataBuilder::new();
        let mut built = 0;
        for run in runs {
            builder.begin(run.partition, run.offsets);
            for batch in run.batches {
                builder.push(batch.info, batch.slices);
                built += 1;
                if built % BATCHES_IN_A_ROW == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
        let object = self.next_object();
        let put_id = PutId(self.log.runtime().entropy.bytes16());
        let BuiltObject {
            payload, extents, ..
        } = builder.finish(object, put_id, self.log.options().cluster_id);
        for (partition, extent) in extents {
            out.extents.entry(partition).or_default().push(extent);
        }
        out.uploads.push(self.put_object(object, payload, put_id));
        Ok(())
    }

    /// Starts storing an object that is named once and for all.
    pub(super) fn put_object(
        &self,
        object: DataObjectId,
        payload: tidemill_store::Payload,
        put_id: PutId,
    ) -> Upload {
        let store = self.store.clone();
        let key = keys::data_key(object);
        self.log.runtime().tasks.spawn("log-roll-put", async move {
            store.put_unique(&key, payload, put_id, None).await
        })
    }
}

/// Waits for an upload.
pub(super) async fn joined(upload: Upload) -> Result<(), RollError> {
    match upload.join().await {
        Ok(stored) => stored.map_err(RollError::Store),
        // Panicked or aborted at shutdown; what it wrote, if anything, nobody lists.
        Err(_) => Err(RollError::Stopped),
    }
}
