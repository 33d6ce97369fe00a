//! The broker's settings as given: flag over environment over file over default.

use std::collections::BTreeMap;

use tidemill_cluster::image::Configs;

use super::def::{ConfigDef, Role, broker_def, broker_defs, nearest};
use super::error::ConfigError;
use super::layers::Layer;
use super::value::Value;

/// Share of the machine's memory for caches and buffers if nothing is set.
const MEMORY_SHARE: u64 = 4;
/// Most of it: beyond this the page cache and clients make better use of memory.
const MEMORY_MAX_BYTES: u64 = 4 << 30;
/// Share of `tidemill.memory.bytes` for large requests.
pub(super) const REQUEST_MEMORY_SHARE: u64 = 16;
/// Most of it for the newest records of a local directory: what a roll round moves, and what comes
/// in meanwhile. Older ones are a read of the disk away and not a request to a bucket.
const LOCAL_TAIL_MAX_BYTES: u64 = 384 << 20;
/// Most of it for blocks read from a local directory: enough for consumers that follow each other.
/// The page cache keeps more, and memory that is used again costs less than fresh one.
const LOCAL_BLOCK_MAX_BYTES: u64 = 128 << 20;

/// What defaults depend on.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Memory that the process may use, see [`super::memory_bytes`].
    pub memory_bytes: u64,
}

/// A value that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    /// In canonical form.
    value: String,
    origin: String,
}

/// The broker's settings, all checked against their definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    set: BTreeMap<&'static str, Setting>,
    /// Defaults worked out at start.
    computed: BTreeMap<&'static str, String>,
}

impl Settings {
    /// Puts layers together, the first wins.
    ///
    /// # Errors
    /// An unknown name, or a value that its definition refuses, in any layer.
    pub fn new(layers: &[Layer], host: Host) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        for layer in layers {
            for (name, entry) in layer.entries() {
                let def = broker_def(name).ok_or_else(|| {
                    ConfigError::unknown(name, nearest(name, true)).from(&entry.origin)
                })?;
                let value = def
                    .parse(&entry.value)
                    .map_err(|error| error.from(&entry.origin))?;
                settings.set.entry(def.name).or_insert_with(|| Setting {
                    value: value.to_string(),
                    origin: entry.origin.clone(),
                });
            }
        }
        settings.work_out(host);
        Ok(settings)
    }

    fn work_out(&mut self, host: Host) {
        let memory = (host.memory_bytes / MEMORY_SHARE).min(MEMORY_MAX_BYTES);
        // Not below what the setting itself takes: a tiny container still needs buffers.
        self.computed
            .insert("tidemill.memory.bytes", memory.max(1 << 24).to_string());
        let memory: u64 = self
            .text("tidemill.memory.bytes")
            .and_then(|text| text.parse().ok())
            .unwrap_or(memory);
        self.computed.insert(
            "tidemill.pending.bytes",
            (memory / 8).max(1 << 20).to_string(),
        );
        let tail = memory / 2 - memory / REQUEST_MEMORY_SHARE;
        let tail = if self.is_local() {
            tail.min(LOCAL_TAIL_MAX_BYTES)
        } else {
            tail
        };
        self.computed
            .insert("tidemill.cache.tail.bytes", tail.to_string());
        let block = if self.is_local() {
            (memory / 4).min(LOCAL_BLOCK_MAX_BYTES)
        } else {
            memory / 4
        };
        self.computed
            .insert("tidemill.cache.block.bytes", block.to_string());
        let latency = if self.is_local() { "low" } else { "balanced" };
        self.computed.insert("tidemill.latency", latency.to_owned());
    }

    /// Whether the data is on this machine and not in a bucket.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let data = self.text("tidemill.data").unwrap_or_default();
        // `model:` is a store of the benchmarks that behaves like a bucket.
        !["s3:", "gs:", "az:", "model:"]
            .iter()
            .any(|scheme| data.starts_with(scheme))
    }

    /// The value in force without dynamic settings.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.given(name).or_else(|| self.default_of(name))
    }

    /// The value that was set.
    #[must_use]
    pub fn given(&self, name: &str) -> Option<&str> {
        self.set.get(name).map(|setting| setting.value.as_str())
    }

    /// Where a value was set: a flag, a variable, a file.
    #[must_use]
    pub fn origin_of(&self, name: &str) -> Option<&str> {
        self.set.get(name).map(|setting| setting.origin.as_str())
    }

    /// The default.
    #[must_use]
    pub fn default_of(&self, name: &str) -> Option<&str> {
        let computed = self.computed.get(name).map(String::as_str);
        computed.or_else(|| broker_def(name)?.default)
    }

    /// Settings of Kafka that were set and have no meaning here, with where they were set; for
    /// one warning each.
    pub fn without_effect(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let inert = |name: &str| {
            broker_def(name).is_some_and(|def| matches!(def.role, Role::Inert | Role::Hidden))
        };
        self.set
            .iter()
            .filter(move |(name, _)| inert(name))
            .map(|(name, setting)| (*name, setting.origin.as_str()))
    }

    /// These settings with dynamic ones over them.
    #[must_use]
    pub const fn with<'a>(&'a self, default: &'a Configs, own: &'a Configs) -> View<'a> {
        View {
            settings: self,
            default,
            own,
        }
    }

    pub(super) fn error(&self, name: &str, reason: String) -> ConfigError {
        let error = ConfigError::invalid(name, self.text(name).map(str::to_owned), reason);
        match self.set.get(name) {
            Some(setting) => error.from(&setting.origin),
            None => error,
        }
    }

    /// A setting's value; none if it has neither value nor default.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        // Given values were checked, defaults are checked by a test over all definitions.
        broker_def(name)?.parse(self.text(name)?).ok()
    }
}

/// The broker's settings and what was set over them while it ran.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// From start.
    pub settings: &'a Settings,
    /// Dynamic, for all brokers.
    pub default: &'a Configs,
    /// Dynamic, for this broker.
    pub own: &'a Configs,
}

impl<'a> View<'a> {
    /// The value in force. Dynamic values of settings that are not live are ignored, as are those
    /// that their definition refuses (a newer broker may have written them).
    #[must_use]
    pub fn text(&self, def: &ConfigDef) -> Option<&'a str> {
        self.dynamic(self.own, def)
            .or_else(|| self.dynamic(self.default, def))
            .or_else(|| self.settings.text(def.name))
    }

    /// A usable dynamic value.
    pub(super) fn dynamic(&self, configs: &'a Configs, def: &ConfigDef) -> Option<&'a str> {
        let text = configs.get(def.name)?;
        (def.scope().is_some() && def.parse(text).is_ok()).then_some(text.as_str())
    }
}

/// Names of all broker settings, for help texts and completion.
pub fn names() -> impl Iterator<Item = &'static str> {
    broker_defs().map(|def| def.name)
}
