//! Writing snapshots of the image.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tidemill_store::Payload;

use super::Cluster;
use crate::{error::MetadataError, format::encode_snapshot, image::Image};

/// A snapshot is only a shortcut: give up soon, the next entry tries again.
const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(60);
/// Snapshots kept: the newest, and one for whoever is reading it.
const SNAPSHOTS_KEPT: usize = 2;

impl Cluster {
    /// Writes a snapshot in the background if enough entries have passed.
    pub(super) fn snapshot_if_due(self: &Arc<Self>) {
        let image = self.image();
        let before = self.snapshot_next.load(Ordering::Relaxed);
        if image.next().saturating_sub(before) < self.options.snapshot_every {
            return;
        }
        self.snapshot_next.store(image.next(), Ordering::Relaxed);
        let cluster = Arc::clone(self);
        self.runtime().tasks.spawn("metadata snapshot", async move {
            if let Err(error) = cluster.write_snapshot(&image).await {
                tracing::warn!(%error, "metadata snapshot not written");
            }
        });
    }

    async fn write_snapshot(&self, image: &Image) -> Result<(), MetadataError> {
        let put_id = self.put_id();
        let bytes = encode_snapshot(image, put_id, self.options.cluster_id, self.writer());
        let number = image.next() - 1;
        let body = Payload::from(bytes);
        // Somebody else's snapshot of the same entries is as good.
        self.snapshots
            .create(number, body, put_id, Some(SNAPSHOT_DEADLINE))
            .await?;
        let listed = self.snapshots.list_from(0).await?;
        let old = listed.len().saturating_sub(SNAPSHOTS_KEPT);
        for (number, _) in listed.into_iter().take(old) {
            self.snapshots.delete(number).await?;
        }
        Ok(())
    }
}
