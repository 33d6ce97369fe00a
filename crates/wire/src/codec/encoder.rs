//! A writer that leaves large payloads where they are.

use bytes::{BufMut, Bytes, BytesMut};

use super::decoder::MAX_STRING;
use super::error::Written;
use super::{EncodeError, EncodeErrorKind, Records, Slice};

/// Payloads of at least this many bytes go out as slices of their own; copying a smaller one
/// costs less than another entry of a vectored write.
pub const ZERO_COPY_MIN: usize = 1024;

/// Bytes reserved for a new message's header bytes.
const INITIAL_CAPACITY: usize = 256;

/// Bytes of a frame's size prefix.
const SIZE_PREFIX: usize = 4;

/// Writes one message into header bytes and shared payload slices.
pub struct Encoder {
    buf: BytesMut,
    /// Payload slices, each with the position in `buf` before which it goes.
    cuts: Vec<(usize, Slice)>,
    /// Bytes in `cuts`.
    payload: usize,
    flexible: bool,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An empty message.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(INITIAL_CAPACITY)
    }

    /// An empty message with room for `capacity` header bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            buf: BytesMut::with_capacity(capacity),
            cuts: Vec::new(),
            payload: 0,
            flexible: false,
        }
    }

    /// An empty frame: room for the size prefix, which [`Encoder::finish_frame`] fills in.
    #[must_use]
    pub fn frame() -> Self {
        let mut encoder = Self::new();
        encoder.buf.put_bytes(0, SIZE_PREFIX);
        encoder
    }

    /// Bytes written so far, payloads included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buf.len() + self.payload
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) const fn flexible(&self) -> bool {
        self.flexible
    }

    #[inline]
    pub(crate) const fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    /// Raw bytes, copied.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Raw bytes, shared if they are long.
    pub fn shared(&mut self, bytes: &Bytes) {
        if bytes.len() < ZERO_COPY_MIN {
            self.buf.extend_from_slice(bytes);
        } else {
            self.payload += bytes.len();
            self.cuts.push((self.buf.len(), bytes.clone().into()));
        }
    }

    /// An int8.
    #[inline]
    pub fn i8(&mut self, value: i8) {
        self.buf.put_i8(value);
    }

    /// An int16.
    #[inline]
    pub fn i16(&mut self, value: i16) {
        self.buf.put_i16(value);
    }

    /// An int32.
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.buf.put_i32(value);
    }

    /// An int64.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.buf.put_i64(value);
    }

    /// An unsigned varint.
    pub fn uvarint(&mut self, value: u32) {
        if value < 0x80 {
            self.buf.put_u8(value as u8);
            return;
        }
        let (bytes, length) = uvarint_bytes(value);
        self.buf.extend_from_slice(&bytes[..length]);
    }

    /// A compact length or an int32 one.
    pub(crate) fn length(&mut self, length: usize) -> Written {
        let fits = i32::try_from(length)
            .ok()
            .filter(|length| *length < i32::MAX);
        let Some(fits) = fits else {
            return Err(too_long_boxed(length));
        };
        if self.flexible {
            self.uvarint(fits as u32 + 1);
        } else {
            self.buf.put_i32(fits);
        }
        Ok(())
    }

    /// The length that stands for null bytes, records or array.
    pub(crate) fn null_length(&mut self) {
        if self.flexible {
            self.buf.put_u8(0);
        } else {
            self.buf.put_i32(-1);
        }
    }

    /// A string in the present encoding.
    pub(crate) fn string(&mut self, text: &[u8]) -> Written {
        if text.len() > MAX_STRING {
            return Err(too_long_boxed(text.len()));
        }
        if self.flexible {
            self.uvarint(text.len() as u32 + 1);
        } else {
            self.buf.put_i16(text.len() as i16);
        }
        self.buf.extend_from_slice(text);
        Ok(())
    }

    /// The length that stands for a null string.
    pub(crate) fn null_string(&mut self) {
        if self.flexible {
            self.buf.put_u8(0);
        } else {
            self.buf.put_i16(-1);
        }
    }

    /// Records in the present encoding, shared where long.
    pub(crate) fn records(&mut self, records: &Records) -> Written {
        self.length(records.len())?;
        for slice in records.slices() {
            match slice {
                Slice::Memory(bytes) => self.shared(bytes),
                Slice::File(file) => {
                    self.payload += file.len();
                    self.cuts.push((self.buf.len(), file.clone().into()));
                }
            }
        }
        Ok(())
    }

    /// Starts a tagged field; the result goes to [`Encoder::end_tag`].
    pub(crate) fn begin_tag(&mut self, tag: u32) -> (usize, usize) {
        self.uvarint(tag);
        (self.buf.len(), self.payload)
    }

    /// Ends a tagged field: puts its size, known only now, in front of it.
    pub(crate) fn end_tag(&mut self, (start, payload): (usize, usize)) -> Written {
        let size = self.buf.len() - start + self.payload - payload;
        let size32 = u32::try_from(size).map_err(|_| too_long_boxed(size))?;
        let (bytes, length) = uvarint_bytes(size32);
        let end = self.buf.len();
        self.buf.put_bytes(0, length);
        self.buf.copy_within(start..end, start + length);
        self.buf[start..start + length].copy_from_slice(&bytes[..length]);
        for (position, _) in self.cuts.iter_mut().rev().take_while(|cut| cut.0 >= start) {
            *position += length;
        }
        Ok(())
    }

    /// The slices of a message without a size prefix.
    #[must_use]
    pub fn finish(self) -> EncodedFrame {
        let len = self.len();
        let header = self.buf.freeze();
        if self.cuts.is_empty() {
            return EncodedFrame {
                slices: vec![header.into()],
                len,
            };
        }
        let mut slices = Vec::with_capacity(2 * self.cuts.len() + 1);
        let mut from = 0;
        for (position, payload) in self.cuts {
            if position > from {
                slices.push(header.slice(from..position).into());
            }
            slices.push(payload);
            from = position;
        }
        if from < header.len() {
            slices.push(header.slice(from..).into());
        }
        EncodedFrame { slices, len }
    }

    /// The slices of a message begun with [`Encoder::frame`], its size filled in.
    ///
    /// # Errors
    /// If the frame exceeds what its size prefix can say.
    pub fn finish_frame(mut self) -> Result<EncodedFrame, EncodeError> {
        let size = self.len() - SIZE_PREFIX;
        let prefix = i32::try_from(size).map_err(|_| too_long(size))?;
        self.buf[..SIZE_PREFIX].copy_from_slice(&prefix.to_be_bytes());
        Ok(self.finish())
    }
}

