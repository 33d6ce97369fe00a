//! The Kafka broker: connections, one file per API key, consumer groups, settings.

mod api;
mod broker;
mod create;
mod errors;
mod fetch;
mod metrics;
pub mod net;
pub mod settings;
mod topics;

pub use broker::{Broker, BrokerOptions};
pub use metrics::{Histogram, Metrics};
