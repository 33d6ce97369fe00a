//! The life of data: roll, merge, retention, deletion, reads, checkpoints.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

mod harness;
mod lifecycle;