/// A message as slices, for one vectored write where all are memory.
#[derive(Clone, Debug, Default)]
pub struct EncodedFrame {
    /// Header bytes and payloads in turn, none of them empty (but for an empty message).
    pub slices: Vec<Slice>,
    len: usize,
}

impl EncodedFrame {
    /// Bytes in all slices together.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slices as memory; what lies in files is read, which may block.
    ///
    /// # Errors
    /// As a file's read.
    pub fn into_memory(self) -> std::io::Result<Vec<Bytes>> {
        self.slices.iter().map(Slice::to_bytes).collect()
    }

    /// The bytes as one slice: shared if there is one slice already, joined otherwise. As
    /// [`Records::to_bytes`], meant for what has no parts of files: all but a broker's answers.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let all: Records = self.slices.iter().cloned().collect();
        all.to_bytes()
    }
}

#[cold]
fn too_long_boxed(length: usize) -> Box<EncodeError> {
    EncodeError::boxed(EncodeErrorKind::TooLong(length))
}

#[cold]
const fn too_long(length: usize) -> EncodeError {
    EncodeError::new(EncodeErrorKind::TooLong(length))
}

/// The bytes of a varint and how many they are.
const fn uvarint_bytes(mut value: u32) -> ([u8; 5], usize) {
    let mut bytes = [0; 5];
    let mut length = 0;
    while value >= 0x80 {
        bytes[length] = (value as u8) | 0x80;
        value >>= 7;
        length += 1;
    }
    bytes[length] = value as u8;
    (bytes, length + 1)
}
