//! The Kafka protocol: messages, frames, record batches.

pub mod ids;
