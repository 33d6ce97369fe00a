//! Building, reading back, searching; `kafka-protocol` as oracle; golden bytes.

use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records as oracle;
use proptest::prelude::*;
use tidemill_wire::batch::{
    BatchBuilder, BuildError, Compression, ControlError, EndTxnMarker, NewRecord, Record, Records,
    TimestampHit, first_at_or_after, inflate, max_timestamp_record, validate,
};
use tidemill_wire::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::{NOW, options, sample};

type Fields = (
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(String, Option<Vec<u8>>)>,
);

fn bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300))
}

/// Distinct header keys: the oracle keeps headers in a map.
fn fields() -> impl Strategy<Value = Fields> {
    let headers = proptest::collection::btree_map("[a-z]{0,5}", bytes(), 0..4);
    (
        NOW - 1000..NOW + 1000,
        bytes(),
        bytes(),
        headers.prop_map(|map| map.into_iter().collect()),
    )
}

fn build(codec: Compression, records: &[Fields], producer: (i64, i16, i32)) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    builder.producer(
        ProducerId(producer.0),
        ProducerEpoch(producer.1),
        producer.2,
    );
    for (timestamp, key, value, headers) in records {
        let headers: Vec<_> = headers
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_deref()))
            .collect();
        let record = NewRecord {
            timestamp: *timestamp,
            key: key.as_deref(),
            value: value.as_deref(),
            headers: &headers,
        };
        builder.push(&record).expect("fits");
    }
    builder.build().expect("fits")
}

fn same(record: &Record, fields: &Fields) -> bool {
    let headers = record.headers.iter().map(|header| {
        (
            String::from_utf8_lossy(&header.key).into_owned(),
            header.value.as_ref().map(|v| v.to_vec()),
        )
    });
    record.timestamp == fields.0
        && record.key.as_deref() == fields.1.as_deref()
        && record.value.as_deref() == fields.2.as_deref()
        && headers.eq(fields.3.iter().cloned())
}

fn oracle_record(index: i64, fields: &Fields) -> oracle::Record {
    let headers: IndexMap<_, _> = fields
        .3
        .iter()
        .map(|(key, value)| {
            (
                StrBytes::from_string(key.clone()),
                value.clone().map(Bytes::from),
            )
        })
        .collect();
    oracle::Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: 7,
        producer_epoch: 1,
        timestamp_type: oracle::TimestampType::Creation,
        offset: index,
        sequence: 100 + index as i32,
        timestamp: fields.0,
        key: fields.1.clone().map(Bytes::from),
        value: fields.2.clone().map(Bytes::from),
        headers,
    }
}

proptest! {
    #[test]
    fn what_we_build_the_oracle_reads(
        records in proptest::collection::vec(fields(), 1..12),
        codec in 0_usize..5,
    ) {
        let codec = Compression::ALL[codec];
        let mut batch = build(codec, &records, (7, 1, 100));
        let ours: Vec<_> = Records::open(&batch, 1 << 20).expect("sound").collect();
        prop_assert_eq!(ours.len(), records.len());
        for (record, fields) in ours.iter().zip(&records) {
            prop_assert!(same(record.as_ref().expect("sound"), fields));
        }
        validate(batch.clone(), &options()).expect("valid");
        let decompress = |data: &mut Bytes, _| {
            let all = data.split_to(data.len());
            Ok(inflate(codec, &all, 1 << 20).expect("sound"))
        };
        let decoded = oracle::RecordBatchDecoder::decode_with_custom_compression(
            &mut batch, Some(decompress),
        ).expect("readable");
        let theirs: Vec<_> =
            records.iter().enumerate().map(|(i, f)| oracle_record(i as i64, f)).collect();
        prop_assert_eq!(decoded.records, theirs);
    }

    #[test]
    fn what_the_oracle_builds_we_take(records in proptest::collection::vec(fields(), 1..12)) {
        let theirs: Vec<_> =
            records.iter().enumerate().map(|(i, f)| oracle_record(i as i64, f)).collect();
        let mut out = BytesMut::new();
        let how = oracle::RecordEncodeOptions {
            version: 2,
            compression: oracle::Compression::None,
        };
        oracle::RecordBatchEncoder::encode(&mut out, &theirs, &how).expect("encodable");
        let valid = validate(out.freeze(), &options()).expect("valid");
        let greatest = records.iter().map(|fields| fields.0).max().expect("not empty");
        prop_assert_eq!(valid.max_timestamp, greatest);
        let ours: Vec<_> = Records::open(&valid.bytes, 1 << 20).expect("sound").collect();
        for (record, fields) in ours.iter().zip(&records) {
            prop_assert!(same(record.as_ref().expect("sound"), fields));
        }
    }

    #[test]
    fn search_finds_the_first_record_in_time(
        times in proptest::collection::vec(-1_i64..20, 1..20),
        wanted in 0_i64..25,
        from in 0_i64..25,
        limit in prop_oneof![-2_i64..21, Just(i64::MAX)],
        codec in 0_usize..5,
    ) {
        let mut builder = BatchBuilder::new(Compression::ALL[codec]);
        builder.at(Offset(5), LeaderEpoch(1));
        for timestamp in &times {
            let record = NewRecord { timestamp: *timestamp, ..NewRecord::key_value(b"k", b"v") };
            builder.push(&record).expect("fits");
        }
        let batch = builder.build().expect("fits");
        let all = times.iter().zip(5..).map(|(timestamp, offset)| TimestampHit {
            offset: Offset(offset),
            timestamp: *timestamp,
        });
        let first = all.clone().find(|hit| hit.timestamp >= wanted && hit.offset.0 >= from);
        prop_assert_eq!(first_at_or_after(&batch, wanted, Offset(from), 1 << 20), Ok(first));
        let within = all.filter(|hit| hit.timestamp <= limit && hit.offset.0 >= from);
        let greatest = within.clone().map(|hit| hit.timestamp).max();
        let latest = within.clone().find(|hit| Some(hit.timestamp) == greatest);
        let found = max_timestamp_record(&batch, limit, Offset(from), 1 << 20);
        prop_assert_eq!(found, Ok(latest));
    }
}

