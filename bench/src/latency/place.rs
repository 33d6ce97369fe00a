//! Stores by name: where a broker puts its data and where raw PUTs go.

use std::{path::Path, sync::Arc, time::Duration};

use tidemill_runtime::Runtime;
use tidemill_store::{
    Backend, LocalSync, OpenOptions, open,
    testing::{S3Options, S3Server},
};

use crate::{
    brokers::tidemill::Launch,
    cli,
    commands::s3::serve,
    error::BenchError,
    model::{LatencyModel, Profile, Stalls},
    store::{ModelOptions, ModelStore},
};

/// The bucket of a model served over HTTP.
const BUCKET: &str = "bench";

/// What a store is.
#[derive(Clone, Debug)]
pub enum StoreKind {
    /// A model.
    Model(ModelOptions),
    /// A folder made for the broker.
    Directory(LocalSync),
    /// Any URL; what is written stays.
    Url(String),
}

impl StoreKind {
    /// A model's profile, with its seed.
    pub fn profile(profile: Profile, started: &cli::Started) -> ModelOptions {
        ModelOptions {
            warm_mib: started.warm_mib,
            ..ModelOptions::new(profile, started.store_seed)
        }
    }

    /// A store by its name on the command line.
    pub fn named(name: &str, started: &cli::Started) -> Result<Self, BenchError> {
        if let Some(profile) = Profile::named(name) {
            return Ok(Self::Model(Self::profile(profile, started)));
        }
        match ModelOptions::parse(name) {
            Some(options) => Ok(Self::Model(options?)),
            None => Ok(Self::Url(name.to_owned())),
        }
    }
}

/// The allocator keeps what is given back, so that memory once touched stays so.
const PURGE_DELAY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "-1");

/// Least KiB of bodies that need not be kept where all is read from memory: checkpoints and
/// manifests, which are read again, are smaller.
pub const DISCARD_KIB: usize = 64;

/// The raw side's: what is put is copied while the delay runs, and read by nobody.
fn cold(options: ModelOptions) -> ModelOptions {
    ModelOptions {
        warm_mib: 0,
        discard_kib: DISCARD_KIB,
        ..options
    }
}

/// A model with stalls of a second.
pub fn stalling(options: ModelOptions, chance: f64) -> ModelOptions {
    let stalls = Stalls {
        chance,
        duration: Duration::from_secs(1),
    };
    ModelOptions { stalls, ..options }
}

/// A store in use: how a broker is told of it, and the way of raw PUTs.
pub struct Place {
    /// The broker's part.
    pub launch: Launch,
    /// Raw PUTs.
    pub raw: Arc<dyn Backend>,
    /// The same, if it is a model.
    model: Option<Arc<ModelStore>>,
    // Serves as long as it lives.
    _server: Option<S3Server>,
}

impl Place {
    /// Lets the raw side's next PUT draw the delay of the broker's next WAL object, of which it has
    /// put `wal_objects`.
    pub fn catch_up(&self, wal_objects: u64) {
        if let Some(model) = &self.model {
            model.catch_up(wal_objects);
        }
    }

    /// Opens the raw side, and an S3 server if one is asked for.
    pub async fn new(
        store: &StoreKind,
        started: &cli::Started,
        dir: &Path,
        runtime: &Runtime,
    ) -> Result<Self, BenchError> {
        match store {
            StoreKind::Model(options) if started.http => http(*options, runtime).await,
            StoreKind::Model(options) => {
                let model = Arc::new(ModelStore::new(cold(*options), runtime));
                Ok(Self {
                    launch: Launch {
                        data: options.to_string(),
                        environment: vec![(PURGE_DELAY.0.to_owned(), PURGE_DELAY.1.to_owned())],
                        ..Launch::default()
                    },
                    raw: model.clone(),
                    model: Some(model),
                    _server: None,
                })
            }
            StoreKind::Directory(sync) => {
                let text = match sync {
                    LocalSync::Always => "always",
                    LocalSync::Os => "os",
                };
                let base = format!("file:{}", dir.display());
                let mut place = url(&base, *sync, std::env::vars().collect(), runtime).await?;
                place.launch.sets.push(format!("local.sync={text}"));
                Ok(place)
            }
            StoreKind::Url(base) => {
                // A run's own folder, as a broker adopts no prefix that holds other things.
                let run = format!("run-{:016x}", runtime.entropy.next_u64());
                let base = format!("{}/{run}", base.trim_end_matches('/'));
                let environment = std::env::vars().collect();
                url(&base, LocalSync::Always, environment, runtime).await
            }
        }
    }
}

async fn url(
    base: &str,
    sync: LocalSync,
    environment: std::collections::BTreeMap<String, String>,
    runtime: &Runtime,
) -> Result<Place, BenchError> {
    if base.starts_with("memory:") {
        let what = "a broker's memory is its own; name a model, a directory or a bucket";
        return Err(BenchError::Failed(what.to_owned()));
    }
    let raw = format!("{base}/beside");
    if let Some(path) = raw.strip_prefix("file:") {
        std::fs::create_dir_all(path).map_err(BenchError::io(format!("`{path}`")))?;
    }
    let options = OpenOptions {
        sync,
        environment,
        ..OpenOptions::default()
    };
    let opened = open(&raw, &options, runtime.clone()).await;
    let raw = opened.map_err(|error| BenchError::Failed(error.to_string()))?;
    Ok(Place {
        launch: Launch {
            data: format!("{base}/broker"),
            ..Launch::default()
        },
        raw,
        model: None,
        _server: None,
    })
}

/// The model as an S3 server in this process, for both sides.
async fn http(options: ModelOptions, runtime: &Runtime) -> Result<Place, BenchError> {
    if options.errors > 0.0 || options.lost > 0.0 {
        let what = "faults are the model's behind the store's interface; leave `--http` out";
        return Err(BenchError::Failed(what.to_owned()));
    }
    let model = LatencyModel::new(options.profile, options.stalls, options.seed);
    let server = S3Options {
        buckets: vec![BUCKET.to_owned()],
        ..S3Options::default()
    };
    let server = serve(server, model, runtime).await?;
    let environment: Vec<(String, String)> = server
        .environment()
        .into_iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let base = format!("s3://{BUCKET}");
    let mut place = url(
        &base,
        LocalSync::Always,
        environment.iter().cloned().collect(),
        runtime,
    )
    .await?;
    place.launch.environment = environment;
    place._server = Some(server);
    Ok(place)
}
