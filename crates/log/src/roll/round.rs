//! One round: from the WAL into data objects.

use std::sync::Arc;

use tidemill_wire::ids::{Offset, PartitionId};

use super::{
    RollError, Roller,
    build::{OutBatch, OutRun, Output},
    change::Change,
    damage::is_damage,
    room::Plan,
};
use crate::{
    extents::ExtentList,
    format::data::BatchInfo,
    partition::Partition,
    read::{BatchBytes, Caching},
    types::TailBatch,
};

/// Batches of neighbouring partitions are read together up to this size, so that a WAL object that
/// holds many of them is read once.
const GROUP_BYTES: u64 = 16 << 20;

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundReport {
    /// Bytes of batches that left the WAL.
    pub bytes: u64,
    /// Partitions whose state was published.
    pub partitions: usize,
    /// True if a checkpoint was published.
    pub published: bool,
}

/// What a round has written.
#[derive(Default)]
struct Moved {
    out: Output,
    /// Partitions that may have changed.
    touched: Vec<Arc<Partition>>,
    bytes: u64,
}

/// One partition's share of a round.
pub(super) struct Share {
    pub(super) partition: Arc<Partition>,
    pub(super) batches: Vec<TailBatch>,
}

impl Share {
    fn len(&self) -> u64 {
        self.batches
            .iter()
            .map(|batch| u64::from(batch.size_bytes))
            .sum()
    }
}

impl Roller {
    /// Rolls everything committed, or what there is space for, and publishes it with whatever else
    /// changed; nothing if nothing did. Finishes an earlier step first if its outcome is open.
    ///
    /// # Errors
    /// [`RollError`]; the step may be tried again unless fenced.
    pub async fn round(&mut self) -> Result<RoundReport, RollError> {
        self.resume().await?;
        let plan = self.plan().await;
        let mut moved = Moved::default();
        let rolled = self.move_all(plan, &mut moved).await;
        let mut extents = self.finish(moved.out, rolled).await?;
        let mut touched = moved.touched;
        touched.retain(|partition| {
            let has_more = extents.contains_key(&partition.id());
            self.is_spoken_for(plan, partition, has_more)
        });
        let cut = self.capped(plan.cut);
        let changes: Vec<Change> = touched
            .iter()
            .map(|partition| {
                let mut change = Change::new(partition);
                change.append(extents.remove(&partition.id()).unwrap_or_default());
                change
            })
            .collect();
        let dropped = self.gone();
        let mut report = RoundReport {
            bytes: moved.bytes,
            ..RoundReport::default()
        };
        let nothing_changed = changes.is_empty() && dropped.is_empty();
        // Also what this round has written for a partition that it then left out.
        let owes_garbage = self.has_unsaid_garbage() || !self.unpublished.is_empty();
        let owes = self.owes_checkpoint() || self.owes_trim(cut) || owes_garbage;
        if nothing_changed && !owes {
            return Ok(report);
        }
        report.partitions = changes.len();
        report.published = true;
        self.publish(changes, dropped, Some(cut)).await?;
        Ok(report)
    }

    /// Writes what the plan moves. What was begun is in `moved` whatever happens.
    async fn move_all(&mut self, plan: Plan, moved: &mut Moved) -> Result<(), RollError> {
        let mut group: Vec<Share> = Vec::new();
        let mut group_bytes = 0;
        self.review_left_out();
        for partition in self.log.partitions() {
            if !plan.moves || self.is_left_out(&partition) {
                moved.touched.push(partition);
                continue;
            }
            let batches = partition.roll_candidates(self.log.writer(), plan.cut);
            if batches.is_empty() {
                if self.has_changed(&partition) {
                    moved.touched.push(partition);
                }
                continue;
            }
            // Copying a partition's list of batches was work enough for one turn.
            tokio::task::yield_now().await;
            moved.touched.push(partition.clone());
            let share = Share { partition, batches };
            group_bytes += share.len();
            group.push(share);
            if group_bytes >= GROUP_BYTES {
                moved.bytes += group_bytes;
                group_bytes = 0;
                self.roll_group(&mut moved.out, std::mem::take(&mut group))
                    .await?;
            }
        }
        moved.bytes += group_bytes;
        self.roll_group(&mut moved.out, group).await
    }

    /// True if a checkpoint has something to say of a partition, of which something was moved or
    /// not.
    fn is_spoken_for(&self, plan: Plan, partition: &Partition, was_moved: bool) -> bool {
        let is_held_back = !plan.moves || self.left_out.contains_key(&partition.id());
        if is_held_back && self.is_inherited(partition) {
            return false;
        }
        // Where there is no space, only what makes some.
        was_moved
            || match plan.moves {
                true => self.has_changed(partition),
                false => self.has_moved_start(partition),
            }
    }

    /// Partitions that a checkpoint of this writer holds and that it leads no more.
    pub(super) fn gone(&self) -> Vec<PartitionId> {
        let is_gone = |id: &&PartitionId| self.log.partition(**id).is_none();
        self.known.keys().filter(is_gone).copied().collect()
    }

    /// Partitions that were taken over and dropped before a checkpoint of this writer held them.
    pub(super) fn gone_unpublished(&self) -> Vec<(PartitionId, Arc<ExtentList>)> {
        let is_gone = |(id, _): &&(PartitionId, Arc<ExtentList>)| {
            self.log.partition(*id).is_none() && !self.known.contains_key(id)
        };
        self.inherited.iter().filter(is_gone).cloned().collect()
    }

    /// True if there is something to say although no partition has changed.
    pub(super) fn owes_checkpoint(&self) -> bool {
        let first = self.ckpt.newest().is_none();
        first && !self.cleanup.is_empty()
            || !self.orphans.is_empty()
            || !self.gone_unpublished().is_empty()
    }

