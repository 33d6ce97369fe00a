//! A partition's offsets, marks and sequence numbers (I1 to I8).

use crate::{Violation, require};

/// The marks of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// First offset that may be read.
    pub log_start: i64,
    /// Where read-committed readers stop.
    pub last_stable: i64,
    /// One past the last committed offset.
    pub high_watermark: i64,
}

/// A stored batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Offset of its first record.
    pub base: i64,
    /// Offset of its last record.
    pub last: i64,
    /// Whatever tells its contents from others', such as a checksum.
    pub content: u64,
    /// Producer id, epoch, first and last sequence number, if it has them.
    pub producer: Option<(i64, i16, i32, i32)>,
}

/// I1: what was acknowledged at an offset is stored at it, unless it lies below the log start.
///
/// # Errors
/// It is not. Both slices are in offset order.
pub fn acked_is_stored(acked: &[Batch], stored: &[Batch], log_start: i64) -> Result<(), Violation> {
    for batch in acked.iter().filter(|batch| batch.base >= log_start) {
        let at = stored.partition_point(|candidate| candidate.base < batch.base);
        let found = stored.get(at).filter(|found| found.base == batch.base);
        let Some(found) = found else {
            return require(false, "I1", "an acknowledged batch is missing");
        };
        let same = found.last == batch.last && found.content == batch.content;
        require(
            same,
            "I1",
            "another batch is stored at an acknowledged offset",
        )?;
    }
    Ok(())
}

/// I2: a batch starts where the last one ended.
///
/// # Errors
/// It does not.
pub fn offsets_are_dense(next: i64, base: i64, last: i64) -> Result<(), Violation> {
    require(base == next, "I2", "base offset is not the next offset")?;
    require(last >= base, "I2", "batch ends before it starts")
}

/// I3: the high watermark never goes down, and the marks are in order.
///
/// # Errors
/// It does, or they are not.
pub fn marks_advance(before: &Marks, after: &Marks) -> Result<(), Violation> {
    require(
        after.high_watermark >= before.high_watermark,
        "I3",
        "high watermark went down",
    )?;
    require(
        after.log_start >= before.log_start,
        "I3",
        "log start went down",
    )?;
    require(
        after.last_stable <= after.high_watermark,
        "I3",
        "LSO above high watermark",
    )?;
    require(
        after.log_start <= after.last_stable,
        "I3",
        "log start above LSO",
    )
}

/// I4: every offset from `start` to the high watermark is in exactly one batch or declared gap.
/// `pieces` are first and last offsets of both, ascending; the first may begin below `start`.
///
/// # Errors
/// One is in none, or in two.
pub fn covered(start: i64, high_watermark: i64, pieces: &[(i64, i64)]) -> Result<(), Violation> {
    let mut next = start;
    for (index, (base, last)) in pieces.iter().enumerate() {
        let joins = *base == next || index == 0 && *base < next;
        require(joins, "I4", "an offset is in no batch, or in two")?;
        require(last >= base, "I2", "batch ends before it starts")?;
        next = last + 1;
    }
    require(
        next == high_watermark,
        "I4",
        "batches do not end at the high watermark",
    )
}

/// I5: two reads give the same batches.
///
/// # Errors
/// They do not.
pub fn same_bytes(one: &[Batch], other: &[Batch]) -> Result<(), Violation> {
    require(one == other, "I5", "two reads of one range differ")
}

/// I6: a batch acknowledged before another was sent stands before it.
///
/// # Errors
/// It does not.
pub fn real_time_order(acked_last: i64, sent_later_base: i64) -> Result<(), Violation> {
    require(
        acked_last < sent_later_base,
        "I6",
        "a later batch stands before an earlier one",
    )
}

/// I7: one producer id, epoch and sequence number is stored once, in order.
///
/// # Errors
/// It is not.
pub fn sequences_are_unique(stored: &[Batch]) -> Result<(), Violation> {
    let mut numbered: Vec<_> = stored
        .iter()
        .filter_map(|b| Some((b.producer?, b.base)))
        .collect();
    numbered.sort_unstable_by_key(|((id, epoch, first, _), base)| (*id, *epoch, *first, *base));
    let twice = numbered.windows(2).any(|pair| {
        let ((id, epoch, _, last), _) = pair[0];
        let ((next_id, next_epoch, first, next_last), _) = pair[1];
        // A pair whose numbers wrap within is left to the comparison with its other neighbour.
        id == next_id && epoch == next_epoch && first <= last && first <= next_last
    });
    require(!twice, "I7", "a sequence number is stored twice")
}

/// I8: the remembered sequence numbers of a producer are those of its newest stored batches.
/// Both are (first sequence, last sequence, base offset), oldest first.
///
/// # Errors
/// They are not.
pub fn sequence_state(
    remembered: &[(i32, i32, i64)],
    stored: &[(i32, i32, i64)],
) -> Result<(), Violation> {
    require(
        stored.ends_with(remembered),
        "I8",
        "sequence state does not match the data",
    )
}
