//! A backend with retry, deadlines and counters.

use std::{sync::Arc, time::Duration};

use tidemill_runtime::Runtime;

use crate::backend::Backend;

/// Limits of retry. All named, all settable.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// One request's deadline.
    pub request_timeout: Duration,
    /// First pause between tries; doubles up to `backoff_max`, with jitter.
    pub backoff_min: Duration,
    /// Longest pause between tries.
    pub backoff_max: Duration,
    /// Total time after which a *read* or listing gives up. Puts on the WAL never give up (R4).
    pub read_deadline: Duration,
}

/// A store as the log uses it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    _backend: Arc<dyn Backend>,
    _runtime: Runtime,
    _options: StoreOptions,
}
