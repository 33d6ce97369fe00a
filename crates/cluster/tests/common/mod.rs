//! Shared by the tests.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use tidemill_cluster::{
    Change, Cluster, ClusterOptions,
    format::{BrokerRegistration, ClosedWal, Listener, NewTopic},
};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Backend, Memory, ObjectMeta, Payload, PutAnswer, PutId, Store, StoreError, StoreOptions,
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
        listeners: vec![Listener {
            name: "PLAINTEXT".to_owned(),
            host: "localhost".to_owned(),
            port: 9092,
        }],
        ..BrokerRegistration::new(NodeId(node), 1_700_000_000_000)
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

/// Memory as if it were a bucket, which any number of brokers reach.
#[derive(Clone, Debug)]
pub struct Bucket(pub Arc<Memory>);

#[async_trait::async_trait]
impl Backend for Bucket {
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        self.0.put_if_absent(key, body).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.0.get(key).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.0.get_range(key, range).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.0.head(key).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.0.delete(key).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        self.0.list(prefix, start_after, limit).await
    }

    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        self.0.copy_if_absent(from, to).await
    }

    fn is_local(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        "a bucket".to_owned()
    }
}
