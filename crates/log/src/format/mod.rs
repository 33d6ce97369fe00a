//! Layouts of stored objects. A golden-bytes test guards each.

pub mod checkpoint;
pub mod codec;
pub mod data;
pub mod manifest;
mod parts;
pub mod wal;
