//! Reading and writing the protocol's primitive types.

mod decoder;
mod encoder;
mod error;
mod slice;
mod str;
mod values;
mod wire;

pub use decoder::Decoder;
pub use encoder::{EncodedFrame, Encoder, ZERO_COPY_MIN};
pub use error::{DecodeError, DecodeErrorKind, EncodeError, EncodeErrorKind, FieldError};
pub(crate) use error::{Read, Written};
pub use slice::{FileSlice, PayloadFile, Slice};
pub use str::Str;
pub use values::{Records, Uuid};
pub use wire::Message;
pub use wire::Request;
pub(crate) use wire::{Nullable, Wire};
pub(crate) use wire::{not_in_version, null_read, null_written, read_field, write_field};