    /// True if the WAL below `cut` holds something that no round will move: a partition that was
    /// dropped before.
    pub(super) fn owes_trim(&self, cut: u64) -> bool {
        let from = self.replay_from;
        self.log.forgotten_below() > from && cut > from
    }

    /// True if the newest checkpoint does not say how things stand.
    pub(super) fn has_changed(&self, partition: &Partition) -> bool {
        let (next_offset, log_start) = (partition.high_watermark(), partition.log_start());
        match self.known.get(&partition.id()) {
            None => next_offset > Offset(0),
            Some(known) => {
                known.next_offset != next_offset
                    || known.log_start != log_start
                    || known.leader_epoch != partition.leader_epoch()
            }
        }
    }

    async fn roll_group(&mut self, out: &mut Output, group: Vec<Share>) -> Result<(), RollError> {
        // Large shares go segment by segment, so that no more than a segment is read at once.
        let (large, small): (Vec<_>, Vec<_>) = group
            .into_iter()
            .partition(|share| share.len() >= self.segment_bytes_min());
        let batches: Vec<_> = small
            .iter()
            .flat_map(|share| &share.batches)
            .cloned()
            .collect();
        let read = self.log.reader().batch_bytes(&batches, Caching::Pass).await;
        match read {
            Ok(bytes) => {
                let mut bytes = bytes.into_iter();
                for share in small {
                    let count = share.batches.len();
                    self.put_share(out, share, bytes.by_ref().take(count))
                        .await?;
                }
            }
            // One after the other, so that those roll that can be read.
            Err(error) if is_damage(&error) => {
                for share in small {
                    self.roll_alone(out, share).await?;
                }
            }
            Err(error) => return Err(error.into()),
        }
        for share in large {
            self.roll_large(out, share).await?;
        }
        Ok(())
    }

    async fn put_share(
        &mut self,
        out: &mut Output,
        share: Share,
        bytes: impl Iterator<Item = BatchBytes>,
    ) -> Result<(), RollError> {
        let (id, start) = (share.partition.id(), start_of(&share.partition));
        self.take_in(id);
        let pairs = share.batches.into_iter().zip(bytes).collect();
        match run_of(id, start, pairs) {
            Some(run) => self.put_run(out, run).await,
            None => Ok(()),
        }
    }

    async fn roll_alone(&mut self, out: &mut Output, share: Share) -> Result<(), RollError> {
        let reader = self.log.reader().clone();
        match reader.batch_bytes(&share.batches, Caching::Pass).await {
            Ok(bytes) => self.put_share(out, share, bytes.into_iter()).await,
            Err(error) if is_damage(&error) => {
                let first = share.batches.first();
                let first = first.map_or(Offset(0), |batch| batch.base_offset);
                self.leave_out(&share, first, &error);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn roll_large(&mut self, out: &mut Output, share: Share) -> Result<(), RollError> {
        let id = share.partition.id();
        // What a sealed writer left goes as a whole or not at all. Once it was found damaged, all
        // of it is read before any is written: each try would leave a copy of what is sound.
        if self.is_held_back(&share.partition) && !self.is_sound(&share).await? {
            return Ok(());
        }
        let mut start = start_of(&share.partition);
        for part in pieces(&share.batches, self.options.segment_bytes_max) {
            let Some(bytes) = self.read_piece(&share, part).await? else {
                return Ok(());
            };
            let pairs = part.iter().cloned().zip(bytes).collect();
            if let Some(run) = run_of(id, start, pairs) {
                start = Some(run.offsets.end);
                self.put_run(out, run).await?;
            }
        }
        self.take_in(id);
        Ok(())
    }

    /// True if all of the share can be read; if not, its partition is left out.
    async fn is_sound(&mut self, share: &Share) -> Result<bool, RollError> {
        for part in pieces(&share.batches, self.options.segment_bytes_max) {
            if self.read_piece(share, part).await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a piece of a share. `None` if it is damaged: its partition is left out from there on.
    async fn read_piece(
        &mut self,
        share: &Share,
        part: &[TailBatch],
    ) -> Result<Option<Vec<BatchBytes>>, RollError> {
        match self.log.reader().batch_bytes(part, Caching::Pass).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_damage(&error) => {
                let first = part.first();
                let first = first.map_or(Offset(0), |batch| batch.base_offset);
                self.leave_out(share, first, &error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Batches in pieces of up to `bytes_max`, or of one batch.
fn pieces(batches: &[TailBatch], bytes_max: u64) -> impl Iterator<Item = &[TailBatch]> {
    let mut rest = batches;
    std::iter::from_fn(move || {
        let mut len = 0;
        let fits = |batch: &&TailBatch| {
            len += u64::from(batch.size_bytes);
            len <= bytes_max
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (part, later) = rest.split_at_checked(count)?;
        rest = later;
        Some(part)
    })
}

/// Where the partition's next extent begins: extents follow each other without holes.
fn start_of(partition: &Partition) -> Option<Offset> {
    let list = partition.extents();
    (!list.is_empty()).then(|| list.end_offset())
}

fn run_of(
    partition: PartitionId,
    start: Option<Offset>,
    batches: Vec<(TailBatch, Vec<bytes::Bytes>)>,
) -> Option<OutRun> {
    let first = batches.first()?.0.base_offset;
    let end = batches.last()?.0.last_offset.plus(1);
    let batches = batches.into_iter().map(|(batch, slices)| OutBatch {
        info: BatchInfo {
            base_offset: batch.base_offset,
            crc: batch.crc,
            max_timestamp: batch.max_timestamp,
        },
        slices,
    });
    Some(OutRun {
        partition,
        offsets: start.unwrap_or(first).min(first)..end,
        batches: batches.collect(),
    })
}
