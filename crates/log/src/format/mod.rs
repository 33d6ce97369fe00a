//! Layouts of stored objects. A golden-bytes test guards each.

pub mod codec;
