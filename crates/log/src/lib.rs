//! The log: partitions over one writer's WAL, rolled into data objects that checkpoints publish.
//!
//! This crate knows no Kafka request; it takes validated record batches and gives them back.

pub mod ckpt;
pub mod entry;
pub mod error;
pub mod extents;
pub mod format;
pub mod fsck;
pub mod inspect;
pub mod keys;
pub mod limits;
mod log;
pub mod partition;
pub mod read;
pub mod recover;
pub mod roll;
mod stages;
pub mod types;
pub mod wal;

pub use entry::{Appended, Entry, Part, PartBody};
pub use error::{AppendError, AppendFailed, DrainError, Superseded};
pub use limits::{Latency, LogLimits, PartitionConfig};
pub use log::{Log, LogOptions};
pub use partition::Partition;
pub use stages::Stages;
pub use wal::ticket::{CommitTicket, Committed};
pub use wal::{Gather, SpaceTaken};
