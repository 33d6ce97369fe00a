//! Judging a run: anomalies of the history against what is there at the end.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_invariants::log::{covered, real_time_order, sequences_are_unique};
use tidemill_wire::ids::PartitionId;

use crate::history::{Fate, FinalPartition, History, Send};

/// Something that must never be.
pub type Finding = String;

/// All findings about the partitions that exist at the end.
pub fn judge(history: &History, partitions: &[FinalPartition]) -> Vec<Finding> {
    let mut findings = history.violations.clone();
    for partition in partitions {
        let sends: Vec<_> = history
            .sends
            .iter()
            .filter(|send| send.partition == partition.partition)
            .collect();
        stored(partition, &mut findings);
        acknowledged(partition, &sends, &mut findings);
        duplicates(partition, &sends, &mut findings);
        order(&sends, partition, &mut findings);
        seen(history, partition, &mut findings);
    }
    findings
}

/// I4, I7: no gap, no overlap, no sequence number twice.
fn stored(partition: &FinalPartition, findings: &mut Vec<Finding>) {
    let id = partition.partition;
    let pieces: Vec<_> = partition.batches.iter().map(|b| (b.base, b.last)).collect();
    let marks = partition.marks;
    let covered = covered(marks.log_start, marks.high_watermark, &pieces);
    let unique = sequences_are_unique(&partition.batches);
    for violation in [covered, unique].into_iter().filter_map(Result::err) {
        findings.push(format!("{violation} in {id}: {marks:?}, {pieces:?}"));
    }
}

/// I1, `lost-write`, G1a.
fn acknowledged(partition: &FinalPartition, sends: &[&Send], findings: &mut Vec<Finding>) {
    let id = partition.partition;
    let at: BTreeMap<i64, u64> = partition.records.iter().copied().collect();
    let present: BTreeSet<u64> = at.values().copied().collect();
    for send in sends {
        match send.fate {
            Fate::Acked(base) => {
                for (offset, value) in (base..).zip(&send.values) {
                    let below = offset < partition.marks.log_start;
                    let found = at.get(&offset);
                    if !below && found != Some(value) {
                        findings.push(format!(
                            "I1 lost-write: {value} acknowledged at {id}@{offset}, found {found:?}"
                        ));
                    }
                }
            }
            Fate::Failed => {
                if let Some(value) = send.values.iter().find(|value| present.contains(value)) {
                    findings.push(format!("G1a: {value} failed and is in {id}"));
                }
            }
            Fate::Unknown => {}
        }
    }
}

/// `duplicate`: one value at two offsets. No producer here sends a value anew unless it is
/// idempotent.
fn duplicates(partition: &FinalPartition, sends: &[&Send], findings: &mut Vec<Finding>) {
    let known: BTreeSet<u64> = sends
        .iter()
        .flat_map(|s| s.values.iter().copied())
        .collect();
    let mut met = BTreeSet::new();
    for (offset, value) in &partition.records {
        if !met.insert(*value) {
            let id = partition.partition;
            findings.push(format!("I7 duplicate: {value} again at {id}@{offset}"));
        }
        if !known.contains(value) {
            let id = partition.partition;
            findings.push(format!("{value} at {id}@{offset} was never sent there"));
        }
    }
}

/// I6 between all sends, `nonmonotonic-send` within a producer.
fn order(sends: &[&Send], partition: &FinalPartition, findings: &mut Vec<Finding>) {
    let id = partition.partition;
    let acked = |send: &&Send| match (send.fate, send.answered_at) {
        (Fate::Acked(base), Some(at)) => Some((at, base, send.values.len())),
        _ => None,
    };
    // Of all answered before a moment, the one with the highest offset.
    let mut answered: Vec<_> = sends.iter().filter_map(acked).collect();
    answered.sort_unstable();
    let mut next_answer = 0;
    let mut highest = None;
    for send in sends {
        while let Some((_, base, len)) = answered.get(next_answer).filter(|a| a.0 < send.sent_at) {
            highest = highest.max(Some(base + i64::try_from(*len).unwrap_or(0) - 1));
            next_answer += 1;
        }
        if let (Fate::Acked(base), Some(last)) = (send.fate, highest)
            && let Err(violation) = real_time_order(last, base)
        {
            findings.push(format!("{violation}: {id}@{base} after {last}"));
        }
    }
    let mut last_of: BTreeMap<usize, i64> = BTreeMap::new();
    for send in sends.iter().filter(|send| send.idempotent) {
        if let Fate::Acked(base) = send.fate {
            let last = last_of.insert(send.producer, base);
            if last.is_some_and(|last| last >= base) {
                let producer = send.producer;
                findings.push(format!(
                    "nonmonotonic-send: {id}@{base} of producer {producer}"
                ));
            }
        }
    }
}

/// I3, I5: whatever anybody saw is still there, and the high watermark did not go back.
fn seen(history: &History, partition: &FinalPartition, findings: &mut Vec<Finding>) {
    let id = partition.partition;
    let at: BTreeMap<i64, u64> = partition.records.iter().copied().collect();
    let range = (id, partition.marks.log_start)..=(id, i64::MAX);
    for ((_, offset), value) in history.seen.range(range) {
        if at.get(offset) != Some(value) {
            let found = at.get(offset);
            findings.push(format!(
                "inconsistent-offsets: {value} was read at {id}@{offset}, at the end {found:?}"
            ));
        }
    }
    let highest = history.high_watermarks.get(&id).copied().unwrap_or(0);
    if partition.marks.high_watermark < highest {
        findings.push(format!(
            "I3: {id} ended at {:?}, was at {highest}",
            partition.marks
        ));
    }
}

/// Partitions in the order of their ids, as a name for the event log.
pub fn short(id: PartitionId) -> String {
    let topic = id.topic.0;
    format!("{:02x}{:02x}-{}", topic[0], topic[1], id.index)
}
