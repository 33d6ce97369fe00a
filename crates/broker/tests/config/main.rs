//! Settings: definitions, sources, typed forms, changes, description.

mod alter;
mod broker;
mod defs;
mod describe;
mod host;
mod layers;
mod topic;

use std::collections::BTreeMap;

use tidemill_broker::config::{BrokerConfig, ConfigError, Host, Layer, Settings};

/// Dynamic or topic configurations.
pub type Configs = BTreeMap<String, String>;

/// A machine with 8 GiB.
pub const HOST: Host = Host {
    memory_bytes: 8 << 30,
};

/// Configurations of these pairs.
pub fn configs(pairs: &[(&str, &str)]) -> Configs {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Settings from flags.
pub fn settings(flags: &[&str]) -> Result<Settings, ConfigError> {
    Settings::new(&[Layer::flags(flags.iter().copied())?], HOST)
}

/// The typed form of settings from flags.
pub fn broker(flags: &[&str]) -> Result<BrokerConfig, ConfigError> {
    BrokerConfig::new(settings(flags)?)
}

/// The text of the error of these flags.
pub fn refused(flags: &[&str]) -> String {
    broker(flags).expect_err("refused settings").to_string()
}
