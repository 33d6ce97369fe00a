//! Rules that belong to no single API: K4, K5, K8, K19, K21, K24, K26, K28, K29, K34, K56, K87.

mod common;

use bytes::{Bytes, BytesMut};
use common::{Client, admin::text, batch, fetch_request, produce_request, start};
use tidemill_cluster::{Change, format::NewTopic};
use tidemill_wire::{
    ErrorCode, Request,
    batch::{BatchBuilder, BatchHeader, BatchIter, Compression, verify_crc},
    ids::{LeaderEpoch, ProducerEpoch, ProducerId, TopicId},
    messages::{
        api_versions::ApiVersionsRequest,
        describe_cluster::DescribeClusterRequest,
        describe_groups::DescribeGroupsRequest,
        fetch::FetchRequest,
        find_coordinator::FindCoordinatorRequest,
        heartbeat::HeartbeatRequest,
        init_producer_id::InitProducerIdRequest,
        join_group::{JoinGroupRequest, JoinGroupRequestProtocol},
        leave_group::LeaveGroupRequest,
        list_groups::ListGroupsRequest,
        list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic},
        metadata::MetadataRequest,
        offset_commit::{
            OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
        },
        offset_fetch::{OffsetFetchRequest, OffsetFetchRequestTopic},
        offset_for_leader_epoch::{
            OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
        },
        produce::ProduceRequest,
        sync_group::{SyncGroupRequest, SyncGroupRequestAssignment},
    },
};

/// Where a batch's CRC lies, and from where it counts.
const CRC: std::ops::Range<usize> = 17..21;

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(u32::MAX, byte)
}

/// The batch with other bytes at `at`, and the CRC that goes with them.
fn patched(batch: &Bytes, at: usize, bytes: &[u8]) -> Bytes {
    let mut batch = BytesMut::from(&batch[..]);
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c(&batch[CRC.end..]);
    batch[CRC].copy_from_slice(&crc.to_be_bytes());
    batch.freeze()
}

fn sequenced(producer: i64, epoch: i16, sequence: i32) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.producer(ProducerId(producer), ProducerEpoch(epoch), sequence);
    let record = common::record("v", common::NOW_MS);
    builder.push(&record).expect("small");
    builder.build().expect("a batch")
}

async fn ranges(client: &mut Client, version: i16) -> Vec<(i16, i16, i16)> {
    let request = ApiVersionsRequest {
        client_software_name: text("test"),
        client_software_version: text("1"),
        ..ApiVersionsRequest::default()
    };
    let response = client.call(version, &request).await;
    let hidden = |feature: &&tidemill_wire::messages::api_versions::SupportedFeatureKey| {
        feature.min_version == 0
    };
    let hidden = response.supported_features.iter().filter(hidden).count();
    assert!(version >= 4 || hidden == 0, "K4: older clients fail on it");
    let keys = response.api_keys.iter();
    keys.map(|key| (key.api_key, key.min_version, key.max_version))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn k4_k5_old_clients_find_the_versions_that_they_probe_for() {
    let h = start().await;
    for asked in 0..=5 {
        // The first request of a connection.
        let ranges = ranges(&mut h.connect(), asked).await;
        // What librdkafka before 2.11.1 takes a feature from: key, versions.
        let probes: [(i16, &[i16]); 7] = [
            (0, &[0, 1, 2, 3, 7]),
            (1, &[4, 10]),
            (2, &[1]),
            (3, &[0, 1]),
            (10, &[0]),
            (11, &[0]),
            (22, &[0]),
        ];
        for (key, versions) in probes {
            let range = ranges.iter().find(|(found, _, _)| *found == key);
            let (_, min, max) = range.expect("advertised");
            for version in versions {
                assert!(
                    (min..=max).contains(&version),
                    "key {key} version {version}"
                );
            }
        }
        assert!(ranges.iter().all(|(key, _, _)| *key != 17), "no SASL yet");
    }
}

/// The body of an answer, behind the correlation id and, in a flexible one, its tags.
async fn body<R: Request>(client: &mut Client, version: i16, request: &R, header: usize) -> Bytes {
    client.send(version, request).await;
    client.frame().await.expect("an answer").slice(4 + header..)
}

#[tokio::test(start_paused = true)]
async fn k8_throttle_times_stand_where_each_version_has_them() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let zero = [0; 4];
    // First, in most.
    let fetch = FetchRequest {
        max_wait_ms: 0,
        ..fetch_request("t", &[(0, 0)])
    };
    for (version, tags) in [(4, 0), (11, 0), (12, 1)] {
        assert_eq!(body(&mut client, version, &fetch, tags).await[..4], zero);
    }
    let metadata = MetadataRequest::default();
    assert_eq!(body(&mut client, 3, &metadata, 0).await[..4], zero);
    // Version 2 has none: the brokers come first.
    assert_eq!(body(&mut client, 2, &metadata, 0).await[..4], [0, 0, 0, 1]);
    // Last, in Produce and ApiVersions.
    let produce = produce_request("t", &[(0, batch(&["a"]))]);
    let answer = body(&mut client, 3, &produce, 0).await;
    assert_eq!(answer[..4], [0, 0, 0, 1], "the topics come first");
    assert_eq!(answer[answer.len() - 4..], zero);
    let versions = ApiVersionsRequest::default();
    let (without, with) = (
        body(&mut client, 0, &versions, 0).await,
        body(&mut client, 1, &versions, 0).await,
    );
    assert_eq!(with, [&without[..], &zero].concat());
}

