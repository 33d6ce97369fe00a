//! The stored bytes of metadata entries and snapshots.

mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use common::{CLUSTER, new_topic, registration, sealed, topic_id};
use proptest::prelude::*;
use tidemill_cluster::{
    Change, Image,
    format::{Entry, StartedTenure, decode_entry, decode_snapshot, encode_entry, encode_snapshot},
};
use tidemill_store::{Envelope, ObjectKind, PutId, envelope::EnvelopeError};
use tidemill_wire::ids::{LeaderEpoch, NodeId, PartitionId, WriterId};

fn all_changes() -> Vec<Change> {
    let partition = PartitionId {
        topic: topic_id(1),
        index: 0,
    };
    vec![
        Change::BrokerRegistered(registration(1)),
        Change::TopicCreated(new_topic(1, "orders", 3, WriterId(1))),
        Change::PartitionsAdded {
            topic: topic_id(1),
            total: 5,
            leader: WriterId(1),
            epoch: LeaderEpoch(0),
            first_wal: 2,
        },
        Change::TopicConfigsSet {
            topic: topic_id(1),
            configs: BTreeMap::from([
                ("retention.ms".to_owned(), None),
                ("retention.bytes".to_owned(), Some("5".to_owned())),
            ]),
        },
        Change::BrokerConfigsSet {
            node: Some(NodeId(1)),
            configs: BTreeMap::from([("a".to_owned(), Some("b".to_owned()))]),
        },
        Change::BrokerConfigsSet {
            node: None,
            configs: BTreeMap::from([("c".to_owned(), Some("d".to_owned()))]),
        },
        Change::TenuresStarted(vec![StartedTenure {
            partition,
            epoch: LeaderEpoch(4),
            writer: WriterId(1),
            first_wal: 3,
        }]),
        Change::FinalizedLevel { level: 1 },
        sealed(WriterId(1)),
        Change::TenuresInherited {
            from: WriterId(1),
            to: WriterId(2),
            first_wal: 1,
        },
        Change::TopicDeleted { topic: topic_id(1) },
        Change::TopicForgotten { topic: topic_id(1) },
    ]
}

