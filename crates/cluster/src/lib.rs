//! What a cluster agrees on: the metadata log and its image, registration, tenures, sealing, start.
//!
//! - [`Change`] is one change of metadata; an entry of the metadata log is a list of them
//!   ([`format`]).
//! - [`Image`] is the state after a number of entries: brokers, topics, configurations, tenures.
//! - [`Cluster`] reads the log, commits changes to it and tells who waits ([`Cluster::watch`]).

mod cluster;
mod error;
pub mod format;
pub mod fsck;
pub mod image;
mod leadership;
mod reread;
pub mod seal;
mod start;

pub use cluster::{Cluster, ClusterOptions, META_PREFIX, SNAPSHOT_EVERY, SNAPSHOT_PREFIX};
pub use error::{CommitError, MetadataError};
pub use format::Change;
pub use image::Image;
pub use leadership::Leadership;
pub use start::{
    PartitionSettings, RecoverError, StartError, StartOptions, StartWarning, Started,
    default_settings, start,
};
