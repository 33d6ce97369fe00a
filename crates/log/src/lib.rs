//! The log: partitions over one writer's WAL, rolled into data objects that checkpoints publish.
//!
//! This crate knows no Kafka request; it takes validated record batches and gives them back.

pub mod extents;
pub mod format;
pub mod keys;
pub mod types;
