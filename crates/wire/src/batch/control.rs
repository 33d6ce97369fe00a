//! Transaction markers: the control records that end a transaction (KIP-98, K34).

use std::fmt;

use bytes::Bytes;

use super::builder::{BatchBuilder, BuildError, NewRecord};
use super::records::Record;
use crate::ids::{ProducerEpoch, ProducerId};

/// Version of a control record's key and value.
const VERSION: i16 = 0;

/// Key types of the markers.
const ABORT: i16 = 0;
const COMMIT: i16 = 1;

/// The end of a producer's transaction in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTxnMarker {
    /// Committed, or aborted.
    pub commit: bool,
    /// Epoch of the coordinator that wrote it.
    pub coordinator_epoch: i32,
}

/// Why a control record is no marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// Key or value is missing or too short.
    Truncated,
    /// A control record of another kind (its key's type).
    Kind(i16),
    /// A negative version.
    Version(i16),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("control record is cut short"),
            Self::Kind(kind) => write!(f, "control record type {kind} is no transaction marker"),
            Self::Version(version) => write!(f, "control record version {version}"),
        }
    }
}

impl std::error::Error for ControlError {}

impl EndTxnMarker {
    /// Reads the record of a control batch. Later versions may append fields, which are skipped.
    ///
    /// # Errors
    /// The record is cut short or of another kind.
    pub fn parse(record: &Record) -> Result<Self, ControlError> {
        let key = record.key.as_deref().ok_or(ControlError::Truncated)?;
        let value = record.value.as_deref().ok_or(ControlError::Truncated)?;
        let (version, kind) = (int16(key, 0)?, int16(key, 2)?);
        let value_version = int16(value, 0)?;
        if version < 0 || value_version < 0 {
            return Err(ControlError::Version(version.min(value_version)));
        }
        let commit = match kind {
            ABORT => false,
            COMMIT => true,
            kind => return Err(ControlError::Kind(kind)),
        };
        let epoch = value.get(2..).and_then(|rest| rest.first_chunk::<4>());
        let epoch = i32::from_be_bytes(*epoch.ok_or(ControlError::Truncated)?);
        Ok(Self {
            commit,
            coordinator_epoch: epoch,
        })
    }

    /// The marker's batch at base offset 0: one record, transactional, no sequence.
    ///
    /// # Errors
    /// None in practice: one small uncompressed record always fits.
    pub fn batch(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        timestamp: i64,
    ) -> Result<Bytes, BuildError> {
        let mut key = [0; 4];
        key[..2].copy_from_slice(&VERSION.to_be_bytes());
        let kind = if self.commit { COMMIT } else { ABORT };
        key[2..].copy_from_slice(&kind.to_be_bytes());
        let mut value = [0; 6];
        value[..2].copy_from_slice(&VERSION.to_be_bytes());
        value[2..].copy_from_slice(&self.coordinator_epoch.to_be_bytes());
        let mut builder = BatchBuilder::default();
        builder.control(producer_id, producer_epoch);
        builder.push(&NewRecord {
            timestamp,
            ..NewRecord::key_value(&key, &value)
        })?;
        builder.build()
    }
}

fn int16(bytes: &[u8], at: usize) -> Result<i16, ControlError> {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
    Ok(i16::from_be_bytes(*bytes.ok_or(ControlError::Truncated)?))
}
