//! The life of data: roll, merge, retention, deletion, reads, checkpoints, crashes.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

mod counts;
mod crash;
mod damage;
mod disk;
mod faults;
mod files;
mod harness;
mod lifecycle;
mod memory;
mod merge;
mod retention;
mod space;
