//! From our errors to Kafka's codes, in one place.

use std::fmt;

use tidemill_cluster::CommitError;
use tidemill_log::error::{AppendError, AppendFailed};
use tidemill_wire::{ErrorCode, Str};

/// A refusal: Kafka's code, and what to tell beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The code.
    pub code: ErrorCode,
    /// For the person who reads it.
    pub message: String,
}

impl Refusal {
    /// A refusal with a message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The message as it goes on the wire.
    pub fn text(&self) -> Option<Str> {
        Some(Str::from(self.message.clone()))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self::new(code, code.message())
    }
}

impl From<AppendError> for Refusal {
    fn from(error: AppendError) -> Self {
        let code = match &error {
            AppendError::UnknownPartition(_) | AppendError::Fenced => {
                ErrorCode::NOT_LEADER_OR_FOLLOWER
            }
            AppendError::WrongEpoch { .. } => ErrorCode::FENCED_LEADER_EPOCH,
            AppendError::OutOfOrderSequence { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
            AppendError::InvalidProducerEpoch { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
            AppendError::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
            AppendError::TooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
            AppendError::Closed => ErrorCode::REQUEST_TIMED_OUT,
            AppendError::Conflict(_) | AppendError::Empty => ErrorCode::INVALID_RECORD,
        };
        Self::new(code, error.to_string())
    }
}

impl From<AppendFailed> for Refusal {
    fn from(error: AppendFailed) -> Self {
        let code = match error {
            AppendFailed::Fenced => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            AppendFailed::Closed => ErrorCode::REQUEST_TIMED_OUT,
        };
        Self::new(code, error.to_string())
    }
}

impl From<CommitError<Self>> for Refusal {
    fn from(error: CommitError<Self>) -> Self {
        let code = match error {
            CommitError::Rejected(refusal) => return refusal,
            CommitError::Superseded => ErrorCode::NOT_CONTROLLER,
            CommitError::Metadata(_) => ErrorCode::KAFKA_STORAGE_ERROR,
            CommitError::Closed => ErrorCode::REQUEST_TIMED_OUT,
        };
        Self::new(code, error.to_string())
    }
}
