//! The commit rule of the WAL: which entries are committed, and which a replay applies.
//!
//! Sets of numbers before a number n are bitmaps: bit j stands for number n - 1 - j. Numbers
//! further back than [`SPAN`] - 1 are always decided.

use crate::{Violation, require};

/// Highest minus lowest undecided number stays below this.
pub const SPAN: u64 = 128;

/// True if an entry of object n is committed, and applied by every replay: its own object landed
/// and so did every number in `deps`. `missing` are the numbers before n that have not landed.
#[must_use]
pub const fn applies(own_landed: bool, deps: u128, missing: u128) -> bool {
    own_landed && deps & missing == 0
}

/// The numbers before n among `SPAN - 1` of which `landed` is false.
#[must_use]
pub fn missing_before(n: u64, landed: impl Fn(u64) -> bool) -> u128 {
    let mut missing = 0;
    for j in 0..(SPAN - 1).min(n) {
        if !landed(n - 1 - j) {
            missing |= 1 << j;
        }
    }
    missing
}

/// The bitmap before object `n + distance` that stands for object n itself and for `deps`, a bitmap
/// before n. What leaves the bitmap is decided: the span sees to that.
#[must_use]
pub const fn inherit(deps: u128, distance: u64) -> u128 {
    match distance {
        0 => deps,
        1..SPAN => (deps << distance | 1 << (distance - 1)) & WINDOW,
        _ => 0,
    }
}

/// The bits that a bitmap may use: SPAN - 1 numbers.
pub const WINDOW: u128 = u128::MAX >> 1;

/// R1, at the commit: an entry is committed only if all it depends on landed.
///
/// # Errors
/// It is not.
pub fn committed_is_durable(own_landed: bool, deps: u128, missing: u128) -> Result<(), Violation> {
    require(
        applies(own_landed, deps, missing),
        "R1",
        "committed before all it depends on landed",
    )
}

/// The span of the WAL is kept: a dependency bitmap reaches every undecided number.
///
/// # Errors
/// It is not.
pub fn span_kept(lowest_undecided: u64, highest: u64) -> Result<(), Violation> {
    let kept = highest.saturating_sub(lowest_undecided) < SPAN;
    require(
        kept,
        "R1",
        "highest minus lowest undecided number reaches the span",
    )
}

/// Trimming and rolling: what lies below the cut is decided and no entry straddles it.
///
/// # Errors
/// It is not; `entries` are the first and last numbers of entries cut into fragments.
pub fn cut_is_clean(cut: u64, decided_below: u64, entries: &[(u64, u64)]) -> Result<(), Violation> {
    require(
        cut <= decided_below,
        "I19",
        "cut lies above an undecided number",
    )?;
    let straddled = entries
        .iter()
        .any(|(first, last)| *first < cut && cut <= *last);
    require(!straddled, "I19", "an entry straddles the cut")
}
