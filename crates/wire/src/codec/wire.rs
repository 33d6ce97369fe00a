//! What a field's type must be able to do.

use std::ops::RangeInclusive;

use bytes::Bytes;

use super::error::{Read, Written};
use super::{
    DecodeError, DecodeErrorKind, Decoder, EncodeError, EncodeErrorKind, Encoder, Records, Str,
    Uuid,
};
use crate::api::ApiKey;
use crate::errors::ErrorCode;
use crate::ids::TopicId;

/// A message of the protocol, or a record of an internal topic.
pub trait Message: Sized {
    /// Kafka's name of it.
    const NAME: &'static str;
    /// The versions that can be read and written.
    const VERSIONS: RangeInclusive<i16>;
    /// The first version with compact lengths and tagged fields; `i16::MAX` if there is none.
    const FLEXIBLE: i16;

    /// Reads the body. Bytes behind it are left, as Kafka leaves them.
    ///
    /// # Errors
    /// If the bytes are not this version of the message.
    fn decode(decoder: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Writes the body. A value that the version cannot carry is dropped if the field is
    /// ignorable, an error otherwise.
    ///
    /// # Errors
    /// If the version cannot carry the message.
    fn encode(&self, encoder: &mut Encoder, version: i16) -> Result<(), EncodeError>;
}

/// A request, which knows its API key and its response.
pub trait Request: Message {
    /// The key in the request's header.
    const KEY: ApiKey;
    /// What answers it.
    type Response: Message;
}

/// A field's type.
pub(crate) trait Wire: Sized {
    /// The fewest bytes that a value takes.
    fn min(version: i16, flexible: bool) -> usize;

    fn read(d: &mut Decoder, version: i16) -> Read<Self>;

    fn write(&self, e: &mut Encoder, version: i16) -> Written;

    #[inline]
    fn is_null(&self) -> bool {
        false
    }
}

/// A type whose encoding has a null.
pub(crate) trait Nullable: Wire {
    fn read_nullable(d: &mut Decoder, version: i16) -> Read<Option<Self>>;

    fn write_null(e: &mut Encoder);

    /// What stands in front of a value that is not null, if its length does not say so.
    #[inline]
    fn write_present(_: &mut Encoder) {}

    /// Bytes of the null.
    fn null_size(flexible: bool) -> usize;
}

impl<T: Nullable> Wire for Option<T> {
    fn min(_: i16, flexible: bool) -> usize {
        T::null_size(flexible)
    }

    #[inline]
    fn read(d: &mut Decoder, version: i16) -> Read<Self> {
        T::read_nullable(d, version)
    }

    #[inline]
    fn write(&self, e: &mut Encoder, version: i16) -> Written {
        match self {
            Some(value) => {
                T::write_present(e);
                value.write(e, version)
            }
            None => {
                T::write_null(e);
                Ok(())
            }
        }
    }

