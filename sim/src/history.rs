//! What was observed, in order.

use std::{collections::BTreeMap, fmt::Write as _};

use tidemill_invariants::log::{Batch, Marks, marks_advance};
use tidemill_wire::ids::PartitionId;

/// What became of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not answered yet, or the answer was lost: it may turn out either way.
    Unknown,
    /// Acknowledged with this base offset.
    Acked(i64),
    /// Certainly did not happen.
    Failed,
}

/// One batch that a producer sent, with all its resends.
#[derive(Clone, Debug)]
pub struct Send {
    /// The producer's number.
    pub producer: usize,
    /// Where to.
    pub partition: PartitionId,
    /// The values, unique over the run.
    pub values: Vec<u64>,
    /// True if the producer is idempotent.
    pub idempotent: bool,
    /// Position in the event log of the first try.
    pub sent_at: usize,
    /// Position in the event log of the answer.
    pub answered_at: Option<usize>,
    /// The outcome.
    pub fate: Fate,
}

/// Everything observed in one run.
#[derive(Debug, Default)]
pub struct History {
    /// One line an event.
    pub log: Vec<String>,
    /// All sends, in the order of their first try.
    pub sends: Vec<Send>,
    /// What was seen at each offset by any reader of any broker.
    pub seen: BTreeMap<(PartitionId, i64), u64>,
    /// Highest marks acknowledged or seen of each partition.
    pub high_watermarks: BTreeMap<PartitionId, i64>,
    /// Marks per broker incarnation and partition.
    marks: BTreeMap<(usize, PartitionId), Marks>,
    /// Anomalies found while running.
    pub violations: Vec<String>,
}

impl History {
    /// Adds a line; returns its position.
    pub fn note(&mut self, at_ms: i64, text: &str) -> usize {
        let mut line = String::new();
        // Writing to a string never fails.
        let _ = write!(line, "{:>9} {text}", at_ms);
        self.log.push(line);
        self.log.len() - 1
    }

    /// Notes something that must never be.
    pub fn violate(&mut self, at_ms: i64, text: String) {
        self.note(at_ms, &format!("VIOLATION {text}"));
        self.violations.push(text);
    }

    /// A reader saw `value` at `offset`.
    pub fn saw(&mut self, at_ms: i64, partition: PartitionId, offset: i64, value: u64) {
        match self.seen.insert((partition, offset), value) {
            Some(before) if before != value => {
                let text = format!(
                    "inconsistent-offsets: {before} and then {value} at {partition}@{offset}"
                );
                self.violate(at_ms, text);
            }
            _ => {}
        }
    }

    /// Marks of a partition as one broker incarnation showed them (I3).
    pub fn marks(&mut self, at_ms: i64, broker: usize, partition: PartitionId, marks: Marks) {
        let high = self.high_watermarks.entry(partition).or_default();
        *high = (*high).max(marks.high_watermark);
        let before = self.marks.insert((broker, partition), marks);
        let before = before.unwrap_or_default();
        if let Err(violation) = marks_advance(&before, &marks) {
            let text = format!("{violation}: {partition} on broker {broker}: {before:?} {marks:?}");
            self.violate(at_ms, text);
        }
    }
}

/// A partition as it is read at the end.
#[derive(Clone, Debug)]
pub struct FinalPartition {
    /// Which.
    pub partition: PartitionId,
    /// The marks.
    pub marks: Marks,
    /// The batches, in order.
    pub batches: Vec<Batch>,
    /// Offset and value of each record.
    pub records: Vec<(i64, u64)>,
}
