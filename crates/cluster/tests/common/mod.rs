//! Shared by the tests.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tidemill_cluster::{
    Change, Cluster, ClusterOptions,
    format::{BrokerLevels, BrokerRegistration, ClosedWal, Listener, NewTopic},
};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Memory, PutId, Store, StoreOptions,
    testing::{FaultPlan, FaultyBackend},
};
use tidemill_wire::ids::{LeaderEpoch, NodeId, TopicId, WriterId};

pub const CLUSTER: [u8; 16] = [0xc1; 16];

pub fn topic_id(n: u64) -> TopicId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&n.to_be_bytes());
    id[15] = 1;
    TopicId(id)
}

pub fn registration(node: i32) -> BrokerRegistration {
    BrokerRegistration {
        node: NodeId(node),
        listeners: vec![Listener {
            name: "PLAINTEXT".to_owned(),
            host: "localhost".to_owned(),
            port: 9092,
        }],
        rack: None,
        levels: BrokerLevels {
            read_min: 1,
            read_max: 1,
            write_max: 1,
        },
        started_ms: 1_700_000_000_000,
    }
}

pub fn new_topic(n: u64, name: &str, partitions: u32, leader: WriterId) -> NewTopic {
    NewTopic {
        id: topic_id(n),
        name: name.to_owned(),
        partitions,
        replication_factor: 3,
        configs: BTreeMap::from([("retention.ms".to_owned(), "1000".to_owned())]),
        leader,
        epoch: LeaderEpoch(0),
        first_wal: 1,
    }
}

pub fn sealed(writer: WriterId) -> Change {
    Change::WriterSealed {
        writer,
        closed: ClosedWal {
            checkpoint: 4,
            checkpoint_put_id: PutId([9; 16]),
            last: Some(17),
        },
    }
}

/// A simulated runtime; to be called within a paused Tokio runtime.
pub fn runtime(seed: u64) -> Runtime {
    Runtime::simulated(seed, 1_700_000_000_000)
}

/// Memory with faults by `plan`.
pub fn faulty(seed: u64, plan: FaultPlan) -> FaultyBackend {
    let runtime = runtime(seed);
    let memory = Memory::new(runtime.clock.clone());
    FaultyBackend::new(Arc::new(memory), runtime, seed, plan)
}

pub fn store(backend: &FaultyBackend, runtime: &Runtime) -> Store {
    let options = StoreOptions {
        request_timeout: Duration::from_secs(5),
        ..StoreOptions::default()
    };
    Store::new(Arc::new(backend.clone()), runtime.clone(), options)
}

pub async fn open(backend: &FaultyBackend, seed: u64, snapshot_every: u64) -> Arc<Cluster> {
    let runtime = runtime(seed);
    let options = ClusterOptions {
        store: store(backend, &runtime),
        runtime,
        cluster_id: CLUSTER,
        snapshot_every,
    };
    Cluster::open(options)
        .await
        .expect("the metadata log is readable")
}
