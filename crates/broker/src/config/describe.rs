//! What DescribeConfigs shows: values, where they come from, what they would be otherwise (K61).

use tidemill_cluster::image::Configs;

use super::def::{ConfigDef, Role, broker_def, broker_defs, topic_defs};
use super::settings::View;
use super::topic::{in_force, inherited};
use super::value::ConfigType;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set on the topic.
    DynamicTopic,
    /// Set on the broker while it ran.
    DynamicBroker,
    /// Set on all brokers while they ran.
    DynamicDefaultBroker,
    /// Given to the broker at its start.
    StaticBroker,
    /// Not set.
    Default,
}

impl ConfigSource {
    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> i8 {
        match self {
            Self::DynamicTopic => 1,
            Self::DynamicBroker => 2,
            Self::DynamicDefaultBroker => 3,
            Self::StaticBroker => 4,
            Self::Default => 5,
        }
    }
}

/// A value that counts, or would if those before it were not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The setting's name, which for a topic's may be a broker's.
    pub name: &'static str,
    /// Its value; none for a secret.
    pub value: Option<String>,
    /// Where it is set.
    pub source: ConfigSource,
}

/// A setting as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedConfig {
    /// Its name.
    pub name: &'static str,
    /// The value in force; none if there is none, and for a secret.
    pub value: Option<String>,
    /// Where that comes from.
    pub source: ConfigSource,
    /// All values by precedence.
    pub synonyms: Vec<ConfigSynonym>,
    /// Its type.
    pub kind: ConfigType,
    /// What it is for.
    pub documentation: &'static str,
    /// Whether it cannot be changed by a request.
    pub read_only: bool,
    /// Whether it is a secret.
    pub sensitive: bool,
}

/// Spellings of one broker setting in different units, the strongest first.
const UNITS: &[&[&str]] = &[
    &[
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    ],
    &["log.roll.ms", "log.roll.hours"],
    &["log.roll.jitter.ms", "log.roll.jitter.hours"],
];

/// All settings of a topic.
#[must_use]
pub fn describe_topic(own: &Configs, view: &View<'_>) -> Vec<DescribedConfig> {
    topic_defs()
        .iter()
        .map(|def| topic_config(def, own, view))
        .collect()
}

fn topic_config(def: &'static ConfigDef, own: &Configs, view: &View<'_>) -> DescribedConfig {
    let value = in_force(def, own, view).map(|value| value.to_string());
    let mut synonyms = Vec::new();
    if own.contains_key(def.name) {
        let (name, value, source) = (def.name, value.clone(), ConfigSource::DynamicTopic);
        synonyms.push(ConfigSynonym {
            name,
            value,
            source,
        });
    }
    if let Some(broker) = def
        .synonyms
        .first()
        .and_then(|synonym| broker_def(synonym.name))
    {
        let mut inherited_from = broker_synonyms(broker, view);
        // Kafka tells nothing of a default that stands in another unit.
        if inherited_from
            .iter()
            .all(|synonym| synonym.source == ConfigSource::Default)
        {
            inherited_from.retain(|synonym| synonym.name == broker.name);
        }
        synonyms.append(&mut inherited_from);
    }
    let source = synonyms
        .first()
        .map_or(ConfigSource::Default, |synonym| synonym.source);
    let value = value.or_else(|| inherited(def, view).map(|value| value.to_string()));
    described(def, value, source, synonyms, false)
}

/// All settings of this broker.
#[must_use]
pub fn describe_broker(view: &View<'_>) -> Vec<DescribedConfig> {
    let shown = broker_defs().filter(|def| def.role != Role::Hidden);
    shown.map(|def| broker_config(def, view)).collect()
}

/// The settings that were set on all brokers while they ran (the broker with an empty name).
#[must_use]
pub fn describe_default_broker(view: &View<'_>) -> Vec<DescribedConfig> {
    let set = broker_defs().filter(|def| view.default.contains_key(def.name));
    let config = set.map(|def| {
        let mut config = broker_config(def, view);
        let source = ConfigSource::DynamicDefaultBroker;
        config.synonyms.retain(|synonym| synonym.source == source);
        config.source = source;
        config.value = config
            .synonyms
            .first()
            .and_then(|synonym| synonym.value.clone());
        config
    });
    config.collect()
}

fn broker_config(def: &'static ConfigDef, view: &View<'_>) -> DescribedConfig {
    let mut synonyms = broker_synonyms(def, view);
    synonyms.retain(|synonym| synonym.name == def.name || is_unit_of(def.name, synonym.name));
    let source = synonyms
        .iter()
        .find(|synonym| synonym.name == def.name)
        .map_or(ConfigSource::Default, |synonym| synonym.source);
    let value = view.text(def).map(str::to_owned);
    described(def, value, source, synonyms, def.scope().is_none())
}

fn is_unit_of(name: &str, other: &str) -> bool {
    UNITS
        .iter()
        .any(|units| units.contains(&name) && units.contains(&other))
}

/// All values of a broker's setting by precedence, those in other units included.
fn broker_synonyms(def: &'static ConfigDef, view: &View<'_>) -> Vec<ConfigSynonym> {
    let units = UNITS.iter().find(|units| units.contains(&def.name));
    let names = units.map_or(vec![def], |units| {
        units.iter().filter_map(|name| broker_def(name)).collect()
    });
    let settings = view.settings;
    let mut synonyms = Vec::new();
    let mut add = |source, value: &dyn Fn(&'static ConfigDef) -> Option<String>| {
        for def in &names {
            if let Some(value) = value(def) {
                let value = (!def.is_sensitive()).then_some(value);
                synonyms.push(ConfigSynonym {
                    name: def.name,
                    value,
                    source,
                });
            }
        }
    };
    add(ConfigSource::DynamicBroker, &|def| {
        view.dynamic(view.own, def).map(str::to_owned)
    });
    add(ConfigSource::DynamicDefaultBroker, &|def| {
        view.dynamic(view.default, def).map(str::to_owned)
    });
    add(ConfigSource::StaticBroker, &|def| {
        settings.given(def.name).map(str::to_owned)
    });
    add(ConfigSource::Default, &|def| {
        settings.default_of(def.name).map(str::to_owned)
    });
    synonyms
}

fn described(
    def: &'static ConfigDef,
    value: Option<String>,
    source: ConfigSource,
    synonyms: Vec<ConfigSynonym>,
    read_only: bool,
) -> DescribedConfig {
    let sensitive = def.is_sensitive();
    DescribedConfig {
        name: def.name,
        value: value.filter(|_| !sensitive),
        source,
        synonyms,
        kind: def.kind,
        documentation: def.doc,
        read_only,
        sensitive,
    }
}