#[tokio::test(start_paused = true)]
async fn k19_a_batch_without_its_greatest_timestamp_is_set_right() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    for codec in [Compression::None, Compression::Gzip, Compression::Lz4] {
        let mut builder = BatchBuilder::new(codec);
        for time in [5, 900, 7] {
            let record = common::record("v", common::NOW_MS + time);
            builder.push(&record).expect("small");
        }
        // As sarama sends it.
        let unset = patched(
            &builder.build().expect("a batch"),
            35,
            &(-1_i64).to_be_bytes(),
        );
        let produced = client.produce("t", 0, unset).await;
        assert_eq!(produced.error_code, ErrorCode::NONE);
        let data = client.fetch("t", 0, produced.base_offset).await;
        let stored = data.records.expect("never null").to_bytes();
        let header = BatchHeader::parse(&stored).expect("a batch");
        assert_eq!(header.max_timestamp, common::NOW_MS + 900);
        assert_eq!(verify_crc(&stored), Ok(true));
    }
}

#[tokio::test(start_paused = true)]
async fn k24_offsets_are_dense_whatever_is_refused_between() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut clients = [h.connect(), h.connect(), h.connect()];
    let broken = patched(&batch(&["x"]), 57, &9_i32.to_be_bytes());
    for round in 0..10 {
        for client in &mut clients {
            for part in [batch(&["a", "b"]), broken.clone(), batch(&["c"])] {
                client.send(9, &produce_request("t", &[(0, part)])).await;
            }
        }
        for client in &mut clients {
            let mut codes = Vec::new();
            for _ in 0..3 {
                let (_, response) = client.receive::<ProduceRequest>(9).await;
                codes.push(response.responses[0].partition_responses[0].error_code.0);
            }
            assert_eq!(codes, [0, 87, 0], "round {round}");
        }
    }
    let mut next = 0;
    while next < 90 {
        let data = clients[0].fetch("t", 0, next).await;
        assert_eq!(data.high_watermark, 90);
        for stored in BatchIter::new(data.records.expect("never null").to_bytes()) {
            let header = stored.expect("a whole batch").header;
            assert_eq!(header.base_offset.0, next, "no gap");
            next = header.last_offset().0 + 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn k26_k28_k29_producer_ids_and_epochs() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let mut seen = std::collections::BTreeSet::new();
    for version in 0..=5 {
        let response = client
            .call(version, &InitProducerIdRequest::default())
            .await;
        assert_eq!(
            (response.error_code, response.producer_epoch),
            (ErrorCode::NONE, 0)
        );
        assert!(seen.insert(response.producer_id), "always a new one");
        // A producer that goes on after an error says who it was; what it had is over all the same.
        let going_on = InitProducerIdRequest {
            producer_id: response.producer_id,
            producer_epoch: 5,
            ..InitProducerIdRequest::default()
        };
        if version >= 3 {
            let next = client.call(version, &going_on).await;
            let given = (next.error_code, next.producer_epoch);
            assert_eq!(given, (ErrorCode::NONE, 0), "version {version}");
            assert!(seen.insert(next.producer_id), "always a new one");
        }
        for id in ["", "tx"] {
            let request = InitProducerIdRequest {
                transactional_id: Some(text(id)),
                transaction_timeout_ms: 1_000,
                ..InitProducerIdRequest::default()
            };
            let refused = client.call(version, &request).await;
            assert_eq!(refused.error_code, ErrorCode::INVALID_REQUEST, "`{id}`");
            assert!(!refused.error_code.is_retriable());
        }
    }
    let mut code = async |producer, epoch, sequence| {
        let part = client
            .produce("t", 0, sequenced(producer, epoch, sequence))
            .await;
        part.error_code.0
    };
    assert_eq!(
        code(70, 3, 12).await,
        0,
        "unknown: any sequence is a beginning"
    );
    assert_eq!(code(70, 3, 14).await, 45, "a gap");
    assert_eq!(code(70, 4, 1).await, 45, "a new epoch begins at 0");
    assert_eq!(code(70, 4, 0).await, 0);
    assert_eq!(code(70, 3, 13).await, 47, "a stale epoch, and never 90");
}

#[tokio::test(start_paused = true)]
async fn k34_clients_send_no_control_batches() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    for attributes in [0x20_i16, 0x30] {
        let control = patched(&sequenced(70, 0, 0), 21, &attributes.to_be_bytes());
        let refused = client.produce("t", 0, control).await;
        assert_eq!(refused.error_code, ErrorCode::INVALID_RECORD);
    }
    assert_eq!(client.fetch("t", 0, 0).await.high_watermark, 0);
}

