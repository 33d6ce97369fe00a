//! `__consumer_offsets`: created when the first group asks for it, led from then on.

use std::{collections::BTreeMap, sync::Arc};

use tidemill_wire::ErrorCode;

use super::Coordinator;
use crate::{
    Broker,
    create::{NewTopicSpec, create_topics},
};

/// The topic of groups and their offsets.
const NAME: &str = "__consumer_offsets";
/// Its records are kept until a snapshot replaces them, whatever the broker's retention.
const KEEP: [(&str, &str); 2] = [("retention.ms", "-1"), ("retention.bytes", "-1")];

impl Broker {
    /// The group coordinator.
    pub(crate) fn coordinator(&self) -> &Arc<Coordinator> {
        &self.coordinator
    }

    /// Leads what there is of the topic.
    pub(crate) fn lead_groups(&self) {
        let image = self.cluster().image();
        let Some(topic) = image.topic_by_name(NAME) else {
            return;
        };
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
        if self.cluster().image().topic_by_name(NAME).is_none() {
            let configs: BTreeMap<String, String> = KEEP
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect();
            let spec = NewTopicSpec {
                partitions: self.config().groups.offsets_partitions,
                configs,
                ..NewTopicSpec::with_defaults(NAME)
            };
            let created = create_topics(self, vec![spec], false, None).await;
            if let Some(Err(refusal)) = created.first() {
                tracing::error!(topic = NAME, %refusal, "topic of groups not created");
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
