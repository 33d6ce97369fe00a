//! Why a measurement failed.

use std::{fmt, io};

use tidemill_client::ClientError;
use tidemill_runtime::TaskPanic;
use tidemill_wire::errors::ErrorCode;

/// Why a measurement failed. Nothing is measured around a failure: the run ends.
#[derive(Debug)]
pub enum BenchError {
    /// A request got no usable answer.
    Client(ClientError),
    /// The broker refused.
    Refused {
        /// What was asked.
        what: String,
        /// The broker's error.
        code: ErrorCode,
    },
    /// A file, a socket or a child process.
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// Anything else, in words.
    Failed(String),
}

impl BenchError {
    /// Names what was tried when the system refused.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// An error unless `code` is 0.
    ///
    /// # Errors
    /// [`BenchError::Refused`]
    pub fn check(what: &str, code: ErrorCode) -> Result<(), Self> {
        if code == ErrorCode::NONE {
            return Ok(());
        }
        Err(Self::Refused {
            what: what.to_owned(),
            code,
        })
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Refused { what, code } => write!(f, "{what}: {code}"),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<ClientError> for BenchError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<TaskPanic> for BenchError {
    fn from(panic: TaskPanic) -> Self {
        Self::Failed(panic.to_string())
    }
}
