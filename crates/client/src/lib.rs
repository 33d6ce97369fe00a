//! A small Kafka client: one pipelined connection, and version negotiation over it.
//!
//! The command line, the load generator and the tests use it. It is no general client: it knows
//! neither retries nor groups.

mod connection;
mod error;
mod negotiated;

pub use connection::{Connection, Options, Pending};
pub use error::ClientError;
pub use negotiated::Client;
