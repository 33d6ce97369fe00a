//! Opening stored data to look at it, never to write.

use std::collections::BTreeMap;

use tidemill_runtime::Runtime;
use tidemill_store::{OpenOptions, Store, StoreOptions, open};

use super::CommandError;
use crate::{
    cli::{Data, Serve},
    settings,
};

/// Opens the data that `serve` would use with these flags, environment and configuration file.
///
/// # Errors
/// The settings are wrong, or the data cannot be opened.
pub async fn open_to_read(data: &Data, runtime: &Runtime) -> Result<Store, CommandError> {
    let serve = Serve {
        listen: None,
        data: data.clone(),
        set: Vec::new(),
        config: None,
        print_config: false,
        log_json: false,
    };
    let config = settings::load(&serve).map_err(|error| CommandError(error.to_string()))?;
    let options = OpenOptions {
        sync: config.local_sync,
        read_only: true,
        environment: environment(),
    };
    let opened = open(&config.data_location, &options, runtime.clone()).await;
    let backend = opened.map_err(|error| CommandError(error.to_string()))?;
    Ok(Store::new(
        backend,
        runtime.clone(),
        StoreOptions::default(),
    ))
}

fn environment() -> BTreeMap<String, String> {
    crate::serve::environment()
}
