//! The Kafka broker: connections, one file per API key, consumer groups, settings.

pub mod net;
