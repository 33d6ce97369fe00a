//! One member of a classic group.

use bytes::Bytes;

use super::machine::Reply;

/// A protocol a member offers: its name and the member's metadata for it, opaque to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// For consumers, the assignor's name.
    pub name: String,
    /// For consumers, the subscription.
    pub metadata: Bytes,
}

/// What the coordinator knows of a member. Times are monotonic milliseconds.
#[derive(Clone, Debug)]
pub struct Member {
    /// The id the coordinator gave out.
    pub id: String,
    /// The static member's own name (KIP-345).
    pub instance_id: Option<String>,
    /// The client's id, for reports.
    pub client_id: String,
    /// The client's address, for reports.
    pub client_host: String,
    /// Without a heartbeat for so long, the member is gone.
    pub session_timeout_ms: i32,
    /// How long the member may take to join again in a rebalance.
    pub rebalance_timeout_ms: i32,
    /// What it offers, in its order of preference.
    pub protocols: Vec<Protocol>,
    /// Its part of the leader's assignment, opaque.
    pub assignment: Bytes,
    /// Has not been through a rebalance yet.
    pub(super) is_new: bool,
    /// A JoinGroup that waits for the rebalance.
    pub(super) awaiting_join: Option<Reply>,
    /// A SyncGroup that waits for the leader.
    pub(super) awaiting_sync: Option<Reply>,
    /// Must still send SyncGroup in this generation.
    pub(super) pending_sync: bool,
    /// When the session runs out.
    pub(super) expires_ms: i64,
}

impl Member {
    /// The member's metadata for protocol `name`.
    #[must_use]
    pub fn metadata(&self, name: &str) -> Bytes {
        let found = self.protocols.iter().find(|protocol| protocol.name == name);
        found
            .map(|protocol| protocol.metadata.clone())
            .unwrap_or_default()
    }

    /// True if a request of this member is parked, so that its session cannot run out.
    pub(super) fn is_parked(&self) -> bool {
        self.awaiting_join.is_some() || self.awaiting_sync.is_some()
    }
}