#[tokio::test(start_paused = true)]
async fn k56_every_id_named_is_a_broker_with_an_address() {
    let h = start().await;
    h.topic("t", 3).await;
    let mut client = h.connect();
    let mut clusters = std::collections::BTreeSet::new();
    for version in 1..=13 {
        let request = MetadataRequest {
            topics: None,
            ..MetadataRequest::default()
        };
        let metadata = client.call(version, &request).await;
        let brokers: Vec<_> = metadata
            .brokers
            .iter()
            .map(|broker| broker.node_id)
            .collect();
        let mut named = vec![metadata.controller_id];
        for part in metadata.topics.iter().flat_map(|topic| &topic.partitions) {
            named.push(part.leader_id);
            named.extend(part.replica_nodes.iter().chain(&part.isr_nodes));
        }
        assert!(named.len() > 9, "three partitions with their replicas");
        assert!(
            named.iter().all(|id| brokers.contains(id)),
            "{named:?} in {brokers:?}"
        );
        let told = metadata
            .brokers
            .iter()
            .map(|one| (one.host.to_string(), one.port));
        assert_eq!(told.collect::<Vec<_>>(), [("127.0.0.1".to_owned(), 9092)]);
        if version >= 2 {
            clusters.insert(metadata.cluster_id.expect("never null").to_string());
        }
    }
    let request = FindCoordinatorRequest {
        key: text("g"),
        ..FindCoordinatorRequest::default()
    };
    let found = client.call(3, &request).await;
    assert_eq!(
        (found.node_id, &*found.host, found.port),
        (1, "127.0.0.1", 9092)
    );
    let described = client.call(1, &DescribeClusterRequest::default()).await;
    assert_eq!(
        (described.controller_id, described.brokers[0].broker_id),
        (1, 1)
    );
    clusters.insert(described.cluster_id.to_string());
    assert_eq!(clusters.len(), 1, "one cluster id: {clusters:?}");
}