fn entry(changes: Vec<Change>) -> Entry {
    Entry {
        put_id: PutId([0x11; 16]),
        cluster_id: CLUSTER,
        writer: WriterId(1),
        changes,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `TIDEMILL_BLESS=1` writes the file anew, for a format that is not released yet.
fn check_golden(name: &str, found: &str) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("TIDEMILL_BLESS").is_some() {
        std::fs::write(&path, found).expect("the source tree is writable");
    }
    let golden = std::fs::read_to_string(&path).expect("checked in");
    assert_eq!(found, golden, "a stored format must not change");
}

#[test]
fn every_change_round_trips() {
    let entry = entry(all_changes());
    assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
}

#[test]
fn golden_bytes_of_every_change() {
    let found: String = all_changes()
        .into_iter()
        .map(|change| {
            let kind = change.kind();
            let bytes = encode_entry(&entry(vec![change]));
            format!("{kind} {}\n", hex(&bytes[Envelope::LEN..]))
        })
        .collect();
    check_golden("changes", &found);
}

fn image() -> Image {
    let mut image = Image::default();
    image.apply(&[Change::BrokerRegistered(registration(1))]);
    image.apply(&[
        Change::TopicCreated(new_topic(1, "orders", 3, WriterId(1))),
        Change::TopicCreated(new_topic(2, "gone", 2, WriterId(1))),
    ]);
    image.apply(&[Change::TopicDeleted { topic: topic_id(2) }]);
    image.apply(&[Change::BrokerRegistered(registration(1))]);
    image.apply(&[
        sealed(WriterId(1)),
        Change::TenuresInherited {
            from: WriterId(1),
            to: WriterId(4),
            first_wal: 1,
        },
        Change::BrokerConfigsSet {
            node: None,
            configs: BTreeMap::from([("c".to_owned(), Some("d".to_owned()))]),
        },
    ]);
    image
}

#[test]
fn golden_bytes_of_a_snapshot() {
    let bytes = encode_snapshot(&image(), PutId([0x22; 16]), CLUSTER, WriterId(4));
    check_golden("snapshot", &format!("{}\n", hex(&bytes)));
}

#[test]
fn a_snapshot_says_all_that_the_image_says() {
    let image = image();
    let bytes = encode_snapshot(&image, PutId([0x22; 16]), CLUSTER, WriterId(4));
    let (cluster, read) = decode_snapshot(&bytes).expect("it was just written");
    assert_eq!(cluster, CLUSTER);
    assert_eq!(
        format!("{:?}", describe(&read)),
        format!("{:?}", describe(&image))
    );
    // Written again it has the same bytes, sharing of tenures included.
    assert_eq!(
        encode_snapshot(&read, PutId([0x22; 16]), CLUSTER, WriterId(4)),
        bytes
    );
}

fn describe(image: &Image) -> impl std::fmt::Debug {
    let topics: Vec<_> = image
        .topics()
        .chain(image.deleted_topics())
        .map(|topic| {
            let tenures: Vec<Vec<_>> = topic
                .partitions()
                .map(|(_, state)| state.tenures().collect())
                .collect();
            (
                topic.name.clone(),
                topic.configs.clone(),
                topic.created,
                tenures,
            )
        })
        .collect();
    let writers: Vec<_> = image.writers().cloned().collect();
    let colliding = image.colliding_topic("orders").map(|topic| topic.id);
    (
        image.next(),
        image.partition_count(),
        topics,
        writers,
        colliding,
    )
}

#[test]
fn an_unknown_kind_stops_the_broker_and_one_that_may_be_ignored_does_not() {
    let object = |kind: u16| {
        let mut directory = 2u32.to_le_bytes().to_vec();
        for (kind, body) in [(kind, &b"xyz"[..]), (11, &7u32.to_le_bytes()[..])] {
            directory.extend(kind.to_le_bytes());
            directory.extend(u32::try_from(body.len()).expect("short").to_le_bytes());
            directory.extend(body);
        }
        let envelope = Envelope {
            kind: ObjectKind::Metadata,
            version: 1,
            must_understand: 0,
            may_ignore: 0,
            put_id: PutId([1; 16]),
            cluster_id: CLUSTER,
            writer: 1,
        };
        decode_entry(&envelope.encode(&directory, 0))
    };
    let error = object(17).expect_err("kind 17 is not known yet");
    assert!(matches!(error, EnvelopeError::TooNew { .. }));
    assert!(error.to_string().contains("upgrade the broker"), "{error}");
    let entry = object(0x8001).expect("may be ignored");
    assert_eq!(entry.changes, [Change::FinalizedLevel { level: 7 }]);
}

proptest! {
    #[test]
    fn damaged_bytes_never_panic(at in 0usize..2_000, bit in 0u8..8, cut in 0usize..2_000) {
        let mut bytes = encode_entry(&entry(all_changes())).to_vec();
        let len = bytes.len();
        bytes[at % len] ^= 1 << bit;
        prop_assert!(decode_entry(&Bytes::from(bytes)).is_err());
        let whole = encode_snapshot(&image(), PutId([2; 16]), CLUSTER, WriterId(4));
        let cut = cut % whole.len();
        prop_assert!(decode_snapshot(&whole.slice(..cut)).is_err());
    }

    /// Checksums right, contents arbitrary.
    #[test]
    fn arbitrary_directories_never_panic(directory in prop::collection::vec(any::<u8>(), 0..300)) {
        for (kind, decode) in [
            (ObjectKind::Metadata, (|b| decode_entry(b).is_ok()) as fn(&Bytes) -> bool),
            (ObjectKind::MetadataSnapshot, |b| decode_snapshot(b).is_ok()),
        ] {
            let envelope = Envelope {
                kind,
                version: 1,
                must_understand: 0,
                may_ignore: 0,
                put_id: PutId([1; 16]),
                cluster_id: CLUSTER,
                writer: 1,
            };
            let _ = decode(&envelope.encode(&directory, 0));
        }
    }
}
