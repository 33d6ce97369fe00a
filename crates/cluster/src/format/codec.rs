//! Bounds-checked little-endian fields of this crate's directories.

use tidemill_store::envelope::EnvelopeError;
use tidemill_wire::ids::TopicId;

pub(super) fn malformed(what: impl Into<String>) -> EnvelopeError {
    EnvelopeError::Malformed { what: what.into() }
}

/// Appends fields.
#[derive(Debug, Default)]
pub(super) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("metadata lists are far below 4 G items"));
    }

    pub(super) fn string(&mut self, value: &str) {
        self.count(value.len());
        self.raw(value.as_bytes());
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, encode: impl FnOnce(&mut Self, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            encode(self, value);
        }
    }

    pub(super) fn list<I>(&mut self, items: I, mut encode: impl FnMut(&mut Self, I::Item))
    where
        I: IntoIterator<IntoIter: ExactSizeIterator>,
    {
        let items = items.into_iter();
        self.count(items.len());
        for item in items {
            encode(self, item);
        }
    }
}

/// Reads fields; no length in the bytes is trusted.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], EnvelopeError> {
        let Some((head, rest)) = self.rest.split_at_checked(len) else {
            let left = self.rest.len();
            return Err(malformed(format!(
                "a field of {len} bytes with {left} left"
            )));
        };
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], EnvelopeError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(super) fn u8(&mut self) -> Result<u8, EnvelopeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, EnvelopeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, EnvelopeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn i32(&mut self) -> Result<i32, EnvelopeError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, EnvelopeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, EnvelopeError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(super) fn topic(&mut self) -> Result<TopicId, EnvelopeError> {
        Ok(TopicId(self.array()?))
    }

    pub(super) fn string(&mut self) -> Result<String, EnvelopeError> {
        let len = self.u32()? as usize;
        let bytes = self.take(len)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(malformed("a string that is not UTF-8")),
        }
    }

    pub(super) fn option<T>(
        &mut self,
        decode: impl FnOnce(&mut Self) -> Result<T, EnvelopeError>,
    ) -> Result<Option<T>, EnvelopeError> {
        match self.u8()? {
            0 => Ok(None),
            1 => Ok(Some(decode(self)?)),
            other => Err(malformed(format!("a presence byte of {other}"))),
        }
    }

    /// Every item takes at least one byte, so a claimed count cannot allocate more than the input.
    pub(super) fn list<T>(
        &mut self,
        mut decode: impl FnMut(&mut Self) -> Result<T, EnvelopeError>,
    ) -> Result<Vec<T>, EnvelopeError> {
        let count = self.u32()? as usize;
        if count > self.rest.len() {
            let left = self.rest.len();
            return Err(malformed(format!(
                "a list of {count} items in {left} bytes"
            )));
        }
        let mut out = Vec::new();
        for _ in 0..count {
            out.push(decode(self)?);
        }
        Ok(out)
    }

    pub(super) fn end(&self) -> Result<(), EnvelopeError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(malformed(format!("{} bytes too many", self.rest.len())))
    }
}
