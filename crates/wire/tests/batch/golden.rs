//! Batches as kafka-clients 4.4 makes them (`ecosystem/vectors/BatchVectors.java`).

use bytes::Bytes;
use tidemill_wire::batch::{
    BatchBuilder, BatchHeader, Compression, EndTxnMarker, NewRecord, Records, validate, verify_crc,
};
use tidemill_wire::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::{NOW, options};

const VECTORS: &str = include_str!("golden/kafka-clients-4.4.txt");

fn vector(name: &str) -> Bytes {
    let line = VECTORS
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let hex = line.expect("a vector of this name");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[test]
fn java_batches_are_taken_as_they_are() {
    for name in ["gzip", "snappy", "lz4", "zstd"] {
        let batch = vector(name);
        let valid = validate(batch.clone(), &options()).expect(name);
        assert_eq!(
            valid.header,
            BatchHeader::parse(&batch).expect("a batch"),
            "{name}"
        );
        let codec = valid
            .header
            .attributes
            .compression()
            .expect("a known codec");
        assert_eq!(codec.name(), name);
        let records: Vec<_> = Records::open(&batch, 1 << 20).expect("sound").collect();
        let records: Vec<_> = records
            .into_iter()
            .map(|record| record.expect("sound"))
            .collect();
        assert_eq!(records.len(), 5);
        let times: Vec<_> = records
            .iter()
            .map(|record| record.timestamp - NOW)
            .collect();
        assert_eq!(times, [0, 5, -5, 1, 0]);
        assert_eq!(records[0].headers.len(), 3);
        assert_eq!(records[1].key, None);
        assert_eq!(records[2].value, None);
        assert_eq!(records[3].value, Some(Bytes::new()));
        let long = records[4].value.as_deref().expect("a value");
        assert_eq!(long, b"abcdefgh".repeat(9000));
    }
}

#[test]
fn our_builder_makes_javas_bytes() {
    let mut builder = BatchBuilder::new(Compression::None);
    builder
        .at(Offset(0), LeaderEpoch(9))
        .producer(ProducerId(4711), ProducerEpoch(3), 40);
    let headers: [(&str, Option<&[u8]>); 3] = [("h", Some(b"1")), ("h", None), ("", Some(b""))];
    let records = [
        NewRecord {
            timestamp: NOW,
            headers: &headers,
            ..NewRecord::key_value(b"key", b"value")
        },
        NewRecord {
            timestamp: NOW + 5,
            key: None,
            ..NewRecord::key_value(b"", b"no key")
        },
        NewRecord {
            timestamp: NOW - 5,
            value: None,
            ..NewRecord::key_value(b"tombstone", b"")
        },
        NewRecord {
            timestamp: NOW + 1,
            ..NewRecord::key_value(b"", b"")
        },
    ];
    for record in &records {
        builder.push(record).expect("fits");
    }
    assert_eq!(builder.build().expect("fits"), vector("none"));
}

#[test]
fn our_markers_are_javas() {
    for (name, commit) in [("commit", true), ("abort", false)] {
        let golden = vector(name);
        assert!(verify_crc(&golden).expect("whole"));
        let marker = EndTxnMarker {
            commit,
            coordinator_epoch: 6,
        };
        let ours = marker
            .batch(ProducerId(4711), ProducerEpoch(3), NOW)
            .expect("fits");
        // Java puts leader epoch 0 there, ours is unassigned; the CRC does not cover it.
        assert_eq!(ours[..12], golden[..12]);
        assert_eq!(ours[16..], golden[16..]);
        let record = Records::open(&golden, 1 << 20)
            .expect("sound")
            .next()
            .expect("one");
        assert_eq!(EndTxnMarker::parse(&record.expect("sound")), Ok(marker));
    }
}
