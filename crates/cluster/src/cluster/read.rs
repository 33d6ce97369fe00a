//! Reading the metadata log.

use std::sync::{Arc, atomic::Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};

use super::Cluster;
use tidemill_store::envelope::EnvelopeError;

use crate::{
    error::MetadataError,
    format::{decode_entry, decode_snapshot},
    image::Image,
    reread::read_decoded,
};

/// Entries read at once at start.
const READS_AT_ONCE: usize = 16;

impl Cluster {
    /// Applies what others have written since, and returns the newest image.
    ///
    /// # Errors
    /// [`MetadataError`] if the store fails or an entry is damaged, foreign or of a newer broker.
    pub async fn refresh(&self) -> Result<Arc<Image>, MetadataError> {
        loop {
            let number = self.image().next();
            let Some(entry) = read_decoded(&self.meta, number, decode_entry).await? else {
                return Ok(self.image());
            };
            let entry = self.checked(number, entry)?;
            self.apply_if_next(number, &entry.changes);
        }
    }

    pub(super) async fn load(&self) -> Result<(), MetadataError> {
        self.load_snapshot().await?;
        let from = self.image().next();
        let listed = self.meta.list_from(from).await?;
        // Dense up to the end; what a listing lacks is found by the probes of `refresh`.
        let dense = listed.iter().zip(from..).take_while(|((n, _), at)| n == at);
        let numbers: Vec<u64> = dense.map(|((n, _), _)| *n).collect();
        let mut entries = stream::iter(numbers)
            .map(|number| async move {
                let entry = read_decoded(&self.meta, number, decode_entry).await?;
                Ok::<_, MetadataError>((number, entry))
            })
            .buffered(READS_AT_ONCE);
        let mut image = Image::clone(&self.image());
        while let Some((number, entry)) = entries.try_next().await? {
            let Some(entry) = entry else {
                break;
            };
            image.apply(&self.checked(number, entry)?.changes);
        }
        drop(entries);
        self.image.send_replace(Arc::new(image));
        let image = self.refresh().await?;
        match listed.last() {
            Some((highest, _)) if *highest >= image.next() => Err(MetadataError::Gap {
                key: self.meta.key(image.next()),
                highest: *highest,
            }),
            _ => Ok(()),
        }
    }

    /// The newest snapshot that can be read; a damaged one is passed over, since the entries are
    /// all there, one of a newer broker is not.
    async fn load_snapshot(&self) -> Result<(), MetadataError> {
        let listed = self.snapshots.list_from(0).await?;
        for (number, _) in listed.into_iter().rev() {
            let Some(decoded) = read_decoded(&self.snapshots, number, decode_snapshot).await?
            else {
                continue;
            };
            match decoded {
                Ok((cluster_id, image)) => {
                    let key = self.snapshots.key(number);
                    if cluster_id != self.options.cluster_id {
                        return Err(MetadataError::ForeignCluster { key });
                    }
                    self.snapshot_next.store(image.next(), Ordering::Relaxed);
                    self.image.send_replace(Arc::new(image));
                    return Ok(());
                }
                Err(error) => {
                    let key = self.snapshots.key(number);
                    if matches!(error, EnvelopeError::TooNew { .. }) {
                        return Err(MetadataError::Object { key, error });
                    }
                    tracing::warn!(key, %error, "metadata snapshot passed over");
                }
            }
        }
        Ok(())
    }
}
