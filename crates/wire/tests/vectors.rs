//! Messages as the classes of kafka-clients 4.4 write them (`ecosystem/wire-vectors`).

use std::collections::BTreeSet;

use bytes::Bytes;
use tidemill_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, ListOffsetsRequest, ListOffsetsResponse,
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
};
use tidemill_wire::{ApiKey, Decoder, Encoder, Message, RequestKind, ResponseKind};

struct Vector {
    kind: &'static str,
    key: i16,
    version: i16,
    what: &'static str,
    bytes: Bytes,
}

fn vectors() -> Vec<Vector> {
    include_str!("vectors/messages.txt")
        .lines()
        .map(vector)
        .collect()
}

fn vector(line: &'static str) -> Vector {
    let words: Vec<_> = line.split(' ').collect();
    let hex = words[4].as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16);
    Vector {
        kind: words[0],
        key: words[1].parse().expect("a key"),
        version: words[2].parse().expect("a version"),
        what: words[3],
        bytes: hex.map(|pair| byte(pair).expect("hexadecimal")).collect(),
    }
}

/// Reads the full vector of a message that kafka-protocol lacks.
fn read<M: Message>(kind: &str, key: ApiKey, version: i16) -> M {
    let vector = vectors()
        .into_iter()
        .find(|v| (v.kind, v.key, v.version, v.what) == (kind, key.code(), version, "full"))
        .expect("the vector exists");
    M::decode(&mut Decoder::new(vector.bytes), version).expect("Kafka's bytes are read")
}

#[test]
fn kafkas_bytes_are_read_and_written_again() {
    let mut seen = BTreeSet::new();
    for vector in vectors() {
        let Some(key) = ApiKey::from_code(vector.key) else {
            continue;
        };
        let name = format!("{key} {} v{} {}", vector.kind, vector.version, vector.what);
        let mut decoder = Decoder::new(vector.bytes.clone());
        let mut encoder = Encoder::new();
        if vector.kind == "request" {
            RequestKind::decode(key, vector.version, &mut decoder)
                .unwrap_or_else(|e| panic!("{name}: {e}"))
                .encode(&mut encoder, vector.version)
        } else {
            ResponseKind::decode(key, vector.version, &mut decoder)
                .unwrap_or_else(|e| panic!("{name}: {e}"))
                .encode(&mut encoder, vector.version)
        }
        .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(decoder.remaining(), 0, "{name}");
        assert_eq!(encoder.finish().to_bytes(), vector.bytes, "{name}");
        seen.insert((key, vector.version));
    }
    for key in ApiKey::ALL {
        assert!(
            seen.contains(&(*key, *key.versions().end())),
            "no vector of the newest {key}"
        );
    }
}

#[test]
fn list_offsets_11() {
    let request: ListOffsetsRequest = read("request", ApiKey::ListOffsets, 11);
    assert_eq!(request.topics.len(), 2);
    assert_eq!(request.topics[1].partitions.len(), 2);
    assert!(request.topics[0].name.starts_with("string-"));
    assert_ne!(request.timeout_ms, 0);
    let response: ListOffsetsResponse = read("response", ApiKey::ListOffsets, 11);
    let partition = &response.topics[1].partitions[1];
    assert_eq!(partition.timestamp + (1 << 40) + 1, partition.offset);
}

#[test]
fn offset_commit_10_names_topics_by_id() {
    let request: OffsetCommitRequest = read("request", ApiKey::OffsetCommit, 10);
    assert_eq!(request.group_id, "string-1");
    assert_eq!(request.member_id, "string-3");
    assert!(request.topics[1].name.is_empty());
    assert_ne!(request.topics[0].topic_id, request.topics[1].topic_id);
    let metadata = request.topics[1].partitions[1].committed_metadata.as_ref();
    assert!(metadata.expect("not null").starts_with("string-"));
    let response: OffsetCommitResponse = read("response", ApiKey::OffsetCommit, 10);
    assert!(response.topics[1].name.is_empty());
    assert_ne!(response.topics[1].partitions[1].error_code.code(), 0);
}

#[test]
fn offset_fetch_10_names_topics_by_id() {
    let request: OffsetFetchRequest = read("request", ApiKey::OffsetFetch, 10);
    assert!(request.require_stable);
    let topics = request.groups[1].topics.as_ref().expect("not null");
    assert!(topics[1].name.is_empty());
    assert_eq!(topics[1].partition_indexes.len(), 2);
    let response: OffsetFetchResponse = read("response", ApiKey::OffsetFetch, 10);
    let partition = &response.groups[1].topics[1].partitions[1];
    assert!(
        partition
            .metadata
            .as_ref()
            .expect("not null")
            .starts_with("string-")
    );
    assert_ne!(
        response.groups[0].topics[0].topic_id,
        response.groups[0].topics[1].topic_id
    );
}

#[test]
fn api_versions_5_knows_cluster_and_node() {
    let request: ApiVersionsRequest = read("request", ApiKey::ApiVersions, 5);
    assert_eq!(request.client_software_name, "string-1");
    assert_eq!(request.client_software_version, "string-2");
    assert!(request.cluster_id.expect("not null").starts_with("string-"));
    let response: ApiVersionsResponse = read("response", ApiKey::ApiVersions, 5);
    assert_eq!(response.api_keys.len(), 2);
    assert_eq!(response.supported_features.len(), 2);
    assert!(response.finalized_features[1].name.starts_with("string-"));
    assert!(response.zk_migration_ready && response.finalized_features_epoch > 0);
}
