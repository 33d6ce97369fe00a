//! What validation accepts, refuses and sets right.

use bytes::Bytes;
use tidemill_wire::batch::{
    BatchBuilder, BatchError, BatchHeader, Compression, NewRecord, RECORD_ERRORS_MAX,
    RecordRefusal, Records, RefusedRecord, TimestampType, ValidateOptions, validate, verify_crc,
};
use tidemill_wire::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::{NOW, options, reseal, sample};

fn code(batch: impl Into<Bytes>, options: &ValidateOptions) -> i16 {
    validate(batch.into(), options).map_or_else(|error| error.kafka_code(), |_| 0)
}

/// The sample with one part of its header changed and the CRC right.
fn altered(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut batch = sample(Compression::None, 3).to_vec();
    change(&mut batch);
    reseal(&mut batch);
    batch
}

#[test]
fn every_codec_is_accepted_and_kept_byte_for_byte() {
    for codec in Compression::ALL {
        let batch = sample(codec, 50);
        let valid = validate(batch.clone(), &options()).expect("valid");
        assert_eq!(valid.bytes, batch);
        assert_eq!(valid.header, BatchHeader::parse(&batch).expect("a batch"));
        assert_eq!(valid.max_timestamp, NOW + 49);
        let plain = sample(Compression::None, 50).len() as u64 - 61;
        assert_eq!(valid.inflated_bytes, plain, "{codec:?}");
        let (head, tail) = valid.assigned(Offset(7), LeaderEpoch(2));
        assert_eq!(head.len(), 61);
        assert_eq!(tail, batch.slice(61..));
        assert_eq!(
            tail.as_ptr(),
            batch.slice(61..).as_ptr(),
            "no copy of the payload"
        );
    }
}

#[test]
fn a_missing_max_timestamp_is_recomputed_with_the_crc() {
    for codec in Compression::ALL {
        let mut batch = sample(codec, 9).to_vec();
        batch[35..43].copy_from_slice(&(-1_i64).to_be_bytes());
        reseal(&mut batch);
        let valid = validate(batch.into(), &options()).expect("valid");
        assert_eq!(valid.header.max_timestamp, NOW + 8);
        let (head, tail) = valid.assigned(Offset(0), LeaderEpoch(0));
        let stored = [head, tail].concat();
        assert!(verify_crc(&stored).expect("whole"));
        assert_eq!(
            BatchHeader::parse(&stored).expect("a batch").max_timestamp,
            NOW + 8
        );
    }
}

#[test]
fn the_greatest_timestamp_may_stand_anywhere() {
    let mut builder = BatchBuilder::default();
    for timestamp in [NOW, NOW + 500, NOW - 500] {
        let record = NewRecord {
            timestamp,
            ..NewRecord::key_value(b"k", b"v")
        };
        builder.push(&record).expect("fits");
    }
    let valid = validate(builder.build().expect("fits"), &options()).expect("valid");
    assert_eq!(valid.max_timestamp, NOW + 500);
}

#[test]
fn append_time_topics_get_the_brokers_clock() {
    let create = sample(Compression::Gzip, 4);
    let options = ValidateOptions {
        timestamp_type: TimestampType::LogAppendTime,
        ..options()
    };
    let options = ValidateOptions {
        now_ms: NOW + 77,
        ..options
    };
    let valid = validate(create, &options).expect("valid");
    assert_eq!(valid.max_timestamp, NOW + 77);
    let (head, tail) = valid.assigned(Offset(5), LeaderEpoch(0));
    let stored = Bytes::from([head, tail].concat());
    assert!(verify_crc(&stored).expect("whole"));
    let records = Records::open(&stored, 1 << 20).expect("readable");
    let times: Vec<_> = records
        .map(|record| record.expect("a record").timestamp)
        .collect();
    assert_eq!(times, [NOW + 77; 4]);
}

