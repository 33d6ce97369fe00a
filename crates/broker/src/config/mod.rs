//! Settings of the broker and of topics: definitions, sources, typed forms, changes, description.
//!
//! Every setting of Kafka 4.4 is known by its name; those without a meaning here are accepted
//! and shown, but have no effect. Names that neither Kafka nor we know are errors.

mod alter;
mod broker;
mod def;
mod describe;
mod dynamic;
mod error;
mod host;
mod inert;
mod layers;
mod listeners;
mod ours;
mod settings;
mod topic;
mod topic_defs;
mod value;

pub use alter::{
    AlterError, AlterOp, Alteration, alter_broker, alter_topic, new_topic, replace_broker,
    replace_topic,
};
pub use broker::{BrokerConfig, GroupSettings};
pub use def::{ConfigDef, Role, Synonym, broker_def, broker_defs, topic_def, topic_defs};
pub use describe::{
    ConfigSource, ConfigSynonym, DescribedConfig, describe_broker, describe_default_broker,
    describe_topic,
};
pub use dynamic::Scope;
pub use error::ConfigError;
pub use host::memory_bytes;
pub use layers::{Entry, Layer, variable_of};
pub use listeners::Listener;
pub use settings::{Host, Settings, View, names};
pub use topic::{CleanupPolicy, TopicConfig};
pub use value::{Check, ConfigType, Value};

use tidemill_cluster::image::Configs;

/// Fuzzing: any text as a settings file, as values of every setting, as changes of a topic. It
/// must end in settings or an error, and what is accepted must be accepted again as shown.
///
/// # Panics
/// A canonical value is refused or read as another.
pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let host = Host {
        memory_bytes: 1 << 30,
    };
    let flags = Layer::flags(text.lines());
    for layer in [Layer::toml(&text, "fuzz.toml"), flags]
        .into_iter()
        .flatten()
    {
        if let Ok(config) = Settings::new(&[layer], host).and_then(BrokerConfig::new) {
            let none = Configs::new();
            let _ = describe_broker(&config.settings.with(&none, &none));
        }
    }
    for def in topic_defs().iter().chain(broker_defs()) {
        let Ok(value) = def.parse(&text) else {
            continue;
        };
        let shown = value.to_string();
        let again = def.parse(&shown).map(|value| value.to_string());
        assert_eq!(
            again.ok(),
            Some(shown),
            "the canonical value of `{}`",
            def.name
        );
    }
    let Ok(settings) = Settings::new(&[], host) else {
        return;
    };
    let none = Configs::new();
    let view = settings.with(&none, &none);
    let changes: Vec<_> = text.lines().filter_map(change).collect();
    if let Ok(configs) = alter_topic(&none, &changes, &view) {
        let _ = TopicConfig::new(&configs, &view);
        let stored = configs
            .iter()
            .map(|(name, value)| (name.as_str(), Some(value.as_str())));
        assert_eq!(
            new_topic(stored, &view).ok(),
            Some(configs.clone()),
            "stored configs"
        );
    }
}

/// `key=value` sets, `key+=value` appends, `key-=value` subtracts, `key` deletes.
fn change(line: &str) -> Option<Alteration<'_>> {
    let Some((name, value)) = line.split_once('=') else {
        return Some(Alteration {
            name: line,
            op: AlterOp::Delete,
            value: None,
        });
    };
    let (name, op) = match name.as_bytes().last()? {
        b'+' => (&name[..name.len() - 1], AlterOp::Append),
        b'-' => (&name[..name.len() - 1], AlterOp::Subtract),
        _ => (name, AlterOp::Set),
    };
    Some(Alteration {
        name,
        op,
        value: Some(value),
    })
}
