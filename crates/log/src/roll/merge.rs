//! Merging small extents into larger ones, and rewriting what keeps a mostly dead set object alive.
//!
//! Neighbouring extents are merged by size class, so that each byte is rewritten a bounded number
//! of times on its way to a large extent. Off the produce path, one bounded step after another.

use std::{collections::BTreeMap, sync::Arc};

use tidemill_wire::{
    batch::{BatchHeader, HEADER_BYTES},
    ids::{Offset, PartitionId},
};

use super::{
    RollError, Roller,
    build::{OutBatch, OutRun, Output},
    change::Change,
};
use crate::{
    format::{checkpoint::Splice, data::BatchInfo},
    partition::Partition,
    read::{ExtentRead, ReadError},
    types::{Extent, ManifestRef},
};

/// The smallest size class ends here; each further one is eight times as large.
const CLASS_BYTES: u64 = 64 << 10;
const CLASS_FACTOR: u64 = 8;
/// A merge that makes its largest extent so many times as large is worth its price.
const GROWTH_MIN: u64 = 4;
/// Extents of this class (32 MiB and more) are not merged again.
const CLASS_FINAL: u32 = 4;

fn class_of(extent: &Extent) -> u32 {
    let mut class = 0;
    let mut bound = CLASS_BYTES;
    while class < CLASS_FINAL && extent.size_bytes() >= bound {
        class += 1;
        bound *= CLASS_FACTOR;
    }
    class
}

/// Extents of one partition that become one.
struct Plan {
    partition: Arc<Partition>,
    extents: Vec<Extent>,
    /// The manifest that names them, with its list; none if they lie beside the manifests.
    manifest: Option<(ManifestRef, Arc<Vec<Extent>>)>,
}

impl Plan {
    fn bytes(&self) -> u64 {
        self.extents.iter().map(Extent::size_bytes).sum()
    }
}

impl Roller {
    /// Merges what is worth it, up to about the size of a segment. Returns the bytes rewritten; 0
    /// if there was nothing to do.
    ///
    /// # Errors
    /// [`RollError`]; the step may be tried again unless fenced.
    pub async fn merge_step(&mut self) -> Result<u64, RollError> {
        self.resume().await?;
        let plans = self.plan_merges().await?;
        let planned = plans.iter().map(Plan::bytes).sum();
        if plans.is_empty() || !self.has_room_to_merge(planned).await {
            return Ok(0);
        }
        let mut out = Output::default();
        let mut done: BTreeMap<PartitionId, Plan> = BTreeMap::new();
        let (mut bytes, mut put) = (0, Ok(()));
        for plan in plans {
            let id = plan.partition.id();
            let run = match self.read_plan(&plan).await {
                Ok(run) => run,
                Err(ReadError::Corrupt { key, what }) => {
                    // Never rewritten: the damaged bytes stay where a reader is told of them.
                    tracing::warn!(key, what, partition = %id, "extents are not merged");
                    continue;
                }
                Err(error) => {
                    put = Err(error.into());
                    break;
                }
            };
            bytes += plan.bytes();
            put = self.put_run(&mut out, run).await;
            if put.is_err() {
                break;
            }
            done.insert(id, plan);
        }
        let mut merged = self.finish(out, put).await?;
        let mut changes = Vec::new();
        for (id, plan) in done {
            let mut change = Change::new(&plan.partition);
            let extents = merged.remove(&id).unwrap_or_default();
            match &plan.manifest {
                Some((manifest, list)) => {
                    change.rewrite(manifest.clone(), list, &plan.extents, extents);
                }
                None => extents.into_iter().for_each(|extent| {
                    let (from, to) = (extent.base_offset, extent.end_offset);
                    change.splice(Splice {
                        from,
                        to,
                        with: vec![extent],
                    });
                }),
            }
            changes.push(change);
        }
        if !changes.is_empty() {
            self.publish(changes, Vec::new(), None).await?;
        }
        Ok(bytes)
    }