#[test]
fn append_time_from_a_producer_is_refused_on_every_topic() {
    let batch = altered(|batch| batch[22] |= 0x08);
    assert_eq!(code(batch.clone(), &options()), 32);
    let append = ValidateOptions {
        timestamp_type: TimestampType::LogAppendTime,
        ..options()
    };
    assert_eq!(code(batch, &append), 32);
}

#[test]
fn create_time_is_bounded_ahead_and_on_request_behind() {
    let at = |timestamp: i64| {
        let mut builder = BatchBuilder::default();
        let record = NewRecord {
            timestamp,
            ..NewRecord::key_value(b"k", b"v")
        };
        builder.push(&record).expect("fits");
        builder.build().expect("fits")
    };
    let hour = 3_600_000;
    assert_eq!(code(at(NOW + hour), &options()), 0);
    assert_eq!(code(at(NOW + hour + 1), &options()), 32);
    assert_eq!(code(at(i64::MAX), &options()), 32);
    for ancient in [-1, 0, 1, -2, i64::MIN] {
        assert_eq!(code(at(ancient), &options()), 0, "{ancient}");
    }
    let before = ValidateOptions {
        timestamp_before_max_ms: 1000,
        ..options()
    };
    assert_eq!(code(at(NOW - 1000), &before), 0);
    assert_eq!(code(at(NOW - 1001), &before), 32);
    assert_eq!(code(at(-1), &before), 0);
    let append = ValidateOptions {
        timestamp_type: TimestampType::LogAppendTime,
        ..before
    };
    assert_eq!(code(at(NOW - 1001), &append), 0);
}

fn at(timestamps: impl IntoIterator<Item = i64>) -> Bytes {
    let mut builder = BatchBuilder::default();
    for timestamp in timestamps {
        let record = NewRecord {
            timestamp,
            ..NewRecord::key_value(b"k", b"v")
        };
        builder.push(&record).expect("fits");
    }
    builder.build().expect("fits")
}

#[test]
fn refused_times_name_their_records() {
    let batch = at([NOW, NOW * 2, NOW, NOW * 3]);
    let error = validate(batch, &options()).expect_err("too far");
    let refused = |index, timestamp| RefusedRecord {
        index,
        why: RecordRefusal::Timestamp {
            timestamp,
            earliest: NOW - i64::MAX,
            latest: NOW + 3_600_000,
        },
    };
    let all = [refused(1, NOW * 2), refused(3, NOW * 3)];
    assert_eq!(error.refused_records(), all);
    assert_eq!(error.kafka_code(), 32);
    let text = error.to_string();
    assert!(text.starts_with("record 1: timestamp"), "{text}");
    assert!(text.ends_with("; 2 records refused"), "{text}");
}

#[test]
fn a_batch_of_refused_records_names_a_bounded_number() {
    let batch = at((0..5_000).map(|_| NOW * 2));
    let error = validate(batch, &options()).expect_err("too far");
    assert_eq!(error.refused_records().len(), RECORD_ERRORS_MAX);
}

#[test]
fn exactly_one_batch_of_magic_two() {
    let batch = sample(Compression::None, 3);
    assert_eq!(code(Bytes::new(), &options()), 87);
    assert_eq!(code([&batch[..], &batch[..]].concat(), &options()), 87);
    assert_eq!(code([&batch[..], &[0]].concat(), &options()), 87);
    assert_eq!(code(batch.slice(..batch.len() - 1), &options()), 87);
    assert_eq!(code(batch.slice(..30), &options()), 87);
    for magic in [0, 1, 3, 0xff] {
        assert_eq!(
            code(altered(|batch| batch[16] = magic), &options()),
            87,
            "magic {magic}"
        );
    }
    let short = altered(|batch| batch[8..12].copy_from_slice(&10_i32.to_be_bytes()));
    assert_eq!(code(short, &options()), 2);
}

