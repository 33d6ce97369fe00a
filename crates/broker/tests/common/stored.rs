//! A broker that starts as the binary's does, and can start again over its store.

use std::sync::Arc;

use tidemill_broker::{Broker, BrokerOptions, config::BrokerConfig};
use tidemill_cluster::{StartOptions, format::BrokerRegistration};
use tidemill_log::LogLimits;
use tidemill_runtime::Runtime;
use tidemill_store::{
    Memory, Store, StoreOptions,
    testing::{FaultPlan, FaultyBackend},
};
use tidemill_wire::ids::NodeId;

use super::{CLUSTER, Harness, NOW_MS};

pub fn empty() -> (Runtime, FaultyBackend) {
    let runtime = Runtime::simulated(1, NOW_MS);
    let memory = Memory::new(runtime.clock.clone());
    let backend = FaultyBackend::new(Arc::new(memory), runtime.clone(), 1, FaultPlan::none());
    (runtime, backend)
}

/// A broker over an empty store.
pub async fn start_with(config: BrokerConfig) -> Harness {
    let (runtime, backend) = empty();
    open(runtime, backend, config).await
}

/// Another broker over the same store; the one before is sealed off.
pub async fn restart_with(before: &Harness, config: BrokerConfig) -> Harness {
    open(before.runtime.clone(), before.backend.clone(), config).await
}

async fn open(runtime: Runtime, backend: FaultyBackend, config: BrokerConfig) -> Harness {
    let below = Arc::new(backend.clone());
    let store = Store::new(below, runtime, StoreOptions::default());
    open_store(store, backend, config, LogLimits::local()).await
}

/// A broker over a store above `backend`.
pub async fn open_store(
    store: Store,
    backend: FaultyBackend,
    config: BrokerConfig,
    limits: LogLimits,
) -> Harness {
    let runtime = store.runtime().clone();
    let registration = BrokerRegistration::new(NodeId(1), runtime.clock.now_ms());
    let mut options = StartOptions::new(store, registration, limits);
    options.cluster_id = Some(CLUSTER);
    let config = Arc::new(config);
    let settings = Arc::clone(&config);
    options.settings = Arc::new(move |image, topic| settings.topic_in(image, topic).partition());
    let started = tidemill_cluster::start(options).await.expect("it starts");
    let broker = Broker::new(BrokerOptions {
        cluster: started.cluster.clone(),
        log: started.log.clone(),
        runtime: runtime.clone(),
        config,
    });
    Harness {
        runtime,
        backend,
        cluster: started.cluster,
        log: started.log,
        broker,
    }
}
