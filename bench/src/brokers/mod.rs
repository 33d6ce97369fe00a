//! Brokers started here, each in a process of its own.

mod child;
pub mod kafka;
pub mod tidemill;

pub use child::Child;
