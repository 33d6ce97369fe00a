//! Classic consumer groups.
//!
//! [`machine`] is the state machine of one group, without I/O; `join` and `session` are its parts.
//! A [`cell`] holds one with its offsets, a [`shard`] the groups of one partition of
//! `__consumer_offsets` and their records, the [`coordinator`] all shards.

pub(crate) mod cell;
mod commit;
pub(crate) mod coordinator;
pub mod error;
pub mod join;
mod load;
pub mod machine;
pub mod member;
pub(crate) mod record;
pub mod session;
mod shard;
pub(crate) mod subscription;
mod timers;
mod topic;

pub(crate) use commit::Commit;
pub(crate) use coordinator::Coordinator;
pub(crate) use topic::as_needed;