    /// At most one plan a partition.
    async fn plan_merges(&mut self) -> Result<Vec<Plan>, RollError> {
        let mut plans = Vec::new();
        let mut bytes = 0;
        for partition in self.log.partitions() {
            let list = partition.extents();
            // Only what the newest checkpoint says is merged.
            let known = self.known.get(&partition.id());
            if known.is_none_or(|known| !Arc::ptr_eq(&known.extents, &list)) {
                continue;
            }
            let log_start = partition.log_start();
            let recent: Vec<&Extent> = list
                .recent
                .iter()
                .filter(|extent| extent.end_offset > log_start)
                .collect();
            let plan = match self.neighbours(&recent) {
                Some(range) => {
                    let extents = recent
                        .get(range)
                        .into_iter()
                        .flatten()
                        .map(|e| (*e).clone());
                    Some(Plan {
                        partition,
                        extents: extents.collect(),
                        manifest: None,
                    })
                }
                None => self.sparse_run(&partition).await?,
            };
            let Some(plan) = plan else {
                continue;
            };
            bytes += plan.bytes();
            plans.push(plan);
            if bytes >= self.options.segment_bytes_max {
                break;
            }
        }
        Ok(plans)
    }

    /// Neighbours of one size class or below, together no larger than a segment; the smallest class
    /// first. Either enough are of that class to make one of the next, or the largest grows by
    /// much: else a large extent would be written again for each few small ones behind it.
    fn neighbours(&self, recent: &[&Extent]) -> Option<std::ops::Range<usize>> {
        for class in 0..CLASS_FINAL {
            let mut start = 0;
            while start < recent.len() {
                let (mut bytes, mut largest, mut of_class) = (0, 0, 0);
                let mut end = start;
                while let Some(extent) = recent.get(end)
                    && class_of(extent) <= class
                    && bytes + extent.size_bytes() <= self.options.segment_bytes_max
                {
                    bytes += extent.size_bytes();
                    largest = largest.max(extent.size_bytes());
                    of_class += usize::from(class_of(extent) == class);
                    end += 1;
                }
                let fan_in = self.options.merge_fan_in;
                let grows = end - start >= fan_in && bytes >= GROWTH_MIN * largest;
                if of_class >= fan_in || grows {
                    return Some(start..end);
                }
                start = end.max(start + 1);
            }
        }
        None
    }

    /// A run that keeps a mostly dead set object alive.
    async fn sparse_run(&mut self, partition: &Arc<Partition>) -> Result<Option<Plan>, RollError> {
        let (id, list) = (partition.id(), partition.extents());
        let all = (id, Offset(i64::MIN))..=(id, Offset(i64::MAX));
        let bases: Vec<Offset> = self.sparse.range(all).map(|(_, base)| *base).collect();
        for base in bases {
            self.sparse.remove(&(id, base));
            let manifest = match list.manifest_at(base) {
                Some(named) => Some((named.clone(), self.log.reader().manifest(named).await?)),
                None => None,
            };
            let extents = manifest
                .as_ref()
                .map_or(list.recent.as_slice(), |(_, list)| list);
            if let Some(extent) = extents.iter().find(|extent| extent.base_offset == base) {
                let (partition, extents) = (partition.clone(), vec![extent.clone()]);
                return Ok(Some(Plan {
                    partition,
                    extents,
                    manifest,
                }));
            }
        }
        Ok(None)
    }

    /// Reads all batches of a plan, verified chunk by chunk.
    async fn read_plan(&self, plan: &Plan) -> Result<OutRun, ReadError> {
        let list = plan.partition.extents();
        let (Some(first), Some(last)) = (plan.extents.first(), plan.extents.last()) else {
            return Err(ReadError::Gone(plan.partition.id()));
        };
        let offsets = first.base_offset..last.end_offset;
        let request = ExtentRead {
            offset: offsets.start,
            end: offsets.end,
            max_bytes: usize::MAX,
            at_least_one: true,
        };
        let read = self.log.reader().read_extents(&list, request).await?;
        let mut batches = Vec::new();
        for mut slice in read.slices {
            while !slice.is_empty() {
                let head = slice.get(..HEADER_BYTES).unwrap_or(&slice);
                let header = BatchHeader::parse(head);
                let header = header
                    .ok()
                    .filter(|header| header.size_bytes() <= slice.len());
                let Some(header) = header else {
                    let key = crate::keys::data_key(first.object);
                    return Err(ReadError::Corrupt {
                        key,
                        what: "batch is cut".to_owned(),
                    });
                };
                let bytes = slice.split_to(header.size_bytes());
                let info = BatchInfo {
                    base_offset: header.base_offset,
                    crc: crc32c::crc32c(&bytes),
                    max_timestamp: header.max_timestamp,
                };
                batches.push(OutBatch {
                    info,
                    slices: vec![bytes],
                });
            }
        }
        Ok(OutRun {
            partition: plan.partition.id(),
            offsets,
            batches,
        })
    }
}