#[test]
fn header_keys_may_repeat_and_null_differs_from_empty() {
    let batch = sample(Compression::None, 1);
    let record = Records::open(&batch, 1 << 20)
        .expect("sound")
        .next()
        .expect("one");
    let record = record.expect("sound");
    let headers: Vec<_> = record
        .headers
        .iter()
        .map(|h| (&h.key[..], h.value.as_deref()))
        .collect();
    assert_eq!(headers, [(&b"h"[..], Some(&b"1"[..])), (b"h", None)]);

    let mut builder = BatchBuilder::default();
    builder
        .push(&NewRecord {
            key: None,
            ..NewRecord::key_value(b"", b"")
        })
        .expect("fits");
    let batch = builder.build().expect("fits");
    let record = Records::open(&batch, 1 << 20)
        .expect("sound")
        .next()
        .expect("one");
    let record = record.expect("sound");
    assert_eq!((record.key, record.value), (None, Some(Bytes::new())));
    assert_eq!(record.timestamp, -1);
}

#[test]
fn records_are_slices_of_an_uncompressed_batch() {
    let batch = sample(Compression::None, 2);
    let record = Records::open(&batch, 1 << 20)
        .expect("sound")
        .next()
        .expect("one");
    let value = record.expect("sound").value.expect("not null");
    let range = batch.as_ptr_range();
    assert!(range.contains(&value.as_ptr()));
}

#[test]
fn an_empty_batch_is_not_built() {
    assert_eq!(BatchBuilder::default().build(), Err(BuildError::Empty));
}

#[test]
fn timestamps_too_far_apart_leave_the_builder_unchanged() {
    let mut builder = BatchBuilder::default();
    let at = |timestamp| NewRecord {
        timestamp,
        ..NewRecord::key_value(b"k", b"v")
    };
    builder.push(&at(i64::MIN)).expect("fits");
    let before = builder.size_bytes();
    assert_eq!(builder.push(&at(1)), Err(BuildError::Timestamp(1)));
    assert_eq!((builder.count(), builder.size_bytes()), (1, before));
}

#[test]
fn markers_round_trip_and_are_refused_from_clients() {
    for commit in [true, false] {
        let marker = EndTxnMarker {
            commit,
            coordinator_epoch: 4,
        };
        let batch = marker
            .batch(ProducerId(9), ProducerEpoch(2), NOW)
            .expect("fits");
        let mut records = Records::open(&batch, 1 << 20).expect("sound");
        let header = *records.header();
        assert!(header.attributes.is_control() && header.attributes.is_transactional());
        assert_eq!(
            (header.base_sequence, header.producer_id),
            (-1, ProducerId(9))
        );
        assert_eq!(header.record_count, 1);
        let record = records.next().expect("one").expect("sound");
        assert_eq!(EndTxnMarker::parse(&record), Ok(marker));
        let error = validate(batch, &options()).expect_err("control");
        assert_eq!(error.kafka_code(), 87);
    }
}

#[test]
fn other_control_records_are_no_markers() {
    let mut record = Record {
        offset: Offset(0),
        timestamp: 0,
        key: Some(Bytes::from_static(&[0, 0, 0, 2])),
        value: Some(Bytes::from_static(&[0; 6])),
        headers: Vec::new(),
    };
    assert_eq!(EndTxnMarker::parse(&record), Err(ControlError::Kind(2)));
    record.key = Some(Bytes::from_static(&[0, 0, 0]));
    assert_eq!(EndTxnMarker::parse(&record), Err(ControlError::Truncated));
    record.key = None;
    assert_eq!(EndTxnMarker::parse(&record), Err(ControlError::Truncated));
}
