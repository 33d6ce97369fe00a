//! Where settings come from: flag over environment over file over default.

use std::{fs, io, path::Path};

use tidemill_broker::config::{BrokerConfig, ConfigError, Host, Layer, Settings, memory_bytes};

use crate::cli::Serve;

/// Read if it exists and `--config` names no other.
const DEFAULT_FILE: &str = "tidemill.toml";
/// Largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Variables with our prefix that are no settings: the commands' and the tests'.
const NO_SETTINGS: &[&str] = &[
    "TIDEMILL_BOOTSTRAP",
    "TIDEMILL_LOG",
    "TIDEMILL_SEED",
    "TIDEMILL_TEST_",
];

/// Why the settings cannot be used.
#[derive(Debug)]
pub enum SettingsError {
    /// The file cannot be read.
    File {
        /// Its path.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// A setting is unknown or has a bad value.
    Config(ConfigError),
}

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path, source } => write!(f, "cannot read `{path}`: {source}"),
            Self::Config(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SettingsError {}

impl From<ConfigError> for SettingsError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// The settings in force.
///
/// # Errors
/// [`SettingsError`], which names the setting, its value and where it stands.
pub fn load(serve: &Serve) -> Result<BrokerConfig, SettingsError> {
    let mut flags = Layer::flags(serve.set.iter().map(String::as_str))?;
    if let Some(listen) = &serve.listen {
        flags.set("listeners", &format!("PLAINTEXT://{listen}"), "--listen");
    }
    if let Some(data) = &serve.data.data {
        flags.set("tidemill.data", data, "--data");
    }
    let is_setting = |name: &str| !NO_SETTINGS.iter().any(|other| name.starts_with(other));
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| is_setting(name))?;
        Some((name, value.to_string_lossy().into_owned()))
    });
    let environment = Layer::environment(variables)?;
    let host = Host {
        memory_bytes: memory_bytes(Path::new("/")),
    };
    let settings = Settings::new(&[flags, environment, file(serve)?], host)?;
    Ok(BrokerConfig::new(settings)?)
}

fn file(serve: &Serve) -> Result<Layer, SettingsError> {
    let default = Path::new(DEFAULT_FILE);
    let path = match &serve.config {
        Some(path) => path.as_path(),
        None if default.exists() => default,
        None => return Ok(Layer::default()),
    };
    let shown = path.display().to_string();
    let failed = |source| SettingsError::File {
        path: shown.clone(),
        source,
    };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > FILE_BYTES_MAX {
        let text = format!("{size} bytes, more than {FILE_BYTES_MAX}");
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, text)));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    Ok(Layer::toml(&text, &shown)?)
}
