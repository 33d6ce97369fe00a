//! Little-endian fields of directories and bodies, bounds-checked in both directions.
//!
//! Nothing here allocates a size that the input claims: [`Reader::count`] refuses a count that the
//! bytes left could not hold.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use tidemill_store::envelope::EnvelopeError;
use tidemill_wire::ids::{Offset, PartitionId, TopicId};

/// Appends fields to a growing buffer.
#[derive(Debug, Default)]
pub struct Writer {
    out: BytesMut,
}

impl Writer {
    /// An empty buffer with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let out = BytesMut::with_capacity(capacity);
        Self { out }
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// True if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.out.put_u8(value);
    }

    /// A flag, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.out.put_u16_le(value);
    }

    /// Two bytes, signed.
    pub fn i16(&mut self, value: i16) {
        self.out.put_i16_le(value);
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.out.put_u32_le(value);
    }

    /// Four bytes, signed.
    pub fn i32(&mut self, value: i32) {
        self.out.put_i32_le(value);
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.out.put_u64_le(value);
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self, value: i64) {
        self.out.put_i64_le(value);
    }

    /// Sixteen bytes.
    pub fn u128(&mut self, value: u128) {
        self.out.put_u128_le(value);
    }

    /// A number of items, four bytes.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("no list of a stored object has 2^32 items"));
    }

    /// Bytes as they are, without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.put_slice(bytes);
    }

    /// Length (four bytes) and bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    /// Text, as [`Writer::bytes`].
    pub fn string(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Number of items (four bytes) and the items.
    pub fn list<I>(&mut self, items: I, mut write: impl FnMut(&mut Self, I::Item))
    where
        I: IntoIterator<IntoIter: ExactSizeIterator>,
    {
        let items = items.into_iter();
        self.count(items.len());
        for item in items {
            write(self, item);
        }
    }

    /// Topic id and index.
    pub fn partition(&mut self, partition: PartitionId) {
        self.raw(&partition.topic.0);
        self.i32(partition.index);
    }

    /// Start and end, eight bytes each.
    pub fn range(&mut self, range: &Range<u64>) {
        self.u64(range.start);
        self.u64(range.end);
    }

    /// An offset, eight bytes.
    pub fn offset(&mut self, offset: Offset) {
        self.i64(offset.0);
    }

    /// Absence as one zero byte, presence as a one and the value.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// What was written.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.out.freeze()
    }
}

/// Takes fields off the front of a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`; errors name them `what`.
    #[must_use]
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    /// Bytes left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The error of a field that cannot be.
    #[must_use]
    pub fn malformed(&self, why: &str) -> EnvelopeError {
        EnvelopeError::Malformed {
            what: format!("{}: {why}", self.what),
        }
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn raw(&mut self, n: usize) -> Result<&'a [u8], EnvelopeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(n) else {
            return Err(self.malformed("ends early"));
        };
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], EnvelopeError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.malformed("ends early"));
        };
        self.rest = rest;
        Ok(*taken)
    }

    /// One byte.
    ///
    /// # Errors
    /// Nothing is left.
    pub fn u8(&mut self) -> Result<u8, EnvelopeError> {
        Ok(self.array::<1>()?[0])
    }

    /// A flag.
    ///
    /// # Errors
    /// Nothing is left, or it is neither 0 nor 1.
    pub fn bool(&mut self) -> Result<bool, EnvelopeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed("flag is neither 0 nor 1")),
        }
    }

    /// Two bytes.
    ///
    /// # Errors
    /// Fewer are left; so for all below.
    pub fn u16(&mut self) -> Result<u16, EnvelopeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Two bytes, signed.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn i16(&mut self) -> Result<i16, EnvelopeError> {
        Ok(i16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn u32(&mut self) -> Result<u32, EnvelopeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Four bytes, signed.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn i32(&mut self) -> Result<i32, EnvelopeError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn u64(&mut self) -> Result<u64, EnvelopeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Eight bytes, signed.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn i64(&mut self) -> Result<i64, EnvelopeError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Sixteen bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn u128(&mut self) -> Result<u128, EnvelopeError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A number of items of at least `min_item_bytes` (> 0) bytes each.
    ///
    /// # Errors
    /// The bytes left could not hold so many.
    pub fn count(&mut self, min_item_bytes: usize) -> Result<usize, EnvelopeError> {
        let count = self.u32()? as usize;
        if count > self.left() / min_item_bytes.max(1) {
            return Err(self.malformed("count exceeds the bytes left"));
        }
        Ok(count)
    }

    /// Length and bytes.
    ///
    /// # Errors
    /// Fewer are left than the length says.
    pub fn bytes(&mut self) -> Result<&'a [u8], EnvelopeError> {
        let len = self.count(1)?;
        self.raw(len)
    }

    /// Text.
    ///
    /// # Errors
    /// Fewer bytes are left than the length says, or they are not UTF-8.
    pub fn string(&mut self) -> Result<String, EnvelopeError> {
        let bytes = self.bytes()?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(self.malformed("string is not UTF-8")),
        }
    }

    /// What [`Writer::list`] wrote; every item takes at least one byte.
    ///
    /// # Errors
    /// The bytes left could not hold so many, or what `read` finds.
    pub fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, EnvelopeError>,
    ) -> Result<Vec<T>, EnvelopeError> {
        let count = self.count(1)?;
        (0..count).map(|_| read(self)).collect()
    }

    /// A topic id.
    ///
    /// # Errors
    /// Too few bytes.
    pub fn topic(&mut self) -> Result<TopicId, EnvelopeError> {
        Ok(TopicId(self.array()?))
    }

    /// Topic id and index.
    ///
    /// # Errors
    /// Too few bytes, or a negative index.
    pub fn partition(&mut self) -> Result<PartitionId, EnvelopeError> {
        let topic = self.topic()?;
        let index = self.i32()?;
        if index < 0 {
            return Err(self.malformed("negative partition index"));
        }
        Ok(PartitionId { topic, index })
    }

    /// Start and end.
    ///
    /// # Errors
    /// Too few bytes, or an end before the start.
    pub fn range(&mut self) -> Result<Range<u64>, EnvelopeError> {
        let (start, end) = (self.u64()?, self.u64()?);
        if start > end {
            return Err(self.malformed("range ends before it starts"));
        }
        Ok(start..end)
    }

    /// An offset that a log has assigned.
    ///
    /// # Errors
    /// Too few bytes, or a negative offset.
    pub fn offset(&mut self) -> Result<Offset, EnvelopeError> {
        let offset = self.i64()?;
        if offset < 0 {
            return Err(self.malformed("negative offset"));
        }
        Ok(Offset(offset))
    }

    /// What [`Writer::option`] wrote.
    ///
    /// # Errors
    /// Too few bytes, a bad flag, or what `read` finds.
    pub fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, EnvelopeError>,
    ) -> Result<Option<T>, EnvelopeError> {
        if self.bool()? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// Bytes are left.
    pub fn finish(self) -> Result<(), EnvelopeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.malformed("bytes follow the last field"))
        }
    }
}
