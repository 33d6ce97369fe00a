//! Why settings are refused.

use std::fmt;

/// A setting that is refused, with the value and where it comes from as far as known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Its name.
    pub name: String,
    /// Its value; none for a secret, or if the name alone is wrong.
    pub value: Option<String>,
    /// Where it was set: a flag, an environment variable, a file.
    pub origin: Option<String>,
    /// What is wrong.
    pub reason: String,
}

impl ConfigError {
    pub(super) fn invalid(name: &str, value: Option<String>, reason: String) -> Self {
        Self {
            name: name.to_owned(),
            value,
            origin: None,
            reason,
        }
    }

    pub(super) fn unknown(name: &str, nearest: Option<&str>) -> Self {
        let reason = match nearest {
            Some(nearest) => format!("unknown setting, did you mean `{nearest}`?"),
            None => "unknown setting".to_owned(),
        };
        Self::invalid(name, None, reason)
    }

    pub(super) fn from(mut self, origin: &str) -> Self {
        self.origin.get_or_insert_with(|| origin.to_owned());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name)?;
        if let Some(value) = &self.value {
            write!(f, " = `{value}`")?;
        }
        if let Some(origin) = &self.origin {
            write!(f, " from {origin}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ConfigError {}
