//! Records of internal topics and of the consumer protocol.
//!
//! Each is stored as an int16 and a body: a value's int16 is its version, a key's is its type.

#![allow(missing_docs)]

use bytes::Bytes;

use crate::codec::{DecodeError, Decoder, EncodeError, Encoder, Message};

pub mod consumer_protocol;
pub mod group_metadata;
pub mod offset_commit;
pub mod transaction_log;

pub use consumer_protocol::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
pub use group_metadata::{GroupMetadataKey, GroupMetadataValue};
pub use offset_commit::{OffsetCommitKey, OffsetCommitValue};
pub use transaction_log::{TransactionLogKey, TransactionLogValue};

/// The int16 in front of an [`OffsetCommitKey`]. Kafka before 4.0 wrote 0 too; the body is the
/// same.
pub const OFFSET_COMMIT_KEY: i16 = 1;
/// The int16 in front of a [`GroupMetadataKey`].
pub const GROUP_METADATA_KEY: i16 = 2;
/// The int16 in front of a [`TransactionLogKey`].
pub const TRANSACTION_LOG_KEY: i16 = 0;

/// A key: its type, then its body, whose version is 0.
///
/// # Errors
/// If a string in it is too long.
pub fn encode_key<M: Message>(key_type: i16, key: &M) -> Result<Bytes, EncodeError> {
    let mut encoder = Encoder::new();
    encoder.i16(key_type);
    key.encode(&mut encoder, 0)?;
    Ok(encoder.finish().to_bytes())
}

/// A value: its version, then its body.
///
/// # Errors
/// If the version cannot carry it.
pub fn encode_value<M: Message>(value: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut encoder = Encoder::new();
    encoder.i16(version);
    value.encode(&mut encoder, version)?;
    Ok(encoder.finish().to_bytes())
}

/// A key's type and the decoder of its body, to be read as version 0 of what the type says.
///
/// # Errors
/// If there are fewer than two bytes.
pub fn key_type(key: Bytes) -> Result<(i16, Decoder), DecodeError> {
    let mut decoder = Decoder::new(key);
    Ok((decoder.i16()?, decoder))
}

/// A value with its version in front.
///
/// # Errors
/// If the bytes are not such a value, or of a version not known.
pub fn decode_value<M: Message>(value: Bytes) -> Result<M, DecodeError> {
    let mut decoder = Decoder::new(value);
    let version = decoder.i16()?;
    M::decode(&mut decoder, version)
}

/// What a consumer wrote as its subscription or assignment. A version newer than all known is
/// read as the newest known, whose fields it starts with: such is the consumer protocol's rule.
///
/// # Errors
/// If the bytes are not such a value.
pub fn decode_consumer_protocol<M: Message>(value: Bytes) -> Result<M, DecodeError> {
    let mut decoder = Decoder::new(value);
    let version = decoder.i16()?;
    M::decode(&mut decoder, version.min(*M::VERSIONS.end()))
}
