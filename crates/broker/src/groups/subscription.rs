//! Which topics a consumer group's members subscribe to, as far as their metadata tells.

use std::collections::BTreeSet;

use bytes::Bytes;
use tidemill_wire::{
    Decoder, Message, Str, records::consumer_protocol::ConsumerProtocolSubscription,
};

use super::machine::{Group, GroupState};

/// The protocol type whose subscriptions can be read.
const CONSUMER: &str = "consumer";

/// Topics in use by a group's members.
pub(crate) enum Subscribed {
    /// There are no members.
    Nothing,
    /// Topics of consumers. What cannot be read of them is left out, and `is_whole` false then.
    Topics {
        /// Their names.
        topics: BTreeSet<Str>,
        /// Whether every member's subscription was read.
        is_whole: bool,
    },
    /// Members of another protocol type: nobody knows what they use.
    Unknown,
}

impl Subscribed {
    /// What the members of `group` use.
    pub fn of(group: &Group) -> Self {
        if matches!(group.state(), GroupState::Empty | GroupState::Dead) {
            return Self::Nothing;
        }
        if group.protocol_type() != Some(CONSUMER) {
            return Self::Unknown;
        }
        let (mut topics, mut is_whole) = (BTreeSet::new(), true);
        for protocol in group.members().flat_map(|member| &member.protocols) {
            match read(&protocol.metadata) {
                Some(subscription) => topics.extend(subscription.topics),
                None => is_whole = false,
            }
        }
        Self::Topics { topics, is_whole }
    }
}

/// A subscription; a version newer than known opens with the fields of the newest known one.
fn read(metadata: &Bytes) -> Option<ConsumerProtocolSubscription> {
    let mut decoder = Decoder::new(metadata.clone());
    let newest = *ConsumerProtocolSubscription::VERSIONS.end();
    let version = decoder.i16().ok()?.clamp(0, newest);
    ConsumerProtocolSubscription::decode(&mut decoder, version).ok()
}
