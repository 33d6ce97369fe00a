//! Where settings come from: flags, environment, file.

use std::collections::BTreeMap;

use super::def::{broker_defs, nearest};
use super::error::ConfigError;

/// What all environment variables of settings begin with.
const ENV_PREFIX: &str = "TIDEMILL_";

/// Variables with that prefix that are no settings: the file's path, and those of tests.
const ENV_OTHERS: &[&str] = &["TIDEMILL_CONFIG", "TIDEMILL_TEST_"];

/// A value and where it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As written.
    pub value: String,
    /// For errors: `--set`, `TIDEMILL_NODE_ID`, a file's path.
    pub origin: String,
}

/// Settings from one source. Neither names nor values are checked yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    entries: BTreeMap<String, Entry>,
}

impl Layer {
    /// All entries by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// Sets a value; the last one of a name counts.
    pub fn set(&mut self, name: &str, value: &str, origin: &str) {
        let entry = Entry {
            value: value.to_owned(),
            origin: origin.to_owned(),
        };
        self.entries.insert(name.to_owned(), entry);
    }

    /// Arguments of `--set`, each `key=value`.
    ///
    /// # Errors
    /// One has no `=` or no key.
    pub fn flags<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Self, ConfigError> {
        let mut layer = Self::default();
        for arg in args {
            let pair = arg
                .split_once('=')
                .filter(|(name, _)| !name.trim().is_empty());
            let Some((name, value)) = pair else {
                let reason = "must be written key=value".to_owned();
                return Err(ConfigError::invalid(arg, None, reason).from("--set"));
            };
            layer.set(name.trim(), value, "--set");
        }
        Ok(layer)
    }

    /// Environment variables: `TIDEMILL_` and the key in capitals, dots as underscores. For keys
    /// that begin with `tidemill.` that word need not be repeated. Others are left out.
    ///
    /// # Errors
    /// A variable with the prefix that is no setting, or two that are the same one.
    pub fn environment(
        vars: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let known: BTreeMap<String, &'static str> = broker_defs()
            .flat_map(|def| {
                let variable = variable_of(def.name);
                let short = def.name.strip_prefix("tidemill.").map(variable_of);
                short
                    .into_iter()
                    .chain([variable])
                    .map(|variable| (variable, def.name))
            })
            .collect();
        let mut layer = Self::default();
        for (variable, value) in vars {
            let other = ENV_OTHERS.iter().any(|other| variable.starts_with(other));
            if other || !variable.starts_with(ENV_PREFIX) {
                continue;
            }
            let Some(name) = known.get(&variable) else {
                let key = variable[ENV_PREFIX.len()..]
                    .to_lowercase()
                    .replace('_', ".");
                let nearest = nearest(&key, true).map(variable_of);
                return Err(
                    ConfigError::unknown(&variable, nearest.as_deref()).from("the environment")
                );
            };
            if let Some(twice) = layer.entries.get(*name) {
                let reason = format!("is set by `{}` too", twice.origin);
                return Err(ConfigError::invalid(name, None, reason).from(&variable));
            }
            layer.set(name, &value, &variable);
        }
        Ok(layer)
    }

    /// The text of a TOML file: keys with dots, quoted or as tables; lists as arrays or as text.
    ///
    /// # Errors
    /// No TOML, or a value that is no setting's: a date, a list of tables.
    pub fn toml(text: &str, path: &str) -> Result<Self, ConfigError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let reason = error.to_string().trim_end().to_owned();
            ConfigError::invalid(path, None, reason)
        })?;
        let mut layer = Self::default();
        layer.read_table("", &table, path)?;
        Ok(layer)
    }

    fn read_table(
        &mut self,
        prefix: &str,
        table: &toml::Table,
        path: &str,
    ) -> Result<(), ConfigError> {
        for (key, value) in table {
            let name = if prefix.is_empty() {
                key.clone()
            } else {
                format!("{prefix}.{key}")
            };
            if let toml::Value::Table(inner) = value {
                self.read_table(&name, inner, path)?;
                continue;
            }
            let text = toml_text(value).ok_or_else(|| {
                let reason = "must be text, a number, a boolean or a list of these".to_owned();
                ConfigError::invalid(&name, None, reason).from(path)
            })?;
            if self.entries.contains_key(&name) {
                let reason = "is set twice".to_owned();
                return Err(ConfigError::invalid(&name, None, reason).from(path));
            }
            self.set(&name, &text, path);
        }
        Ok(())
    }
}

/// The environment variable of a setting.
#[must_use]
pub fn variable_of(name: &str) -> String {
    format!("{ENV_PREFIX}{}", name.to_uppercase().replace('.', "_"))
}

fn toml_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(value) => Some(value.to_string()),
        toml::Value::Array(values) => {
            let nested = values.iter().any(toml::Value::is_array);
            let texts: Option<Vec<_>> = values.iter().map(toml_text).collect();
            texts.filter(|_| !nested).map(|texts| texts.join(","))
        }
        toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}
