//! Exit codes. Documented in the README: supervisors act on them.

use std::process::ExitCode;

/// Why the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All well.
    Ok = 0,
    /// A command failed, or the broker could not start or stop cleanly. Restarting may help.
    Failed = 1,
    /// Wrong use: bad flag, unknown setting, bad value. Restarting does not help.
    Usage = 2,
    /// Another broker has taken over this one's data. Must not be restarted automatically: two
    /// supervisors would fence each other for ever.
    Superseded = 3,
    /// Stored data is damaged, or newer than this version. Restarting does not help.
    Damaged = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
