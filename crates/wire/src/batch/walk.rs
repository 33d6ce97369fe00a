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

/// Reads the fields of one record, never beyond its length.
trait Fields {
    fn byte(&mut self, field: &'static str) -> Result<u8, RecordError>;

    fn skip_bytes(&mut self, count: u64, field: &'static str) -> Result<(), RecordError>;

    /// Bytes of the record not read yet.
    fn left(&self) -> u64;

    fn varlong(&mut self, field: &'static str) -> Result<i64, RecordError> {
        read_varlong(|| self.byte(field))
    }

    fn varint(&mut self, field: &'static str) -> Result<i32, RecordError> {
        read_varint(|| self.byte(field))
    }

    fn skip(&mut self, count: i32, field: &'static str) -> Result<(), RecordError> {
        let negative = RecordError::Negative(field, i64::from(count));
        self.skip_bytes(u64::try_from(count).map_err(|_| negative)?, field)
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

/// A record that lies in one window as a whole: nearly all do.
struct Whole<'a>(&'a [u8]);

impl Fields for Whole<'_> {
    #[inline]
    fn byte(&mut self, field: &'static str) -> Result<u8, RecordError> {
        let (byte, rest) = self.0.split_first().ok_or(RecordError::Beyond(field))?;
        self.0 = rest;
        Ok(*byte)
    }

    #[inline]
    fn skip_bytes(&mut self, count: u64, field: &'static str) -> Result<(), RecordError> {
        let beyond = RecordError::Beyond(field);
        let Ok(count) = usize::try_from(count) else {
            return Err(beyond);
        };
        self.0 = self.0.get(count..).ok_or(beyond)?;
        Ok(())
    }

    fn left(&self) -> u64 {
        self.0.len() as u64
    }
}

/// A record that spans windows.
struct Spread<'s, S> {
    source: &'s mut S,
    left: u64,
}

impl<S: Source> Fields for Spread<'_, S> {
    fn byte(&mut self, field: &'static str) -> Result<u8, RecordError> {
        if self.left == 0 {
            return Err(RecordError::Beyond(field));
        }
        self.left -= 1;
        next_byte(self.source)
    }

    fn skip_bytes(&mut self, count: u64, field: &'static str) -> Result<(), RecordError> {
        if count > self.left {
            return Err(RecordError::Beyond(field));
        }
        self.left -= count;
        let mut rest = count;
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

    fn left(&self) -> u64 {
        self.left
    }
}

fn next_byte<S: Source>(source: &mut S) -> Result<u8, RecordError> {
    let window = source.fill().map_err(RecordError::Inflate)?;
    let byte = *window.first().ok_or(RecordError::Truncated)?;
    source.consume(1);
    Ok(byte)
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
    let length = read_varint(|| next_byte(source))?;
    let negative = RecordError::Negative("length", i64::from(length));
    let left = u64::try_from(length).map_err(|_| negative)?;
    let window = source.fill().map_err(RecordError::Inflate)?;
    let whole = usize::try_from(left)
        .ok()
        .and_then(|length| window.get(..length));
    if let Some(body) = whole {
        let meta = walk_fields(&mut Whole(body))?;
        let length = body.len();
        source.consume(length);
        return Ok(meta);
    }
    walk_fields(&mut Spread { source, left })
}

#[inline]
fn walk_fields(body: &mut impl Fields) -> Result<RecordMeta, RecordError> {
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
    match body.left() {
        0 => Ok(RecordMeta {
            offset_delta,
            timestamp_delta,
            has_key,
        }),
        left => Err(RecordError::Stray(left)),
    }
}
