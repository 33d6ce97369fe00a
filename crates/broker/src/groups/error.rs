//! Why the coordinator refuses, one variant per Kafka error.

/// A refusal by the group state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// Another coordinator instance must be asked, or this one is going away.
    CoordinatorNotAvailable,
    /// The member's generation is not the group's.
    IllegalGeneration,
    /// No protocol in common, or another protocol type.
    InconsistentGroupProtocol,
    /// The group does not know the member.
    UnknownMemberId,
    /// The session time-out lies outside the broker's bounds.
    InvalidSessionTimeout,
    /// The group is rebalancing; join again.
    RebalanceInProgress,
    /// Join again with the member id given (KIP-394).
    MemberIdRequired,
    /// The group has `group.max.size` members.
    GroupMaxSizeReached,
    /// Another member has taken the instance id over (KIP-345).
    FencedInstanceId,
    /// The group has members.
    NonEmptyGroup,
    /// There is no such group.
    GroupIdNotFound,
}

impl GroupError {
    /// Kafka's error code.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::CoordinatorNotAvailable => 15,
            Self::IllegalGeneration => 22,
            Self::InconsistentGroupProtocol => 23,
            Self::UnknownMemberId => 25,
            Self::InvalidSessionTimeout => 26,
            Self::RebalanceInProgress => 27,
            Self::NonEmptyGroup => 68,
            Self::GroupIdNotFound => 69,
            Self::MemberIdRequired => 79,
            Self::GroupMaxSizeReached => 81,
            Self::FencedInstanceId => 82,
        }
    }
}
