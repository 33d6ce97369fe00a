//! Limits of the log, all named and settable.

use std::time::Duration;

use crate::{read::ReadOptions, roll::RollOptions};

/// How long a batch may wait for company before its WAL object is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Latency {
    /// `tidemill.latency=low`.
    Low,
    /// `tidemill.latency=balanced`.
    #[default]
    Balanced,
    /// `tidemill.latency=economy`.
    Economy,
}

impl Latency {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Balanced, Self::Economy];
}

/// Limits and spacing of one writer's WAL and of the tails in memory.
#[derive(Clone, Debug)]
pub struct LogLimits {
    /// Least time between the starts of two PUTs for a batch of class [`Latency::Low`]; a quarter
    /// of a PUT's latency once the store is measured, if `follows_store`.
    pub spacing_low: Duration,
    /// The same for [`Latency::Balanced`].
    pub spacing_balanced: Duration,
    /// The same for [`Latency::Economy`].
    pub spacing_economy: Duration,
    /// WAL objects in flight at once, at most [`crate::types::WAL_IN_FLIGHT_MAX`]. Few on a local
    /// directory, where syncs queue up anyway and waiting makes larger groups.
    pub puts_in_flight_max: usize,
    /// Of these, objects of bulk; below `puts_in_flight_max`, so that small entries find a place.
    pub bulk_in_flight_max: usize,
    /// Objects of small entries in flight from which on a further one waits until it has
    /// `gather_bytes` or one of them lands.
    pub gather_from: usize,
    /// See `gather_from`.
    pub gather_bytes: usize,
    /// Bytes after which a WAL object of small entries is sent without waiting for its time.
    pub object_target_bytes: usize,
    /// Entries above this are bulk: they never share an object with small ones.
    pub bulk_entry_bytes: usize,
    /// Bytes of bulk entries that share an object, and the size of a fragment; stream rate x half
    /// of (p90 - p50 of the base delay) once the store is measured, if `follows_store`.
    pub fragment_bytes: usize,
    /// `spacing_low` and `fragment_bytes` hold only until the store is measured.
    pub follows_store: bool,
    /// Largest entry in bytes.
    pub entry_bytes_max: usize,
    /// Appended and not yet committed bytes at which connections are muted.
    pub pending_bytes_max: u64,
    /// Free bytes of a local file system below which producers wait, at most an eighth of it; 0 for
    /// no floor. What is pending or unrolled needs space of its own above it.
    pub free_bytes_min: u64,
    /// Bytes of committed batches kept in memory over all partitions.
    pub tail_bytes_max: u64,
    /// Producers that have not written for so long are forgotten (`producer.id.expiration.ms`).
    pub producer_expiration: Duration,
    /// Cold reads.
    pub read: ReadOptions,
    /// Rounds, merge, trimming.
    pub roll: RollOptions,
}

const MIB: usize = 1 << 20;

impl LogLimits {
    /// Limits for a local directory or memory.
    #[must_use]
    pub fn local() -> Self {
        Self {
            spacing_low: Duration::ZERO,
            follows_store: false,
            // Measured: one PUT at a time reaches a third of the disk's rate, four two thirds,
            // eight all of it.
            puts_in_flight_max: 8,
            bulk_in_flight_max: 6,
            // Measured: an object costs CPU for its inode, names and syncs as a quarter of a
            // megabyte does, and small ones side by side wait for each other's syncs. Two leave
            // room for a record that comes while another's sync is under way.
            gather_from: 2,
            gather_bytes: MIB,
            object_target_bytes: 8 * MIB,
            // A sync costs as much as several megabytes here, so cutting finer gains nothing.
            bulk_entry_bytes: 2 * MIB,
            fragment_bytes: 4 * MIB,
            read: ReadOptions::local(),
            roll: RollOptions::local(),
            free_bytes_min: 0,
            ..Self::bucket()
        }
    }

    /// Limits for a bucket.
    #[must_use]
    pub fn bucket() -> Self {
        Self {
            spacing_low: Duration::from_millis(5),
            spacing_balanced: Duration::from_millis(50),
            spacing_economy: Duration::from_millis(250),
            puts_in_flight_max: crate::types::WAL_IN_FLIGHT_MAX,
            bulk_in_flight_max: FRAGMENTS_IN_FLIGHT_MAX,
            // A bucket serves requests side by side.
            gather_from: usize::MAX,
            gather_bytes: usize::MAX,
            object_target_bytes: 4 * MIB,
            // At 60 MB/s it takes about 4 ms, a quarter of a PUT's base delay.
            bulk_entry_bytes: MIB / 4,
            // Until the store's rates are measured.
            fragment_bytes: MIB,
            follows_store: true,
            entry_bytes_max: 128 * MIB,
            pending_bytes_max: 64 * MIB as u64,
            tail_bytes_max: 256 * MIB as u64,
            producer_expiration: Duration::from_secs(24 * 60 * 60),
            read: ReadOptions::bucket(),
            roll: RollOptions::bucket(),
            free_bytes_min: 0,
        }
    }
}

/// Fragments in flight at once.
pub const FRAGMENTS_IN_FLIGHT_MAX: usize = 16;

/// Batches handled before other tasks of the thread get their turn, at a microsecond or less each.
/// A round of small batches has tens of thousands, and whoever produces must not wait for them.
pub(crate) const BATCHES_IN_A_ROW: usize = 256;

/// A partition's retention, as its topic's configuration says. -1 is without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionConfig {
    /// `retention.ms`.
    pub retention_ms: i64,
    /// `retention.bytes`.
    pub retention_bytes: i64,
}

impl Default for PartitionConfig {
    fn default() -> Self {
        Self {
            retention_ms: 7 * 24 * 60 * 60 * 1000,
            retention_bytes: -1,
        }
    }
}
