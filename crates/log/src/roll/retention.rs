//! Retention by time and size: moving the log start.

use std::sync::Arc;

use tidemill_store::StoreErrorKind;
use tidemill_wire::ids::Offset;

use super::{RollError, Roller};
use crate::{
    entry::{Entry, Part, PartBody},
    keys,
    limits::Latency,
    partition::Partition,
    types::Extent,
};

impl Roller {
    /// Moves the log starts of partitions that hold data past their retention; the next round frees
    /// it. Returns how many partitions moved.
    ///
    /// # Errors
    /// A manifest could not be read, or the writer is fenced.
    pub async fn retain(&mut self) -> Result<usize, RollError> {
        let mut parts = Vec::new();
        for partition in self.log.partitions() {
            let target = self.retention_target(&partition).await?;
            if let Some(offset) = target.filter(|offset| *offset > partition.log_start()) {
                let body = PartBody::LogStart(offset);
                parts.push(Part {
                    partition: partition.id(),
                    leader_epoch: None,
                    body,
                });
            }
        }
        let moved = parts.len();
        let mut tickets = Vec::new();
        for part in parts {
            // An entry each: a partition deleted meanwhile must not keep the others.
            let entry = Entry {
                parts: vec![part],
                latency: Latency::Economy,
            };
            match self.log.append(entry) {
                Ok(appended) => tickets.extend(appended),
                Err(error) => tracing::debug!(%error, "log start was not moved"),
            }
        }
        for ticket in tickets {
            ticket.wait().await.map_err(|_| RollError::Fenced)?;
        }
        Ok(moved)
    }

    /// The log start that the partition's retention asks for; only whole extents go.
    async fn retention_target(
        &mut self,
        partition: &Arc<Partition>,
    ) -> Result<Option<Offset>, RollError> {
        let config = partition.config();
        let list = partition.extents();
        let now_ms = self.log.runtime().clock.now_ms();
        let log_start = partition.log_start();
        let by_time = config.retention_ms >= 0;
        // What is kept must still be at least `retention.bytes` after an extent goes.
        let mut excess = match u64::try_from(config.retention_bytes) {
            Ok(limit) => partition.size_bytes().saturating_sub(limit),
            Err(_) => 0,
        };
        let first = self.first_newest.get(&partition.id());
        let due = first.map(|newest| newest.saturating_add(config.retention_ms));
        if excess == 0 && (!by_time || due.is_some_and(|due| now_ms < due)) {
            return Ok(None);
        }
        let mut target = None;
        let mut offset = log_start;
        while let Some(extent) = self.log.reader().extent_at(&list, offset).await? {
            let newest = match by_time {
                true => self.newest_ms(&extent, now_ms).await?,
                false => i64::MAX,
            };
            let is_old = by_time && newest.saturating_add(config.retention_ms) < now_ms;
            if !is_old && excess < extent.size_bytes() {
                if by_time {
                    // Nothing expires before the first extent that stays does, whatever is set.
                    self.first_newest.insert(partition.id(), newest);
                }
                break;
            }
            excess = excess.saturating_sub(extent.size_bytes());
            offset = extent.end_offset;
            target = Some(offset);
        }
        Ok(target.map(|target| target.min(partition.high_watermark())))
    }

    /// The time of an extent's newest record, Unix milliseconds; if no record has one, when the
    /// extent was written, as Kafka then takes a segment's last change.
    async fn newest_ms(&self, extent: &Extent, now_ms: i64) -> Result<i64, RollError> {
        if extent.max_timestamp >= 0 {
            return Ok(extent.max_timestamp);
        }
        match self.store.head(&keys::data_key(extent.object)).await {
            Ok(meta) => Ok(meta.modified_ms),
            // Loss, which a read names. Retention must not stop for it, nor hide it.
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(now_ms),
            Err(error) => Err(error.into()),
        }
    }
}
