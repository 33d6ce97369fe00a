//! Changes of topic and broker configurations, as pure functions on what is stored (K62, K89, K90).

use std::collections::BTreeSet;
use std::fmt;

use tidemill_cluster::image::Configs;
use tidemill_wire::ErrorCode;

use super::def::{ConfigDef, broker_def, nearest, topic_def};
use super::dynamic::Scope;
use super::error::ConfigError;
use super::settings::View;
use super::topic::{in_force, inherited};
use super::value::{ConfigType, Value};
use crate::errors::Refusal;

/// What IncrementalAlterConfigs does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlterOp {
    /// Sets it.
    Set,
    /// Takes it back to its default.
    Delete,
    /// Adds to a list.
    Append,
    /// Removes from a list.
    Subtract,
}

impl AlterOp {
    /// The operation of a code on the wire.
    #[must_use]
    pub const fn from_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(Self::Set),
            1 => Some(Self::Delete),
            2 => Some(Self::Append),
            3 => Some(Self::Subtract),
            _ => None,
        }
    }
}

/// A change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alteration<'a> {
    /// The key.
    pub name: &'a str,
    /// What to do.
    pub op: AlterOp,
    /// With what; not for [`AlterOp::Delete`].
    pub value: Option<&'a str>,
}

/// A refused change: nothing of its resource was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterError {
    /// INVALID_CONFIG or INVALID_REQUEST.
    pub code: ErrorCode,
    /// Names key and value.
    pub message: String,
}

impl fmt::Display for AlterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AlterError {}

/// A bad key or value.
impl From<ConfigError> for AlterError {
    fn from(error: ConfigError) -> Self {
        Self {
            code: ErrorCode::INVALID_CONFIG,
            message: error.to_string(),
        }
    }
}

impl From<AlterError> for Refusal {
    fn from(error: AlterError) -> Self {
        Self::new(error.code, error.message)
    }
}

fn bad_request(message: String) -> AlterError {
    AlterError {
        code: ErrorCode::INVALID_REQUEST,
        message,
    }
}

/// The configuration of a topic to be created. A null value is as good as none (K59).
///
/// # Errors
/// INVALID_CONFIG: an unknown key, a bad value, settings that contradict each other.
/// INVALID_REQUEST: a key twice.
pub fn new_topic<'a>(
    configs: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    view: &View<'_>,
) -> Result<Configs, AlterError> {
    let mut stored = Configs::new();
    for (name, value) in configs {
        let def = known_topic(name)?;
        let Some(value) = value else { continue };
        if stored
            .insert(def.name.to_owned(), canonical(def, value)?)
            .is_some()
        {
            return Err(bad_request(format!("`{name}` is given twice")));
        }
    }
    check_topic(&stored, view, MayCompact::No)?;
    Ok(stored)
}

/// The configuration of an internal topic, which may be compacted.
///
/// # Errors
/// As [`new_topic`].
pub(super) fn check_internal_topic(
    configs: &Configs,
    view: &View<'_>,
) -> Result<Configs, AlterError> {
    let mut stored = Configs::new();
    for (name, value) in configs {
        let def = known_topic(name)?;
        stored.insert(name.clone(), canonical(def, value)?);
    }
    check_topic(&stored, view, MayCompact::Yes)?;
    Ok(stored)
}

/// Whether a topic may be compacted: until compaction is served, internal ones only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MayCompact {
    No,
    Yes,
}

/// A topic's configuration after AlterConfigs, which replaces all of it.
///
/// # Errors
/// As [`new_topic`], and INVALID_REQUEST for a null value.
pub fn replace_topic<'a>(
    configs: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    view: &View<'_>,
) -> Result<Configs, AlterError> {
    let configs: Vec<_> = configs.into_iter().collect();
    if let Some((name, _)) = configs.iter().find(|(_, value)| value.is_none()) {
        return Err(bad_request(format!("`{name}` has no value")));
    }
    new_topic(configs, view)
}