fn joining(member: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: text("lag"),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: text(member),
        protocol_type: text("consumer"),
        protocols: vec![JoinGroupRequestProtocol {
            name: text("range"),
            metadata: Bytes::from_static(b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"),
        }],
        ..JoinGroupRequest::default()
    }
}

/// What sarama sends when it is pinned to protocol 1.0.0, as KEDA and Telegraf pin it.
#[tokio::test(start_paused = true)]
async fn k87_a_client_of_protocol_1_0_0_produces_groups_and_measures_its_lag() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let metadata = client.call(5, &MetadataRequest::default()).await;
    assert!(!metadata.brokers.is_empty());
    let produced = client
        .call(3, &produce_request("t", &[(0, batch(&["a", "b", "c"]))]))
        .await;
    assert_eq!(
        produced.responses[0].partition_responses[0].error_code,
        ErrorCode::NONE
    );
    let find = FindCoordinatorRequest {
        key: text("lag"),
        ..FindCoordinatorRequest::default()
    };
    assert_eq!(client.call(0, &find).await.node_id, 1);
    let joined = client.call(1, &joining("")).await;
    assert_eq!(
        joined.error_code,
        ErrorCode::NONE,
        "no second round before version 4"
    );
    let member_id = joined.member_id.clone();
    let sync = SyncGroupRequest {
        group_id: text("lag"),
        generation_id: joined.generation_id,
        member_id: member_id.clone(),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: member_id.clone(),
            assignment: Bytes::from_static(b"mine"),
        }],
        ..SyncGroupRequest::default()
    };
    assert_eq!(client.call(0, &sync).await.assignment, "mine");
    let beat = HeartbeatRequest {
        group_id: text("lag"),
        generation_id: joined.generation_id,
        member_id: member_id.clone(),
        ..HeartbeatRequest::default()
    };
    assert_eq!(client.call(0, &beat).await.error_code, ErrorCode::NONE);
    assert_eq!(common::values(&fetched(&mut client).await), ["a", "b", "c"]);
    let commit = OffsetCommitRequest {
        group_id: text("lag"),
        generation_id_or_member_epoch: joined.generation_id,
        member_id: member_id.clone(),
        retention_time_ms: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: text("t"),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: 1,
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    let committed = client.call(2, &commit).await;
    assert_eq!(
        committed.topics[0].partitions[0].error_code,
        ErrorCode::NONE
    );
    assert_eq!(lag(&mut client).await, 2);
    let groups = client.call(0, &ListGroupsRequest::default()).await.groups;
    assert_eq!(groups[0].group_id, *"lag");
    let describe = DescribeGroupsRequest {
        groups: vec![text("lag")],
        ..DescribeGroupsRequest::default()
    };
    let described = client.call(0, &describe).await.groups.remove(0);
    assert_eq!(
        (&*described.group_state, described.members.len()),
        ("Stable", 1)
    );
    let leave = LeaveGroupRequest {
        group_id: text("lag"),
        member_id,
        ..LeaveGroupRequest::default()
    };
    assert_eq!(client.call(0, &leave).await.error_code, ErrorCode::NONE);
}

async fn fetched(client: &mut Client) -> tidemill_wire::messages::fetch::PartitionData {
    let request = fetch_request("t", &[(0, 0)]);
    let mut response = client.call(6, &request).await;
    response.responses.remove(0).partitions.remove(0)
}

/// As lag monitors work it out.
async fn lag(client: &mut Client) -> i64 {
    let request = OffsetFetchRequest {
        group_id: text("lag"),
        topics: Some(vec![OffsetFetchRequestTopic {
            name: text("t"),
            partition_indexes: vec![0],
        }]),
        ..OffsetFetchRequest::default()
    };
    let committed = client.call(1, &request).await.topics[0].partitions[0].committed_offset;
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: text("t"),
            partitions: vec![ListOffsetsPartition {
                timestamp: -1,
                ..ListOffsetsPartition::default()
            }],
        }],
        ..ListOffsetsRequest::default()
    };
    let end = client.call(1, &request).await.topics[0].partitions[0].offset;
    end - committed
}

