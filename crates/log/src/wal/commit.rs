//! The step in which an entry becomes durable, visible and acknowledged (R1).

use std::{ops::Range, sync::Arc, sync::atomic::Ordering};

use tidemill_invariants::{Violation, log as rule, wal as wal_rule};
use tidemill_wire::{
    batch::BatchHeader,
    ids::{Offset, WriterId},
};

use super::{
    engine::Engine,
    stage::{Fragment, Staged, StagedBody},
};
use crate::{
    partition::{Partition, weight},
    types::{BatchSlices, TailBatch, WalPosition, WalSpan},
};

/// A batch that has just become durable.
struct Durable<'a> {
    header: &'a BatchHeader,
    data: BatchSlices,
    crc: u32,
    spans: Vec<WalSpan>,
    written_ms: i64,
}

/// The byte ranges of objects that hold `range` of an entry.
fn spans(writer: WriterId, fragments: &[Fragment], range: Range<u64>) -> Vec<WalSpan> {
    let mut spans = Vec::with_capacity(1);
    let mut start = 0;
    for fragment in fragments {
        let end = start + fragment.len;
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            let position = WalPosition {
                writer,
                number: fragment.number,
            };
            let at = fragment.at + from - start;
            spans.push(WalSpan {
                position,
                range: at..at + (to - from),
            });
        }
        start = end;
    }
    spans
}

impl Engine {
    /// Commits the entries that are ready, in order; false if the writer had to stop.
    pub(super) fn commit_ready(&mut self) -> bool {
        // Reversed and popped: what is left when a commit fails is failed with the rest.
        self.ready.reverse();
        while let Some(ready) = self.ready.pop() {
            self.committing = Some(ready.entry.outcome.clone());
            if let Err(broken) = self.commit(ready.written_ms, ready.entry) {
                self.broken(broken);
                return false;
            }
            self.committing = None;
        }
        true
    }

    fn commit(&mut self, written_ms: i64, entry: Staged) -> Result<(), Violation> {
        let mut fragments = entry.fragments.iter();
        let landed = fragments.all(|fragment| self.window.has_landed(fragment.number));
        let last = entry.fragments.last().map_or(0, |last| last.number);
        let missing = self.window.missing_before(last);
        wal_rule::committed_is_durable(landed, entry.deps, missing)?;
        for part in entry.parts {
            let partition = &part.partition;
            let is_kept = match part.body {
                StagedBody::Records {
                    header,
                    data,
                    start,
                    crc,
                    ..
                } => {
                    let range = start..start + data.len() as u64;
                    let spans = spans(self.wal.writer, &entry.fragments, range);
                    let durable = Durable {
                        header: &header,
                        data,
                        crc,
                        spans,
                        written_ms,
                    };
                    partition.commit_records(durable)?
                }
                StagedBody::LogStart { offset, .. } => partition.commit_log_start(offset),
            };
            if let (false, Some(last)) = (is_kept, entry.fragments.last()) {
                self.wal.note_forgotten(last.number);
            }
            if !partition.mark_touched() {
                self.touched.push(part.partition);
            }
        }
        self.wal
            .pending_bytes
            .fetch_sub(entry.bytes, Ordering::AcqRel);
        self.wal.unsettled.fetch_sub(1, Ordering::AcqRel);
        entry.outcome.resolve(Ok(()));
        Ok(())
    }

    /// Tells whoever waits for the partitions just committed to.
    pub(super) fn wake_touched(&mut self) {
        for partition in self.touched.drain(..) {
            partition.wake();
        }
    }
}

impl Partition {
    /// False if the partition was dropped meanwhile, so that nobody keeps the batch.
    fn commit_records(self: &Arc<Self>, batch: Durable<'_>) -> Result<bool, Violation> {
        let header = batch.header;
        let (base, last) = (header.base_offset, header.last_offset());
        let bytes = batch.data.len() as u64;
        let mut state = self.lock();
        rule::offsets_are_dense(state.high_watermark.0, base.0, last.0)?;
        let before = self.marks();
        state.high_watermark = header.next_offset();
        state.epochs.note(header.partition_leader_epoch, base);
        if header.has_producer() {
            state.producers.commit(header, batch.written_ms);
        }
        let is_kept = state.stopped.is_none();
        if is_kept {
            state.tail.push(TailBatch {
                base_offset: base,
                last_offset: last,
                leader_epoch: header.partition_leader_epoch,
                max_timestamp: header.max_timestamp,
                size_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                crc: batch.crc,
                attributes: header.attributes.0,
                producer_id: header.producer_id,
                committed_ms: batch.written_ms,
                spans: batch.spans,
                data: Some(batch.data),
            });
            self.budget().add_unrolled(weight(bytes));
        }
        self.publish(&state);
        drop(state);
        if is_kept {
            self.budget().charge(self, base, bytes);
        }
        rule::marks_advance(&before, &self.marks())?;
        Ok(is_kept)
    }

    /// False as for records.
    fn commit_log_start(&self, offset: Offset) -> bool {
        let mut state = self.lock();
        state.log_start = state.log_start.max(offset);
        let log_start = state.log_start;
        state.epochs.trim(log_start);
        let freed = state.tail.trim(log_start);
        self.budget().credit(freed);
        self.publish(&state);
        state.stopped.is_none()
    }
}
