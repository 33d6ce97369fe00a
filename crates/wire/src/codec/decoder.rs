//! A reader that trusts no length.

use bytes::Bytes;

use super::error::Read;
use super::{DecodeError, DecodeErrorKind, Message, Str};

/// The longest string that Kafka reads or writes, in bytes, compact ones included.
pub(super) const MAX_STRING: usize = i16::MAX as usize;

/// Memory that the arrays of any message may take, in bytes: small messages are not worth a limit.
const ARRAY_MEMORY_BASE: usize = 4 << 20;

/// Memory that a message's arrays may take per byte of it. The leanest elements of real messages
/// (one-letter topics with one partition) take 10 to 12; an attacker's would take 40.
const ARRAY_MEMORY_PER_BYTE: usize = 16;

/// Memory that the arrays of one message may take, whatever its length: a million partitions.
const ARRAY_MEMORY_MAX: usize = 64 << 20;

/// Reads one message from shared bytes.
pub struct Decoder {
    buf: Bytes,
    pos: usize,
    /// Where the tagged field being read ends, or the bytes do.
    end: usize,
    /// Bytes of memory that arrays may still take.
    budget: usize,
    flexible: bool,
}

impl Decoder {
    /// Reads from `buf`, which the decoded strings and records will share.
    #[must_use]
    pub fn new(buf: Bytes) -> Self {
        let end = buf.len();
        let budget = end
            .saturating_mul(ARRAY_MEMORY_PER_BYTE)
            .saturating_add(ARRAY_MEMORY_BASE)
            .min(ARRAY_MEMORY_MAX);
        Self {
            buf,
            pos: 0,
            end,
            budget,
            flexible: false,
        }
    }

