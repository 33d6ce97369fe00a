//! What must hold, as pure functions over snapshots of state.
//!
//! One function for each invariant, without dependencies. The same functions are asserted in
//! production at commit and replay, checked by the simulation, and used as oracles in tests.

pub mod log;
pub mod wal;

use std::fmt;

/// A broken invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's name, for example `I2`.
    pub invariant: &'static str,
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant `{}` broken: {}", self.invariant, self.what)
    }
}

impl std::error::Error for Violation {}

/// Nothing if `holds`, else the violation.
fn require(holds: bool, invariant: &'static str, what: &'static str) -> Result<(), Violation> {
    if holds {
        Ok(())
    } else {
        Err(Violation { invariant, what })
    }
}
