//! A broker in process over a memory store on simulated time, and a raw client.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod admin;
pub mod stored;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tidemill_broker::{Broker, BrokerOptions, config::BrokerConfig, net::Advertised};
use tidemill_cluster::{Cluster, ClusterOptions, SNAPSHOT_EVERY, format::BrokerRegistration};
use tidemill_log::{Log, LogLimits, LogOptions, recover::Recovered};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Memory, NumberedLog, Store, StoreOptions,
    testing::{FaultPlan, FaultyBackend},
};
use tidemill_wire::{
    ErrorCode, Records, Request, Str,
    batch::{BatchBuilder, Compression, NewRecord},
    frame,
    ids::{NodeId, TopicId},
    messages::{
        create_topics::{CreatableTopic, CreateTopicsRequest},
        fetch::{FetchPartition, FetchRequest, FetchTopic, PartitionData},
        produce::{
            PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
        },
    },
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

pub const CLUSTER: [u8; 16] = [0xc1; 16];
pub const NOW_MS: i64 = 1_700_000_000_000;

pub struct Harness {
    pub runtime: Runtime,
    pub backend: FaultyBackend,
    pub cluster: Arc<Cluster>,
    pub log: Arc<Log>,
    pub broker: Arc<Broker>,
}

pub async fn start() -> Harness {
    start_on(Runtime::simulated(1, NOW_MS)).await
}

pub async fn start_on(runtime: Runtime) -> Harness {
    start_with(runtime, BrokerConfig::default()).await
}

pub async fn start_with(runtime: Runtime, config: BrokerConfig) -> Harness {
    let memory = Memory::new(runtime.clock.clone());
    let backend = FaultyBackend::new(Arc::new(memory), runtime.clone(), 1, FaultPlan::none());
    let store = Store::new(
        Arc::new(backend.clone()),
        runtime.clone(),
        StoreOptions::default(),
    );
    let options = ClusterOptions {
        store: store.clone(),
        runtime: runtime.clone(),
        cluster_id: CLUSTER,
        snapshot_every: SNAPSHOT_EVERY,
    };
    let cluster = Cluster::open(options).await.expect("an empty metadata log");
    let registration = BrokerRegistration::new(NodeId(1), NOW_MS);
    let writer = cluster
        .register(registration, None)
        .await
        .expect("registered");
    let options = LogOptions {
        writer,
        cluster_id: CLUSTER,
        store,
        runtime: runtime.clone(),
        limits: LogLimits::local(),
        exclusive: false,
    };
    let objects = NumberedLog::new(
        options.store.clone(),
        tidemill_log::keys::wal_prefix(writer),
    );
    tidemill_log::wal::start(&runtime, &objects, writer, CLUSTER, None)
        .await
        .expect("object 0");
    let log = Log::open(options, Recovered::default());
    let broker = Broker::new(BrokerOptions {
        cluster: cluster.clone(),
        log: log.clone(),
        runtime: runtime.clone(),
        config: Arc::new(config),
    });
    Harness {
        runtime,
        backend,
        cluster,
        log,
        broker,
    }
}

impl Harness {
    pub fn connect(&self) -> Client {
        self.connect_to("127.0.0.1", 9092)
    }

    /// By the listener that has this address for clients.
    pub fn connect_to(&self, host: &str, port: u16) -> Client {
        let (client, server) = tokio::io::duplex(1 << 20);
        let advertised = Advertised {
            host: host.to_owned(),
            port,
        };
        self.broker.serve_stream(server, advertised);
        Client {
            stream: client,
            next: 1,
            id: "test",
        }
    }

    pub async fn topic(&self, name: &str, partitions: i32) -> TopicId {
        let mut client = self.connect();
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: Str::from(name.to_owned()),
                num_partitions: partitions,
                replication_factor: 1,
                ..CreatableTopic::default()
            }],
            ..CreateTopicsRequest::default()
        };
        let response = client.call(7, &request).await;
        assert_eq!(response.topics[0].error_code, ErrorCode::NONE);
        response.topics[0].topic_id
    }

    pub async fn sleep(&self, duration: Duration) {
        self.runtime.clock.sleep(duration).await;
    }
}

