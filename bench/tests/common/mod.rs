//! A broker in process, and what it takes to start one.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;

use tidemill_bench::load::Target;
use tidemill_broker::{Broker, BrokerOptions, config::BrokerConfig, net::Advertised};
use tidemill_cluster::{StartOptions, format::BrokerRegistration};
use tidemill_log::LogLimits;
use tidemill_runtime::Runtime;
use tidemill_store::{Backend, Memory, Store, StoreOptions};
use tidemill_wire::ids::NodeId;
use tokio::net::TcpListener;

/// A broker in process.
pub struct Serving {
    /// Where it serves.
    pub target: Target,
    /// Its store.
    pub store: Store,
    _broker: Arc<Broker>,
}

/// Starts one over memory.
pub async fn serve() -> Serving {
    let runtime = Runtime::system();
    let memory = Arc::new(Memory::new(runtime.clock.clone()));
    serve_on(memory, LogLimits::local(), runtime).await
}

/// Starts one over any store.
pub async fn serve_on(backend: Arc<dyn Backend>, limits: LogLimits, runtime: Runtime) -> Serving {
    let store = Store::new(backend, runtime.clone(), StoreOptions::default());
    let registration = BrokerRegistration::new(NodeId(1), runtime.clock.now_ms());
    let options = StartOptions::new(store.clone(), registration, limits);
    let started = tidemill_cluster::start(options)
        .await
        .expect("an empty store");
    let broker = Broker::new(BrokerOptions {
        cluster: started.cluster,
        log: started.log,
        runtime: runtime.clone(),
        config: Arc::new(BrokerConfig::default()),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    let advertised = Advertised {
        host: "127.0.0.1".to_owned(),
        port,
    };
    broker.serve(listener, advertised);
    let target = Target {
        address: format!("127.0.0.1:{port}"),
        runtime,
    };
    Serving {
        target,
        store,
        _broker: broker,
    }
}