    #[inline]
    fn is_null(&self) -> bool {
        self.is_none()
    }
}

// The schema's expansions call these instead of containing them: there are some fifteen hundred
// fields, and code that stands once per field dominates the time to compile.

pub(crate) fn read_field<T: Wire>(d: &mut Decoder, version: i16, path: &'static str) -> Read<T> {
    T::read(d, version).map_err(|error| named(error, path))
}

pub(crate) fn write_field<T: Wire>(
    value: &T,
    e: &mut Encoder,
    version: i16,
    path: &'static str,
) -> Written {
    value.write(e, version).map_err(|mut error| {
        if error.field.is_empty() {
            error.field = path;
        }
        error
    })
}

#[cold]
fn named(mut error: Box<DecodeError>, path: &'static str) -> Box<DecodeError> {
    if error.field.is_empty() {
        error.field = path;
    }
    error
}

#[cold]
pub(crate) fn null_read(field: &'static str) -> Box<DecodeError> {
    Box::new(DecodeError {
        kind: DecodeErrorKind::Null,
        field,
    })
}

#[cold]
pub(crate) fn null_written(field: &'static str) -> Box<EncodeError> {
    Box::new(EncodeError {
        kind: EncodeErrorKind::Null,
        field,
    })
}

#[cold]
pub(crate) fn not_in_version(version: i16, field: &'static str) -> Box<EncodeError> {
    Box::new(EncodeError {
        kind: EncodeErrorKind::NotInVersion(version),
        field,
    })
}

macro_rules! primitive {
    ($($type:ty, $d:ident => $read:expr, $value:ident $e:ident => $write:expr;)*) => {
        $(impl Wire for $type {
            #[inline]
            fn min(_: i16, _: bool) -> usize {
                size_of::<$type>()
            }

            #[inline]
            fn read($d: &mut Decoder, _: i16) -> Read<Self> {
                $read
            }

            #[inline]
            fn write(&self, $e: &mut Encoder, _: i16) -> Written {
                let $value = *self;
                $write;
                Ok(())
            }
        })*
    };
}

primitive! {
    bool, d => d.i8().map(|byte| byte != 0), value e => e.i8(i8::from(value));
    i8, d => d.i8(), value e => e.i8(value);
    i16, d => d.i16(), value e => e.i16(value);
    i32, d => d.i32(), value e => e.i32(value);
    i64, d => d.i64(), value e => e.i64(value);
    u16, d => d.array().map(Self::from_be_bytes), value e => e.raw(&value.to_be_bytes());
    f64, d => d.array().map(f64::from_be_bytes), value e => e.raw(&value.to_be_bytes());
    ErrorCode, d => d.i16().map(ErrorCode), value e => e.i16(value.0);
    TopicId, d => d.array().map(TopicId), value e => e.raw(&value.0);
    Uuid, d => d.array().map(Uuid), value e => e.raw(&value.0);
}

/// Types whose null is a length of its own.
macro_rules! nullable {
    ($(
        $type:ty, $size:literal, $read:ident, $null:ident, $value:ident $e:ident => $write:expr;
    )*) => {
        $(impl Wire for $type {
            #[inline]
            fn min(_: i16, flexible: bool) -> usize {
                Self::null_size(flexible)
            }

            #[inline]
            fn read(d: &mut Decoder, _: i16) -> Read<Self> {
                d.$read()?.map(Into::into).ok_or_else(null)
            }

            #[inline]
            fn write(&self, $e: &mut Encoder, _: i16) -> Written {
                let $value = self;
                $write
            }
        }

        impl Nullable for $type {
            #[inline]
            fn read_nullable(d: &mut Decoder, _: i16) -> Read<Option<Self>> {
                Ok(d.$read()?.map(Into::into))
            }

            #[inline]
            fn write_null(e: &mut Encoder) {
                e.$null();
            }

            #[inline]
            fn null_size(flexible: bool) -> usize {
                if flexible { 1 } else { $size }
            }
        })*
    };
}

#[cold]
fn null() -> Box<DecodeError> {
    DecodeError::boxed(DecodeErrorKind::Null)
}

nullable! {
    Str, 2, nullable_string, null_string, value e => e.string(value.as_bytes());
    Bytes, 4, nullable_bytes, null_length, value e => {
        e.length(value.len())?;
        e.shared(value);
        Ok(())
    };
    Records, 4, nullable_bytes, null_length, value e => e.records(value);
}

/// What an array reserves at once, in bytes; beyond it grows with the items really read.
const RESERVE_MAX: usize = 64 << 10;

impl<T: Wire> Wire for Vec<T> {
    #[inline]
    fn min(_: i16, flexible: bool) -> usize {
        Self::null_size(flexible)
    }

    #[inline]
    fn read(d: &mut Decoder, version: i16) -> Read<Self> {
        Self::read_nullable(d, version)?.ok_or_else(null)
    }

    fn write(&self, e: &mut Encoder, version: i16) -> Written {
        e.length(self.len())?;
        self.iter().try_for_each(|item| item.write(e, version))
    }
}

impl<T: Wire> Nullable for Vec<T> {
    fn read_nullable(d: &mut Decoder, version: i16) -> Read<Option<Self>> {
        let Some(count) = d.length()? else {
            return Ok(None);
        };
        let min = T::min(version, d.flexible());
        d.reserve(count, min, size_of::<T>())?;
        let mut items = Self::with_capacity(count.min(RESERVE_MAX / size_of::<T>().max(1)));
        for _ in 0..count {
            items.push(T::read(d, version)?);
        }
        Ok(Some(items))
    }

    #[inline]
    fn write_null(e: &mut Encoder) {
        e.null_length();
    }

    #[inline]
    fn null_size(flexible: bool) -> usize {
        if flexible { 1 } else { 4 }
    }
}