pub struct Client {
    pub stream: DuplexStream,
    pub next: i32,
    /// As the client calls itself.
    pub id: &'static str,
}

impl Client {
    /// Sends without waiting; the correlation id.
    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let id = self.next;
        self.next += 1;
        let client_id = Str::from(self.id);
        let frame = frame::encode_request(version, id, Some(&client_id), request);
        let bytes = frame.expect("encodable").to_bytes();
        self.stream.write_all(&bytes).await.expect("sent");
        id
    }

    /// The next frame; `None` if the broker has closed.
    pub async fn frame(&mut self) -> Option<Bytes> {
        let size = self.stream.read_u32().await.ok()?;
        let mut body = vec![0; size as usize];
        self.stream.read_exact(&mut body).await.ok()?;
        Some(Bytes::from(body))
    }

    pub async fn receive<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        let frame = self.frame().await.expect("an answer");
        frame::decode_response::<R>(frame, version).expect("its layout")
    }

    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let sent = self.send(version, request).await;
        let (id, response) = self.receive::<R>(version).await;
        assert_eq!(id, sent);
        response
    }

    /// Sends raw bytes as a frame.
    pub async fn raw(&mut self, body: &[u8]) {
        let size = u32::try_from(body.len()).expect("small");
        self.stream
            .write_all(&size.to_be_bytes())
            .await
            .expect("sent");
        self.stream.write_all(body).await.expect("sent");
    }

    /// True if the broker closes for what was sent: long before it would for silence.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client has no clock of its own; the broker's and Tokio's stand still together"
    )]
    pub async fn closed(&mut self) -> bool {
        let mut rest = [0; 16];
        let read = self.stream.read(&mut rest);
        let read = tokio::time::timeout(Duration::from_secs(60), read).await;
        matches!(read, Ok(Ok(0)))
    }

    pub async fn produce(
        &mut self,
        topic: &str,
        index: i32,
        batch: Bytes,
    ) -> PartitionProduceResponse {
        let mut response = self
            .call(9, &produce_request(topic, &[(index, batch)]))
            .await;
        response.responses.remove(0).partition_responses.remove(0)
    }

    /// One partition fetched at once, as it is.
    pub async fn fetch(&mut self, topic: &str, index: i32, offset: i64) -> PartitionData {
        let mut response = self
            .call(11, &fetch_request(topic, &[(index, offset)]))
            .await;
        assert_eq!(response.error_code, ErrorCode::NONE);
        response.responses.remove(0).partitions.remove(0)
    }
}

pub fn record(value: &str, timestamp: i64) -> NewRecord<'_> {
    NewRecord {
        timestamp,
        key: None,
        value: Some(value.as_bytes()),
        headers: &[],
    }
}

pub fn batch(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None);
    for value in values {
        builder.push(&record(value, NOW_MS)).expect("small");
    }
    builder.build().expect("a batch")
}

pub fn produce_request(topic: &str, parts: &[(i32, Bytes)]) -> ProduceRequest {
    let parts = parts.iter().map(|(index, batch)| PartitionProduceData {
        index: *index,
        records: Some(Records::from(batch.clone())),
    });
    ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: Str::from(topic.to_owned()),
            partition_data: parts.collect(),
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

pub fn fetch_request(topic: &str, parts: &[(i32, i64)]) -> FetchRequest {
    let parts = parts
        .iter()
        .map(|(partition, fetch_offset)| FetchPartition {
            partition: *partition,
            fetch_offset: *fetch_offset,
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        });
    FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 50 << 20,
        topics: vec![FetchTopic {
            topic: Str::from(topic.to_owned()),
            partitions: parts.collect(),
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

/// The values of all records in a partition's data.
pub fn values(data: &PartitionData) -> Vec<String> {
    let records = data.records.as_ref().expect("never null (K80)").to_bytes();
    let mut out = Vec::new();
    for batch in tidemill_wire::batch::BatchIter::new(records) {
        let batch = batch.expect("a whole batch");
        let records = tidemill_wire::batch::Records::open(&batch.bytes, 1 << 20);
        let records = records.expect("readable");
        for record in records {
            let record = record.expect("a record");
            let value = record.value.expect("a value");
            out.push(String::from_utf8(value.to_vec()).expect("text"));
        }
    }
    out
}
