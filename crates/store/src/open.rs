//! Opening a store by its URL.

use std::fmt;

/// Why a store cannot be opened; says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The URL or the settings that go with it are wrong.
    Settings {
        /// What is wrong and what to set.
        what: String,
    },
    /// The directory cannot be used.
    Directory {
        /// Its path.
        path: String,
        /// True if it was to be written to.
        writing: bool,
        /// What the system says.
        cause: String,
    },
    /// Another process uses the directory.
    Locked {
        /// Its path.
        path: String,
        /// Who holds it.
        holder: String,
    },
    /// Something that should not fail has failed.
    Failed {
        /// What.
        what: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings { what } => f.write_str(what),
            Self::Directory {
                path,
                writing: true,
                cause,
            } => write!(
                f,
                "cannot write to data directory `{path}`: {cause}; make it writable for this \
                 user or name another one with `--data file:DIR`"
            ),
            Self::Directory {
                path,
                writing: false,
                cause,
            } => {
                write!(f, "cannot read data directory `{path}`: {cause}")
            }
            Self::Locked { path, holder } => write!(
                f,
                "data directory `{path}` is in use by {holder}; stop that broker or name another \
                 directory with `--data file:DIR`"
            ),
            Self::Failed { what } => write!(f, "cannot open the store: {what}"),
        }
    }
}

impl std::error::Error for OpenError {}
