//! Opening a store by its URL.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

use tidemill_runtime::Runtime;

use crate::{
    backend::Backend,
    backends::{Directory, DirectoryOptions, LocalSync, Memory, remote},
};

/// What goes with a URL.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// `local.sync`; directories only.
    pub sync: LocalSync,
    /// Nothing will be written; a directory then may stand beside a live broker.
    pub read_only: bool,
    /// The environment: `AWS_*`, `GOOGLE_*` and `AZURE_*` are read from it and from nowhere else.
    pub environment: BTreeMap<String, String>,
}

/// Opens `file:DIR`, `memory:`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or
/// `az://CONTAINER/PREFIX`. A directory is locked, and created if need be; no request is made to a
/// bucket, and a bucket is never created.
///
/// # Errors
/// [`OpenError`], whose text says what to set.
pub async fn open(
    url: &str,
    options: &OpenOptions,
    runtime: Runtime,
) -> Result<Arc<dyn Backend>, OpenError> {
    if let Some(dir) = url.strip_prefix("file:") {
        // `file:///data` is `/data`; a host in between makes no sense.
        let dir = match dir.strip_prefix("//") {
            Some(absolute) if absolute.starts_with('/') => absolute,
            Some(_) => return Err(unusable(url)),
            None => dir,
        };
        if dir.is_empty() {
            return Err(unusable(url));
        }
        let how = DirectoryOptions {
            sync: options.sync,
            read_only: options.read_only,
        };
        let directory = Directory::open(Path::new(dir), how, runtime).await?;
        return Ok(Arc::new(directory));
    }
    if url == "memory:" {
        return Ok(Arc::new(Memory::new(runtime.clock)));
    }
    match remote::open(url, &options.environment) {
        Some(opened) => Ok(Arc::new(opened?)),
        None => Err(unusable(url)),
    }
}

fn unusable(url: &str) -> OpenError {
    let what = format!(
        "`{url}` names no store; use `file:DIR`, `memory:`, `s3://BUCKET/PREFIX`, \
         `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`"
    );
    OpenError::Settings { what }
}

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
