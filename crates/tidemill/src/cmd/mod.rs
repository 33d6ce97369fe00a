//! The commands that talk to a broker, or look at stored objects.

pub mod consume;
pub mod fsck;
pub mod group;
pub mod inspect;
pub mod offsets;
pub mod produce;
pub mod stored;
pub mod topic;

use tidemill_client::{Client, ClientError, Options};
use tidemill_runtime::Runtime;
use tidemill_wire::errors::ErrorCode;

use crate::cli::Bootstrap;

/// Why a command failed, in words for the person at the terminal.
#[derive(Debug)]
pub struct CommandError(pub String);

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CommandError {}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        let hint = match error {
            ClientError::TimedOut => {
                "; a broker whose store does not answer is silent, see its log"
            }
            _ => "",
        };
        Self(format!("{error}{hint}"))
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Connects to the broker named on the command line.
pub async fn connect(to: &Bootstrap, runtime: &Runtime) -> Result<Client, CommandError> {
    let options = Options {
        client_id: "tidemill-cli".to_owned(),
        request_timeout: std::time::Duration::from_secs(to.timeout),
        ..Options::default()
    };
    Ok(Client::open(&to.broker, options, runtime.clone()).await?)
}

/// An error unless the broker's code is 0.
pub fn check(what: &str, code: ErrorCode, message: Option<&str>) -> Result<(), CommandError> {
    if code == ErrorCode(0) {
        return Ok(());
    }
    let said = message
        .map(|message| format!(": {message}"))
        .unwrap_or_default();
    Err(CommandError(format!("`{what}`: {code}{said}")))
}

/// `key=value` pairs of `--config`.
pub fn pairs(configs: &[String]) -> Result<Vec<(String, String)>, CommandError> {
    let split = |pair: &String| {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| CommandError(format!("`{pair}` is not of the form KEY=VALUE")))?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    configs.iter().map(split).collect()
}