    /// Bytes not yet read.
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.end - self.pos
    }

    /// The bytes not yet read, shared.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        self.buf.slice(self.pos..self.end)
    }

    /// Reads a whole message. Bytes behind it are left, as Kafka leaves them.
    ///
    /// # Errors
    /// If the bytes are not this version of the message.
    pub fn message<M: Message>(&mut self, version: i16) -> Result<M, DecodeError> {
        M::decode(self, version)
    }

    /// Whether compact lengths and tagged fields are in use.
    #[inline]
    pub(crate) const fn flexible(&self) -> bool {
        self.flexible
    }

    #[inline]
    pub(crate) const fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    #[cold]
    fn truncated(&self, needed: usize) -> Box<DecodeError> {
        DecodeError::boxed(DecodeErrorKind::Truncated {
            needed,
            left: self.remaining(),
        })
    }

    /// A fixed number of bytes.
    ///
    /// # Errors
    /// If there are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        match self.buf[self.pos..self.end].first_chunk::<N>() {
            Some(bytes) => {
                self.pos += N;
                Ok(*bytes)
            }
            None => Err(self.truncated(N)),
        }
    }

    /// `length` bytes, shared.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn take(&mut self, length: usize) -> Read<Bytes> {
        if length > self.remaining() {
            return Err(self.truncated(length));
        }
        let start = self.pos;
        self.pos += length;
        Ok(self.buf.slice(start..self.pos))
    }

    /// An int8.
    ///
    /// # Errors
    /// If the bytes end before.
    #[inline]
    pub fn i8(&mut self) -> Read<i8> {
        self.array().map(i8::from_be_bytes)
    }

    /// An int16.
    ///
    /// # Errors
    /// If the bytes end before.
    #[inline]
    pub fn i16(&mut self) -> Read<i16> {
        self.array().map(i16::from_be_bytes)
    }

    /// An int32.
    ///
    /// # Errors
    /// If the bytes end before.
    #[inline]
    pub fn i32(&mut self) -> Read<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// An int64.
    ///
    /// # Errors
    /// If the bytes end before.
    #[inline]
    pub fn i64(&mut self) -> Read<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// An unsigned varint of at most 32 bits.
    ///
    /// # Errors
    /// If it is longer, or the bytes end before.
    #[inline]
    pub fn uvarint(&mut self) -> Read<u32> {
        let [first] = self.array()?;
        if first < 0x80 {
            return Ok(u32::from(first));
        }
        self.uvarint_rest(u32::from(first & 0x7f))
    }

    fn uvarint_rest(&mut self, mut value: u32) -> Read<u32> {
        for shift in [7, 14, 21, 28] {
            let [byte] = self.array()?;
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::boxed(DecodeErrorKind::VarintOverflow))
    }

    /// A compact length or an int32 one; `None` is null.
    pub(crate) fn length(&mut self) -> Read<Option<usize>> {
        let length = if self.flexible {
            i64::from(self.uvarint()?) - 1
        } else {
            i64::from(self.i32()?)
        };
        checked_length(length)
    }

    /// A string in the present encoding; `None` is null.
    ///
    /// # Errors
    /// If the length is impossible or the bytes are not UTF-8.
    pub(crate) fn nullable_string(&mut self) -> Read<Option<Str>> {
        let length = if self.flexible {
            i64::from(self.uvarint()?) - 1
        } else {
            i64::from(self.i16()?)
        };
        let Some(length) = checked_length(length)? else {
            return Ok(None);
        };
        if length > MAX_STRING {
            return Err(DecodeError::boxed(DecodeErrorKind::StringTooLong(length)));
        }
        Ok(Some(Str::from_utf8(self.take(length)?)?))
    }

    /// Bytes in the present encoding; `None` is null.
    pub(crate) fn nullable_bytes(&mut self) -> Read<Option<Bytes>> {
        match self.length()? {
            Some(length) => self.take(length).map(Some),
            None => Ok(None),
        }
    }

    /// Checks an array's count before anything is reserved for it: no element takes less than
    /// `min` bytes here, each takes `size` bytes in memory.
    pub(crate) fn reserve(&mut self, count: usize, min: usize, size: usize) -> Read<()> {
        let left = self.remaining();
        if count > left / min.max(1) {
            return Err(DecodeError::boxed(DecodeErrorKind::TooManyItems {
                count,
                left,
            }));
        }
        match self.budget.checked_sub(count.saturating_mul(size)) {
            Some(budget) => self.budget = budget,
            None => return Err(DecodeError::boxed(DecodeErrorKind::MemoryLimit)),
        }
        Ok(())
    }

    /// Enters a tagged field: its tag, and what [`Decoder::leave_tag`] needs.
    pub(crate) fn enter_tag(&mut self) -> Read<(u32, usize)> {
        let tag = self.uvarint()?;
        let size = self.uvarint()? as usize;
        if size > self.remaining() {
            return Err(self.truncated(size));
        }
        let outer = self.end;
        self.end = self.pos + size;
        Ok((tag, outer))
    }

    /// Passes over an unknown tagged field.
    pub(crate) const fn skip_tag(&mut self) {
        self.pos = self.end;
    }

    /// Leaves a tagged field, which must have been read to its end.
    pub(crate) fn leave_tag(&mut self, tag: u32, outer: usize) -> Read<()> {
        let left = self.remaining();
        self.end = outer;
        if left > 0 {
            return Err(DecodeError::boxed(DecodeErrorKind::TagSize { tag, left }));
        }
        Ok(())
    }

    /// Passes over a section of tagged fields.
    pub(crate) fn skip_tags(&mut self) -> Read<()> {
        for _ in 0..self.uvarint()? {
            let (tag, outer) = self.enter_tag()?;
            self.skip_tag();
            self.leave_tag(tag, outer)?;
        }
        Ok(())
    }
}

#[inline]
fn checked_length(length: i64) -> Read<Option<usize>> {
    match usize::try_from(length) {
        Ok(length) => Ok(Some(length)),
        Err(_) if length == -1 => Ok(None),
        Err(_) => Err(DecodeError::boxed(DecodeErrorKind::NegativeLength(length))),
    }
}
