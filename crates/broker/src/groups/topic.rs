//! `__consumer_offsets`: created when the first group asks for it, led from then on.

use std::sync::Arc;

use tidemill_wire::ErrorCode;

use super::Coordinator;
use crate::{
    Broker,
    config::GroupSettings,
    create::{NewTopicSpec, create_topics},
    topics::{KEEP, OFFSETS},
};

/// The topic as the coordinator needs it, for whoever names it first: of what was asked for, only
/// what harms no commit stays.
pub(crate) fn as_needed(mut spec: NewTopicSpec, settings: &GroupSettings) -> NewTopicSpec {
    spec.partitions = settings.offsets_partitions;
    for (key, value) in KEEP {
        spec.configs.insert(key.to_owned(), value.to_owned());
    }
    spec
}

impl Broker {
    /// The group coordinator.
    pub(crate) fn coordinator(&self) -> &Arc<Coordinator> {
        &self.coordinator
    }

    /// Leads what there is of the topic.
    pub(crate) fn lead_groups(&self) {
        let image = self.cluster().image();
        let Some(topic) = image.topic_by_name(OFFSETS) else {
            return;
        };
        // A client may have created it a moment ago: it is in the image before it is led.
        self.lead(&image, topic.id);
        let led: Vec<_> = topic
            .partitions()
            .filter_map(|(id, _)| self.log().partition(id))
            .collect();
        let count = topic.partitions().count();
        self.coordinator
            .lead_all(led, i32::try_from(count).unwrap_or(i32::MAX));
    }

    /// Creates the topic unless it exists, and leads it.
    ///
    /// # Errors
    /// COORDINATOR_NOT_AVAILABLE: it could not be created; clients try again.
    pub(crate) async fn ensure_offsets_topic(self: &Arc<Self>) -> Result<(), ErrorCode> {
        if self.coordinator.is_led() {
            return Ok(());
        }
        let _creating = self.coordinator.creating.lock().await;
        if self.coordinator.is_led() {
            return Ok(());
        }
        if self.cluster().image().topic_by_name(OFFSETS).is_none() {
            let spec = NewTopicSpec::with_defaults(OFFSETS);
            let created = create_topics(self, vec![spec], false, None).await;
            if let Some(Err(refusal)) = created.first() {
                tracing::error!(topic = OFFSETS, %refusal, "topic of groups not created");
                return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
            }
        }
        self.lead_groups();
        match self.coordinator.is_led() {
            true => Ok(()),
            false => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        }
    }
}
