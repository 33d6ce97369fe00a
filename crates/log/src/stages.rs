//! How long entries spend in each part of the WAL's path.

use tidemill_runtime::Histogram;

/// One histogram per stage; an entry is counted once in each.
#[derive(Debug, Default)]
pub struct Stages {
    /// Appended to the start of its PUT, the first if it is cut: the class's spacing, and places in
    /// flight.
    pub queue: Histogram,
    /// A PUT's start to its answer, retries and hedges included. Counted once an object.
    pub put: Histogram,
    /// Its last object landed to the last one landed that it depends on: earlier records of its
    /// partitions in slower objects.
    pub order: Histogram,
    /// The last answer it needs to committed, acknowledged and its readers woken.
    pub commit: Histogram,
}
