//! Classic consumer groups.
//!
//! [`machine`] is the state machine of one group, without I/O; `join` and `session` are its parts.

pub mod error;
pub mod join;
pub mod machine;
pub mod member;
pub mod session;
