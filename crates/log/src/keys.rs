//! Names of stored objects.

use tidemill_wire::ids::WriterId;

use crate::types::DataObjectId;

/// Two hex digits of a hash of the writer, so that writers spread over a bucket's request limits.
fn shard(writer: WriterId) -> u8 {
    crc32c::crc32c(&writer.0.to_le_bytes()).to_le_bytes()[0]
}

fn prefix(writer: WriterId, kind: &str) -> String {
    format!("{:02x}/{kind}/{:020}", shard(writer), writer.0)
}

/// Prefix of a writer's WAL, without slash at the end.
#[must_use]
pub fn wal_prefix(writer: WriterId) -> String {
    prefix(writer, "wal")
}

/// Prefix of a writer's checkpoint log, without slash at the end.
#[must_use]
pub fn ckpt_prefix(writer: WriterId) -> String {
    prefix(writer, "ckpt")
}

/// Prefix of a writer's data objects, without slash at the end.
#[must_use]
pub fn data_prefix(writer: WriterId) -> String {
    prefix(writer, "data")
}

/// Key of a data object.
#[must_use]
pub fn data_key(object: DataObjectId) -> String {
    format!("{}/{:020}", data_prefix(object.writer), object.seq)
}

/// What a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A number of a writer's WAL.
    Wal(WriterId, u64),
    /// A number of a writer's checkpoint log.
    Checkpoint(WriterId, u64),
    /// A data object.
    Data(DataObjectId),
}

/// Reads a key of this crate; `None` for any other.
#[must_use]
pub fn parse(key: &str) -> Option<Named> {
    let mut parts = key.split('/');
    let hash = parts.next()?;
    let kind = parts.next()?;
    let writer = WriterId(number(parts.next()?)?);
    let n = number(parts.next()?)?;
    if parts.next().is_some() || hash != format!("{:02x}", shard(writer)) {
        return None;
    }
    match kind {
        "wal" => Some(Named::Wal(writer, n)),
        "ckpt" => Some(Named::Checkpoint(writer, n)),
        "data" => Some(Named::Data(DataObjectId { writer, seq: n })),
        _ => None,
    }
}

fn number(digits: &str) -> Option<u64> {
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}