/// A topic's configuration after these changes. What is deleted need not be there, nor be known.
///
/// # Errors
/// INVALID_CONFIG: an unknown key, a bad value, APPEND or SUBTRACT on what is no list, settings
/// that contradict each other. INVALID_REQUEST: a key twice, no value.
pub fn alter_topic(
    current: &Configs,
    changes: &[Alteration<'_>],
    view: &View<'_>,
) -> Result<Configs, AlterError> {
    once_each(changes)?;
    let mut stored = current.clone();
    for change in changes {
        if change.op == AlterOp::Delete {
            stored.remove(change.name);
            continue;
        }
        let def = known_topic(change.name)?;
        let value = value_of(change)?;
        let value = match change.op {
            AlterOp::Set => value.to_owned(),
            op => {
                let present = current.get(def.name).and_then(|text| def.parse(text).ok());
                edited(def, present.or_else(|| inherited(def, view)), op, value)?
            }
        };
        stored.insert(def.name.to_owned(), canonical(def, &value)?);
    }
    // An internal topic's other settings may change.
    let compacted = current
        .get("cleanup.policy")
        .is_some_and(|policy| policy.contains("compact"));
    let may_compact = if compacted {
        MayCompact::Yes
    } else {
        MayCompact::No
    };
    check_topic(&stored, view, may_compact)?;
    Ok(stored)
}

/// The dynamic configuration of a broker (`Scope::One`), or of all brokers, after these changes.
///
/// # Errors
/// INVALID_REQUEST: an unknown key, one that cannot be changed while the broker runs, a bad
/// value, a key twice, no value. INVALID_CONFIG: APPEND or SUBTRACT on what is no list.
pub fn alter_broker(
    resource: Scope,
    current: &Configs,
    changes: &[Alteration<'_>],
    view: &View<'_>,
) -> Result<Configs, AlterError> {
    once_each(changes)?;
    let mut stored = current.clone();
    for change in changes {
        if change.op == AlterOp::Delete && broker_def(change.name).is_none() {
            stored.remove(change.name);
            continue;
        }
        let def = live(change.name, resource)?;
        if change.op == AlterOp::Delete {
            stored.remove(change.name);
            continue;
        }
        let value = value_of(change)?;
        let value = match change.op {
            AlterOp::Set => value.to_owned(),
            op => {
                let present = current.get(def.name).map(String::as_str);
                let present = present.or_else(|| view.text(def));
                edited(
                    def,
                    present.and_then(|text| def.parse(text).ok()),
                    op,
                    value,
                )?
            }
        };
        stored.insert(def.name.to_owned(), live_value(def, &value)?);
    }
    Ok(stored)
}

/// The dynamic configuration of a broker, or of all brokers, after AlterConfigs.
///
/// # Errors
/// As [`alter_broker`].
pub fn replace_broker<'a>(
    resource: Scope,
    configs: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Configs, AlterError> {
    let mut stored = Configs::new();
    for (name, value) in configs {
        let def = live(name, resource)?;
        let value = value.ok_or_else(|| bad_request(format!("`{name}` has no value")))?;
        if stored
            .insert(def.name.to_owned(), live_value(def, value)?)
            .is_some()
        {
            return Err(bad_request(format!("`{name}` is given twice")));
        }
    }
    Ok(stored)
}

fn once_each(changes: &[Alteration<'_>]) -> Result<(), AlterError> {
    let mut seen = BTreeSet::new();
    match changes.iter().find(|change| !seen.insert(change.name)) {
        Some(twice) => Err(bad_request(format!("`{}` is given twice", twice.name))),
        None => Ok(()),
    }
}

fn value_of<'a>(change: &Alteration<'a>) -> Result<&'a str, AlterError> {
    change
        .value
        .ok_or_else(|| bad_request(format!("`{}` has no value", change.name)))
}

fn known_topic(name: &str) -> Result<&'static ConfigDef, AlterError> {
    topic_def(name).ok_or_else(|| ConfigError::unknown(name, nearest(name, false)).into())
}

fn live(name: &str, resource: Scope) -> Result<&'static ConfigDef, AlterError> {
    let def = broker_def(name)
        .ok_or_else(|| bad_request(ConfigError::unknown(name, nearest(name, true)).to_string()))?;
    match def.scope() {
        Some(scope) if scope >= resource => Ok(def),
        Some(_) => Err(bad_request(format!(
            "`{name}` can be changed for one broker, named by its id, but not for all"
        ))),
        None => Err(bad_request(format!(
            "`{name}` cannot be changed while the broker runs"
        ))),
    }
}

fn canonical(def: &ConfigDef, value: &str) -> Result<String, AlterError> {
    Ok(def.parse(value)?.to_string())
}

/// Kafka refuses a bad value of a broker as a bad request.
fn live_value(def: &ConfigDef, value: &str) -> Result<String, AlterError> {
    let value = def
        .parse(value)
        .map_err(|error| bad_request(error.to_string()))?;
    Ok(value.to_string())
}

/// The text of a list with values added or removed.
fn edited(
    def: &ConfigDef,
    present: Option<Value>,
    op: AlterOp,
    values: &str,
) -> Result<String, AlterError> {
    if def.kind != ConfigType::List {
        let verb = if op == AlterOp::Append {
            "append to"
        } else {
            "subtract from"
        };
        let reason = format!("cannot {verb} what is not a list");
        return Err(ConfigError::invalid(def.name, Some(values.to_owned()), reason).into());
    }
    let mut list = match present {
        Some(Value::List(list)) => list,
        _ => Vec::new(),
    };
    for value in values.split(',').map(str::trim) {
        if op == AlterOp::Subtract {
            list.retain(|present| present != value);
        } else if !list.iter().any(|present| present == value) {
            list.push(value.to_owned());
        }
    }
    Ok(list.join(","))
}

/// What no definition of a single setting can say.
fn check_topic(
    configs: &Configs,
    view: &View<'_>,
    may_compact: MayCompact,
) -> Result<(), AlterError> {
    let value = |name: &str| topic_def(name).and_then(|def| in_force(def, configs, view));
    let refuse = |name: &str, reason: String| {
        let value = configs.get(name).cloned();
        Err(ConfigError::invalid(name, value, reason).into())
    };
    if let Some(Value::List(policies)) = value("cleanup.policy")
        && may_compact == MayCompact::No
        && policies.iter().any(|policy| policy == "compact")
    {
        return refuse("cleanup.policy", "compaction is not served yet".to_owned());
    }
    if let (Some(Value::Number(min)), Some(Value::Number(max))) = (
        value("min.compaction.lag.ms"),
        value("max.compaction.lag.ms"),
    ) && min > max
    {
        let reason = format!("{min} exceeds `max.compaction.lag.ms` = `{max}`");
        return refuse("min.compaction.lag.ms", reason);
    }
    if value("remote.storage.enable") == Some(Value::Boolean(true)) {
        let reason = "every topic is on the object store already".to_owned();
        return refuse("remote.storage.enable", reason);
    }
    Ok(())
}
