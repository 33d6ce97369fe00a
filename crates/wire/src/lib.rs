//! The Kafka protocol: messages, frames, record batches.
//!
//! Every message is declared once, field by field with its versions, in the schema of
//! [`messages`] and [`records`]; names follow Kafka's own schemas in snake case. Decoding trusts
//! no length that it reads, copies no string and no record, and never panics. Encoding leaves
//! large payloads as shared slices, for one vectored write.

mod schema;

pub mod api;
pub mod batch;
pub mod codec;
pub mod errors;
pub mod frame;
pub mod fuzz;
pub mod ids;
pub mod messages;
pub mod records;
#[cfg(feature = "sample")]
pub mod sample;

pub use api::{ApiKey, RequestKind, ResponseKind};
pub use codec::{
    DecodeError, Decoder, EncodeError, EncodedFrame, Encoder, FileSlice, Message, PayloadFile,
    Records, Request, Slice, Str, Uuid,
};
pub use errors::ErrorCode;
