//! Definitions of settings, and finding them by name.

use super::error::ConfigError;
use super::inert::INERT;
use super::ours::OURS;
use super::topic_defs::TOPIC;
use super::value::{Check, ConfigType, Value, parse};

/// What a setting does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A topic's.
    Topic,
    /// The broker's, fixed at its start.
    Fixed,
    /// The broker's, changeable while it runs.
    Live,
    /// One of Kafka's without meaning here.
    Inert,
    /// One of Kafka's without meaning here that Kafka does not show either.
    Hidden,
}

/// A broker setting that gives a topic's its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The broker setting's name.
    pub name: &'static str,
    /// One of its units in the topic setting's (3,600,000 milliseconds in an hour).
    pub factor: i64,
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfigDef {
    /// Kafka's name where Kafka has one.
    pub name: &'static str,
    /// Its type.
    pub kind: ConfigType,
    /// Its default; none if there is none, or if it is worked out at start.
    pub default: Option<&'static str>,
    /// What a value must be beyond its type.
    pub check: Check,
    /// What it is for, one or two sentences.
    pub doc: &'static str,
    /// For a topic's: the broker settings that give its default, the first that is set wins.
    pub synonyms: &'static [Synonym],
    /// What it does.
    pub role: Role,
}

const INERT_DOC: &str = "A setting of Apache Kafka that has no meaning here: accepted, \
     without effect.";

impl ConfigDef {
    pub(super) const fn inert(
        name: &'static str,
        kind: ConfigType,
        default: Option<&'static str>,
    ) -> Self {
        let (check, doc, synonyms, role) = (Check::Any, INERT_DOC, &[], Role::Inert);
        Self {
            name,
            kind,
            default,
            check,
            doc,
            synonyms,
            role,
        }
    }

    pub(super) const fn hidden(
        name: &'static str,
        kind: ConfigType,
        default: Option<&'static str>,
    ) -> Self {
        Self {
            role: Role::Hidden,
            ..Self::inert(name, kind, default)
        }
    }

    /// Whether its value is a secret.
    #[must_use]
    pub const fn is_sensitive(&self) -> bool {
        matches!(self.kind, ConfigType::Password)
    }

    /// Parses a value of it.
    ///
    /// # Errors
    /// It is not of the type, or not what it must be; the error names both (but no secret).
    pub fn parse(&self, text: &str) -> Result<Value, ConfigError> {
        parse(self.kind, self.check, text).map_err(|reason| {
            let value = if self.is_sensitive() {
                None
            } else {
                Some(text.to_owned())
            };
            ConfigError::invalid(self.name, value, reason)
        })
    }
}

/// All settings of topics, by name.
#[must_use]
pub const fn topic_defs() -> &'static [ConfigDef] {
    TOPIC
}

/// All settings of the broker: those with a meaning, then Kafka's without.
pub fn broker_defs() -> impl Iterator<Item = &'static ConfigDef> {
    OURS.iter().chain(INERT)
}

/// A topic's setting.
#[must_use]
pub fn topic_def(name: &str) -> Option<&'static ConfigDef> {
    TOPIC.iter().find(|def| def.name == name)
}

/// A broker's setting.
#[must_use]
pub fn broker_def(name: &str) -> Option<&'static ConfigDef> {
    broker_defs().find(|def| def.name == name)
}

/// The known name nearest to an unknown one, if one is near.
pub(super) fn nearest(name: &str, broker: bool) -> Option<&'static str> {
    /// Longer texts are no mistyped names, and comparing costs the product of the lengths.
    const LENGTH_MAX: usize = 100;
    if name.len() > LENGTH_MAX {
        return None;
    }
    let topic = if broker { &[][..] } else { TOPIC };
    let known = topic.iter().chain(broker_defs().filter(|_| broker));
    let bound = (name.len() / 4).clamp(1, 5);
    known
        .map(|def| (distance(name, def.name), def.name))
        .filter(|(distance, _)| *distance <= bound)
        .min()
        .map(|(_, name)| name)
}

/// Edits (insert, delete, replace) between two texts.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
