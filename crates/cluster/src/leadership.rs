//! Keeps the log in step with the image: partitions that this broker leads, their settings,
//! deletions.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidemill_log::Log;
use tidemill_runtime::Instant;
use tidemill_wire::ids::WriterId;

use crate::{
    cluster::Cluster,
    format::Change,
    image::{Image, Topic},
    start::PartitionSettings,
};

/// Applies images to the log of this broker.
pub struct Leadership {
    cluster: Arc<Cluster>,
    log: Arc<Log>,
    settings: PartitionSettings,
    /// The image the log is in step with.
    seen: Mutex<Arc<Image>>,
    /// When the log last dropped a partition.
    dropped_at: Mutex<Instant>,
}

/// Pause between looks whether deleted topics may be forgotten. Costs no request.
const FORGET_INTERVAL: Duration = Duration::from_secs(30);
/// A deleted topic is kept at least so long: well beyond the grace of its objects.
const FORGET_AFTER: Duration = Duration::from_secs(180);

impl std::fmt::Debug for Leadership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leadership({})", self.seen.lock().next())
    }
}

impl Leadership {
    /// For a log that was recovered from `seen`.
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        log: Arc<Log>,
        settings: PartitionSettings,
        seen: Arc<Image>,
    ) -> Arc<Self> {
        let now = log.runtime().clock.monotonic();
        Arc::new(Self {
            dropped_at: Mutex::new(now),
            cluster,
            log,
            settings,
            seen: Mutex::new(seen),
        })
    }

    /// Brings the log in step with the newest image. To be called after a commit whose effect is
    /// needed at once; [`Leadership::follow`] does the same a little later.
    pub fn reconcile(&self) {
        let mut seen = self.seen.lock();
        let image = self.cluster.image();
        if image.next() <= seen.next() {
            return;
        }
        let me = self.cluster.writer();
        if !image.may_write(me) {
            self.log.fence();
        }
        for (_, topic) in seen.topics.additions(&image.topics) {
            self.lead(&image, topic, me);
        }
        for (_, topic) in image.topics.additions(&seen.topics) {
            if image.topic(topic.id).is_none() {
                for (id, _) in topic.partitions() {
                    self.log.drop_partition(id);
                }
                *self.dropped_at.lock() = self.log.runtime().clock.monotonic();
            }
        }
        if !Arc::ptr_eq(&image.broker_configs, &seen.broker_configs) {
            for topic in image.topics() {
                self.lead(&image, topic, me);
            }
        }
        *seen = image;
    }

    fn lead(&self, image: &Image, topic: &Topic, me: WriterId) {
        let config = (self.settings)(image, topic);
        for (id, state) in topic.partitions().filter(|(_, state)| state.leader() == me) {
            match self.log.partition(id) {
                Some(partition) => partition.set_config(config),
                None => {
                    self.log.create_partition(id, state.epoch, config);
                }
            }
        }
    }

    /// Forgets deleted topics of which nothing is left. Never ends.
    pub async fn forget(&self) {
        let clock = self.log.runtime().clock.clone();
        loop {
            clock.sleep(FORGET_INTERVAL).await;
            let deleted: Vec<_> = self.seen.lock().deleted_topics().map(|t| t.id).collect();
            let settled = self.log.roll_state().is_some_and(|state| {
                state.is_settled && state.at > *self.dropped_at.lock() + FORGET_AFTER
            });
            if deleted.is_empty() || !settled {
                continue;
            }
            let decide = move |image: &Image| {
                let known = deleted
                    .iter()
                    .filter(|id| image.deleted_topic(**id).is_some());
                let changes = known.map(|id| Change::TopicForgotten { topic: *id });
                Ok::<_, std::convert::Infallible>(changes.collect())
            };
            if let Err(error) = self.cluster.commit(decide).await {
                tracing::debug!(%error, "deleted topics are kept");
            }
        }
    }

    /// Follows the image for ever.
    pub async fn follow(&self) {
        let mut images = self.cluster.watch();
        loop {
            self.reconcile();
            if images.changed().await.is_err() {
                return;
            }
        }
    }
}