#[test]
fn the_header_is_checked_in_kafkas_order() {
    let base = |batch: &mut Vec<u8>| batch[7] = 1;
    assert_eq!(code(altered(base), &options()), 87);
    let small = ValidateOptions {
        max_message_bytes: 100,
        ..options()
    };
    assert_eq!(code(altered(base), &small), 87, "base offset before size");
    let mut torn = sample(Compression::None, 3).to_vec();
    torn[70] ^= 1;
    assert_eq!(code(torn.clone(), &small), 10, "size before crc");
    torn[57..61].copy_from_slice(&9_i32.to_be_bytes());
    assert_eq!(code(torn, &options()), 2, "crc before count");

    let set = |at: usize, value: i32| {
        altered(|batch| batch[at..at + 4].copy_from_slice(&value.to_be_bytes()))
    };
    for batch in [
        set(57, 2),
        set(57, 4),
        set(57, 0),
        set(57, -1),
        set(57, i32::MAX),
    ] {
        assert_eq!(code(batch, &options()), 87);
    }
    for batch in [set(23, 1), set(23, 3), set(23, -1), set(23, i32::MAX)] {
        assert_eq!(code(batch, &options()), 87);
    }
    assert_eq!(
        code(altered(|batch| batch[22] |= 0x20), &options()),
        87,
        "control"
    );
    assert_eq!(
        code(altered(|batch| batch[22] |= 0x10), &options()),
        87,
        "no producer"
    );
    assert_eq!(
        code(altered(|batch| batch[22] |= 0x40), &options()),
        87,
        "delete horizon"
    );
}

#[test]
fn a_size_at_the_limit_is_taken() {
    let batch = sample(Compression::None, 3);
    let size = batch.len() as u64;
    let at = ValidateOptions {
        max_message_bytes: size,
        ..options()
    };
    assert_eq!(code(batch.clone(), &at), 0);
    let below = ValidateOptions {
        max_message_bytes: size - 1,
        ..options()
    };
    let error = validate(batch, &below).expect_err("too large");
    assert_eq!(
        error,
        BatchError::TooLarge {
            size,
            max: size - 1
        }
    );
}

#[test]
fn producers_need_a_sequence_and_an_epoch() {
    let by = |id: i64, epoch: i16, sequence: i32| {
        let mut builder = BatchBuilder::default();
        builder.producer(ProducerId(id), ProducerEpoch(epoch), sequence);
        builder
            .push(&NewRecord::key_value(b"k", b"v"))
            .expect("fits");
        builder.build().expect("fits")
    };
    assert_eq!(code(by(9, 0, 0), &options()), 0);
    assert_eq!(code(by(9, 0, i32::MAX), &options()), 0);
    assert_eq!(code(by(9, 0, -1), &options()), 87);
    assert_eq!(code(by(9, -1, 0), &options()), 87);
    assert_eq!(code(by(-1, -1, -1), &options()), 0);
}

#[test]
fn zstd_only_where_the_request_knows_it() {
    let old = ValidateOptions {
        allow_zstd: false,
        ..options()
    };
    assert_eq!(code(sample(Compression::Zstd, 3), &old), 76);
    for codec in [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
    ] {
        assert_eq!(code(sample(codec, 3), &old), 0);
    }
}

#[test]
fn compacted_topics_need_keys() {
    let mut builder = BatchBuilder::default();
    builder
        .push(&NewRecord::key_value(b"", b"empty is a key"))
        .expect("fits");
    let keyed = builder.build().expect("fits");
    builder
        .push(&NewRecord {
            key: None,
            ..NewRecord::key_value(b"", b"v")
        })
        .expect("fits");
    let keyless = builder.build().expect("fits");
    let compacted = ValidateOptions {
        key_required: true,
        ..options()
    };
    assert_eq!(code(keyed, &compacted), 0);
    assert_eq!(code(keyless.clone(), &options()), 0);
    let error = validate(keyless, &compacted).expect_err("no key");
    let (index, why) = (1, RecordRefusal::MissingKey);
    assert_eq!(error.refused_records(), [RefusedRecord { index, why }]);
    assert_eq!(error.kafka_code(), 87);
}
