//! An OffsetCommit on its way through the coordinator.

use std::sync::Arc;

use tidemill_cluster::Image;
use tidemill_wire::{ErrorCode, Str};
use tokio::sync::oneshot;

use super::record::OffsetValue;

/// A group's offsets as they are to be committed.
pub(crate) struct Commit {
    /// The member, or empty.
    pub member_id: String,
    /// Its static name.
    pub instance_id: Option<String>,
    /// Its generation, or negative.
    pub generation: i32,
    /// Topic, partition, offset; all of topics that exist.
    pub items: Vec<(Str, i32, OffsetValue)>,
    /// Where they exist.
    pub image: Arc<Image>,
}

/// A commit that has its place in the log.
#[derive(Debug)]
pub(crate) struct Appended(pub(super) Option<oneshot::Receiver<Result<(), ErrorCode>>>);

impl Appended {
    /// Waits until it is durable. It becomes so too if nobody waits.
    pub async fn durable(self) -> Result<(), ErrorCode> {
        match self.0 {
            Some(done) => done.await.map_err(|_| ErrorCode::NOT_COORDINATOR)?,
            None => Ok(()),
        }
    }
}
