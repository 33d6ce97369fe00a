//! A walk over the records of a batch that reads their layout and skips their contents.

use super::error::RecordError;
use super::header::{BatchHeader, TimestampType};
use super::inflate::Source;
use super::varint::unzigzag;

/// What a walk tells about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordMeta {
    /// Offset relative to the batch's base.
    pub(super) offset_delta: i32,
    /// Timestamp relative to the batch's base.
    pub(super) timestamp_delta: i64,
    /// Whether its key is not null.
    pub(super) has_key: bool,
}

impl RecordMeta {
    /// The record's timestamp: its own, or the batch's append time.
    pub(super) fn timestamp(&self, header: &BatchHeader) -> Result<i64, RecordError> {
        match header.attributes.timestamp_type() {
            TimestampType::LogAppendTime => Ok(header.max_timestamp),
            TimestampType::CreateTime => header
                .base_timestamp
                .checked_add(self.timestamp_delta)
                .ok_or(RecordError::TimestampOverflow),
        }
    }
}

/// Reads from a source, within a number of bytes.
struct Body<'s, S> {
    source: &'s mut S,
    left: u64,
}

impl<S: Source> Body<'_, S> {
    fn byte(&mut self, field: &'static str) -> Result<u8, RecordError> {
        if self.left == 0 {
            return Err(RecordError::Beyond(field));
        }
        let byte = next_byte(self.source)?.ok_or(RecordError::Truncated)?;
        self.left -= 1;
        Ok(byte)
    }

    fn varlong(&mut self, field: &'static str) -> Result<i64, RecordError> {
        read_varlong(|| self.byte(field))
    }

    fn varint(&mut self, field: &'static str) -> Result<i32, RecordError> {
        read_varint(|| self.byte(field))
    }

    fn skip(&mut self, count: i32, field: &'static str) -> Result<(), RecordError> {
        let negative = RecordError::Negative(field, i64::from(count));
        let mut rest = u64::try_from(count).map_err(|_| negative)?;
        if rest > self.left {
            return Err(RecordError::Beyond(field));
        }
        self.left -= rest;
        while rest != 0 {
            let window = self.source.fill().map_err(RecordError::Inflate)?.len();
            if window == 0 {
                return Err(RecordError::Truncated);
            }
            let step = window.min(usize::try_from(rest).unwrap_or(usize::MAX));
            self.source.consume(step);
            rest -= step as u64;
        }
        Ok(())
    }

    /// Steps over bytes that may be null (length -1); false for null.
    fn skip_nullable(&mut self, field: &'static str) -> Result<bool, RecordError> {
        let length = self.varint(field)?;
        if length == -1 {
            return Ok(false);
        }
        self.skip(length, field)?;
        Ok(true)
    }
}

fn next_byte<S: Source>(source: &mut S) -> Result<Option<u8>, RecordError> {
    let first = source
        .fill()
        .map_err(RecordError::Inflate)?
        .first()
        .copied();
    if first.is_some() {
        source.consume(1);
    }
    Ok(first)
}

/// A zigzag varint of at most five bytes and 32 bits.
pub(super) fn read_varint(
    mut next: impl FnMut() -> Result<u8, RecordError>,
) -> Result<i32, RecordError> {
    let mut raw = 0_u64;
    for shift in (0..35).step_by(7) {
        let byte = next()?;
        raw |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let raw = u32::try_from(raw).map_err(|_| RecordError::Varint)?;
            return Ok(unzigzag(u64::from(raw)) as i32);
        }
    }
    Err(RecordError::Varint)
}

/// A zigzag varlong of at most ten bytes.
pub(super) fn read_varlong(
    mut next: impl FnMut() -> Result<u8, RecordError>,
) -> Result<i64, RecordError> {
    let mut raw = 0_u64;
    for shift in (0..70).step_by(7) {
        let byte = next()?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(RecordError::Varint);
        }
        raw |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(unzigzag(raw));
        }
    }
    Err(RecordError::Varint)
}

/// Reads the layout of the next record.
///
/// Lengths are checked against the record's own; a count never drives an allocation.
pub(super) fn walk_record<S: Source>(source: &mut S) -> Result<RecordMeta, RecordError> {
    let length = read_varint(|| next_byte(source)?.ok_or(RecordError::Truncated))?;
    let negative = RecordError::Negative("length", i64::from(length));
    let left = u64::try_from(length).map_err(|_| negative)?;
    let mut body = Body { source, left };
    body.byte("attributes")?;
    let timestamp_delta = body.varlong("timestamp")?;
    let offset_delta = body.varint("offset")?;
    let has_key = body.skip_nullable("key")?;
    body.skip_nullable("value")?;
    let headers = body.varint("header count")?;
    if headers < 0 {
        return Err(RecordError::Negative("header count", i64::from(headers)));
    }
    for _ in 0..headers {
        let key = body.varint("header key")?;
        body.skip(key, "header key")?;
        body.skip_nullable("header value")?;
    }
    if body.left != 0 {
        return Err(RecordError::Stray(body.left));
    }
    Ok(RecordMeta {
        offset_delta,
        timestamp_delta,
        has_key,
    })
}
