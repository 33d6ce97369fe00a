//! The Kafka broker: connections, one file per API key, consumer groups, settings.

mod alter;
mod api;
mod broker;
pub mod config;
mod create;
mod errors;
mod fetch;
pub mod groups;
mod metrics;
pub mod net;
mod topics;
mod validation;

pub use broker::{Broker, BrokerOptions};
pub use metrics::Metrics;
