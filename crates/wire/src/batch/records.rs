//! The records of a batch as slices of it.

use std::fmt;

use bytes::Bytes;

use super::error::RecordError;
use super::header::{BatchHeader, HEADER_BYTES, HeaderError};
use super::inflate::{InflateError, inflate};
use super::walk::{RecordMeta, read_varint, read_varlong};
use crate::ids::Offset;

/// A header of a record. Keys may repeat; their order is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Its key, UTF-8 by convention, not checked.
    pub key: Bytes,
    /// Its value, which may be null.
    pub value: Option<Bytes>,
}

/// A record of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp, or the append time of its batch; milliseconds since 1970, -1 for none.
    pub timestamp: i64,
    /// Its key. Null and empty differ.
    pub key: Option<Bytes>,
    /// Its value; null is a tombstone in a compacted topic.
    pub value: Option<Bytes>,
    /// Its headers.
    pub headers: Vec<RecordHeader>,
}

/// Why a batch's records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordsError {
    /// No whole batch.
    Header(HeaderError),
    /// Unknown codec.
    UnknownCodec(u8),
    /// The compressed records cannot be read.
    Inflate(InflateError),
    /// A record's bytes are wrong.
    Record {
        /// Index in the batch.
        index: i32,
        /// What is wrong.
        error: RecordError,
    },
    /// Bytes after the last record.
    TrailingBytes,
}

impl fmt::Display for RecordsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(error) => error.fmt(f),
            Self::UnknownCodec(id) => write!(f, "unknown compression type {id}"),
            Self::Inflate(error) => error.fmt(f),
            Self::Record { index, error } => write!(f, "record {index}: {error}"),
            Self::TrailingBytes => f.write_str("bytes follow the last record"),
        }
    }
}

impl std::error::Error for RecordsError {}

/// Iterates over the records of one batch. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records {
    header: BatchHeader,
    data: Bytes,
    at: usize,
    index: i32,
}

impl Records {
    /// Opens the batch at the start of `batch`; its records may inflate to `max_inflated` bytes.
    ///
    /// # Errors
    /// No whole batch, unknown codec, corrupt or too large compressed data. The CRC is not
    /// checked.
    pub fn open(batch: &Bytes, max_inflated: u64) -> Result<Self, RecordsError> {
        let (header, records) = split(batch)?;
        let codec_id = header.attributes.codec_id();
        let codec = header
            .attributes
            .compression()
            .ok_or(RecordsError::UnknownCodec(codec_id))?;
        let data = inflate(codec, &batch.slice_ref(records), max_inflated)
            .map_err(RecordsError::Inflate)?;
        Ok(Self {
            header,
            data,
            at: 0,
            index: 0,
        })
    }

    /// The batch's header.
    #[must_use]
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    fn read(&mut self) -> Result<Record, RecordError> {
        let mut field = Field {
            data: &self.data,
            at: self.at,
            end: self.data.len(),
        };
        let length = field.varint("length").map_err(|_| RecordError::Truncated)?;
        let negative = RecordError::Negative("length", i64::from(length));
        let length = usize::try_from(length).map_err(|_| negative)?;
        if length > field.end - field.at {
            return Err(RecordError::Truncated);
        }
        field.end = field.at + length;
        field.byte("attributes")?;
        let timestamp_delta = field.varlong("timestamp")?;
        let offset_delta = field.varint("offset")?;
        let key = field.nullable("key")?;
        let value = field.nullable("value")?;
        let headers = field.headers()?;
        if field.at != field.end {
            return Err(RecordError::Stray((field.end - field.at) as u64));
        }
        self.at = field.end;
        let meta = RecordMeta {
            offset_delta,
            timestamp_delta,
            has_key: key.is_some(),
        };
        let timestamp = meta.timestamp(&self.header)?;
        // A log never assigns a base offset that could overflow; a foreign batch may have one.
        let offset = Offset(
            self.header
                .base_offset
                .0
                .wrapping_add(i64::from(offset_delta)),
        );
        Ok(Record {
            offset,
            timestamp,
            key,
            value,
            headers,
        })
    }
}

impl Iterator for Records {
    type Item = Result<Record, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.index;
        if index >= self.header.record_count {
            let trailing = self.at != self.data.len();
            self.at = self.data.len();
            return trailing.then_some(Err(RecordsError::TrailingBytes));
        }
        self.index += 1;
        let read = self.read();
        if read.is_err() {
            self.index = self.header.record_count;
            self.at = self.data.len();
        }
        Some(read.map_err(|error| RecordsError::Record { index, error }))
    }
}

/// The header and the record bytes of the batch at the start of `batch`.
pub(super) fn split(batch: &[u8]) -> Result<(BatchHeader, &[u8]), RecordsError> {
    let header = BatchHeader::parse(batch).map_err(RecordsError::Header)?;
    let records = batch
        .get(HEADER_BYTES..header.size_bytes())
        .ok_or(RecordsError::Header(HeaderError::Truncated {
            needed: header.size_bytes() as u64,
            present: batch.len() as u64,
        }))?;
    Ok((header, records))
}

/// Reads fields out of a record.
struct Field<'a> {
    data: &'a Bytes,
    at: usize,
    end: usize,
}

impl Field<'_> {
    fn byte(&mut self, field: &'static str) -> Result<u8, RecordError> {
        if self.at == self.end {
            return Err(RecordError::Beyond(field));
        }
        let byte = self.data[self.at];
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self, field: &'static str) -> Result<i32, RecordError> {
        read_varint(|| self.byte(field))
    }

    fn varlong(&mut self, field: &'static str) -> Result<i64, RecordError> {
        read_varlong(|| self.byte(field))
    }

    fn slice(&mut self, length: i32, field: &'static str) -> Result<Bytes, RecordError> {
        let negative = RecordError::Negative(field, i64::from(length));
        let length = usize::try_from(length).map_err(|_| negative)?;
        if length > self.end - self.at {
            return Err(RecordError::Beyond(field));
        }
        let slice = self.data.slice(self.at..self.at + length);
        self.at += length;
        Ok(slice)
    }

    fn nullable(&mut self, field: &'static str) -> Result<Option<Bytes>, RecordError> {
        match self.varint(field)? {
            -1 => Ok(None),
            length => self.slice(length, field).map(Some),
        }
    }

    fn headers(&mut self) -> Result<Vec<RecordHeader>, RecordError> {
        let count = self.varint("header count")?;
        if count < 0 {
            return Err(RecordError::Negative("header count", i64::from(count)));
        }
        // Grows with the headers found: the count is only a claim.
        let mut headers = Vec::new();
        for _ in 0..count {
            let length = self.varint("header key")?;
            let key = self.slice(length, "header key")?;
            headers.push(RecordHeader {
                key,
                value: self.nullable("header value")?,
            });
        }
        Ok(headers)
    }
}