/// K21: of a partition that has had leaders before, each API that may name an epoch refuses an old
/// one (74) and one that is not known yet (75), and reads on if none is named.
#[tokio::test(start_paused = true)]
async fn k21_old_and_unknown_epochs_are_told_apart_by_every_api() {
    let h = start().await;
    let id = TopicId([7; 16]);
    let writer = h.log.writer();
    let create = move |_: &_| {
        Ok::<_, std::convert::Infallible>(vec![Change::TopicCreated(NewTopic {
            id,
            name: "t".to_owned(),
            partitions: 1,
            replication_factor: 1,
            configs: std::collections::BTreeMap::new(),
            leader: writer,
            epoch: LeaderEpoch(3),
            first_wal: 0,
        })])
    };
    h.cluster.commit(create).await.expect("a healthy store");
    let mut client = h.connect();
    // A setting of the broker is put into force on all topics, and so they are led.
    let setting = [("message.max.bytes", 0, "900000")];
    assert_eq!(common::admin::alter(&mut client, 4, "", &setting).await, 0);
    for (epoch, code) in [(-1, 0), (0, 74), (2, 74), (3, 0), (4, 75)] {
        let mut request = fetch_request("t", &[(0, 0)]);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        request.max_wait_ms = 0;
        let response = client.call(12, &request).await;
        let data = &response.responses[0].partitions[0];
        assert_eq!(data.error_code.0, code, "Fetch with {epoch}");
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: text("t"),
                partitions: vec![ListOffsetsPartition {
                    timestamp: -1,
                    current_leader_epoch: epoch,
                    ..ListOffsetsPartition::default()
                }],
            }],
            ..ListOffsetsRequest::default()
        };
        let response = client.call(7, &request).await;
        let found = &response.topics[0].partitions[0];
        assert_eq!(found.error_code.0, code, "ListOffsets with {epoch}");
        assert_eq!(found.leader_epoch, if code == 0 { 3 } else { -1 });
        let request = OffsetForLeaderEpochRequest {
            replica_id: -1,
            topics: vec![OffsetForLeaderTopic {
                topic: text("t"),
                partitions: vec![OffsetForLeaderPartition {
                    current_leader_epoch: epoch,
                    leader_epoch: 3,
                    ..OffsetForLeaderPartition::default()
                }],
            }],
        };
        let response = client.call(4, &request).await;
        let end = &response.topics[0].partitions[0];
        assert_eq!(end.error_code.0, code, "OffsetForLeaderEpoch with {epoch}");
    }
}

/// Clients come back to the address they are told: of the listener by which they came.
#[tokio::test(start_paused = true)]
async fn k93_each_listener_names_its_own_address() {
    let h = start().await;
    for (host, port) in [("127.0.0.1", 9092), ("broker.example", 19_092)] {
        let mut client = h.connect_to(host, port);
        let own = (host.to_owned(), i32::from(port));
        for version in 0..=13 {
            let request = MetadataRequest {
                topics: Some(Vec::new()),
                ..MetadataRequest::default()
            };
            let metadata = client.call(version, &request).await;
            let told = metadata.brokers.iter();
            let told: Vec<_> = told.map(|one| (one.host.to_string(), one.port)).collect();
            assert_eq!(told, std::slice::from_ref(&own), "Metadata {version}");
        }
        for version in 0..=6 {
            let mut request = FindCoordinatorRequest::default();
            match version {
                4.. => request.coordinator_keys = vec![text("g")],
                _ => request.key = text("g"),
            }
            let found = client.call(version, &request).await;
            let told = match found.coordinators.first() {
                Some(found) => (found.host.to_string(), found.port),
                None => (found.host.to_string(), found.port),
            };
            assert_eq!(told, own, "FindCoordinator {version}");
        }
        for version in 0..=2 {
            let request = DescribeClusterRequest::default();
            let told = client.call(version, &request).await.brokers;
            let told: Vec<_> = told
                .iter()
                .map(|one| (one.host.to_string(), one.port))
                .collect();
            assert_eq!(
                told,
                std::slice::from_ref(&own),
                "DescribeCluster {version}"
            );
        }
    }
}
