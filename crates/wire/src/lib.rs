//! The Kafka protocol: messages, frames, record batches.

pub mod batch;
pub mod ids;
