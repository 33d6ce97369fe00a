//! Records that lie, in every codec; garbage and bombs (K82).

use proptest::prelude::*;
use tidemill_wire::batch::{
    BatchError, Compression, InflateError, Records, RecordsError, ValidateOptions, compress, fuzz,
    validate,
};

use crate::{options, sample, wrap, wrap_raw};

/// Zigzag varint of a small or large number.
fn varint(value: i64) -> Vec<u8> {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    let mut out = Vec::new();
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
    out
}

/// A record of these fields after its length: attributes, timestamp, offset, then `rest`.
fn record(offset: i64, rest: &[Vec<u8>]) -> Vec<u8> {
    let body = [vec![0], varint(0), varint(offset), rest.concat()].concat();
    [varint(body.len() as i64), body].concat()
}

/// A good record: key "k", value "v", no headers.
fn good(offset: i64) -> Vec<u8> {
    record(
        offset,
        &[varint(1), vec![b'k'], varint(1), vec![b'v'], varint(0)],
    )
}

fn refused_in_every_codec(what: &str, count: i32, records: &[u8]) {
    for codec in Compression::ALL {
        let batch = wrap(codec, count, records);
        let error = validate(batch.into(), &options()).expect_err(what);
        assert_eq!(error.kafka_code(), 87, "{what} in {codec:?}: {error}");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn the_sound_form_of_these_is_accepted() {
    let records = [good(0), good(1)].concat();
    for codec in Compression::ALL {
        validate(wrap(codec, 2, &records).into(), &options()).expect("valid");
    }
    let null = record(0, &[varint(-1), varint(-1), varint(0)]);
    validate(wrap(Compression::None, 1, &null).into(), &options()).expect("valid");
}

#[test]
fn lying_lengths_are_refused() {
    let one = good(0);
    let with_length = |length: i64| [varint(length), one[1..].to_vec()].concat();
    refused_in_every_codec("length beyond the batch", 1, &with_length(1000));
    refused_in_every_codec("one byte beyond", 1, &with_length(one.len() as i64));
    refused_in_every_codec("length too short", 1, &with_length(one.len() as i64 - 2));
    refused_in_every_codec("greatest length", 1, &with_length(i64::from(i32::MAX)));
    refused_in_every_codec("negative length", 1, &with_length(-1));
    refused_in_every_codec("least length", 1, &with_length(i64::from(i32::MIN)));
    refused_in_every_codec("length of 64 bits", 1, &with_length(i64::MAX));
    refused_in_every_codec("zero length", 1, &[0]);
    refused_in_every_codec("endless varint", 1, &[0xff; 40]);
}

#[test]
fn lying_fields_are_refused() {
    let max = i64::from(i32::MAX);
    let key = |length| {
        record(
            0,
            &[varint(length), vec![b'k'], varint(1), vec![b'v'], varint(0)],
        )
    };
    refused_in_every_codec("greatest key length", 1, &key(max));
    refused_in_every_codec("key beyond its record", 1, &key(100));
    refused_in_every_codec("key length -2", 1, &key(-2));
    let value = |length| record(0, &[varint(-1), varint(length), vec![b'v'], varint(0)]);
    refused_in_every_codec("greatest value length", 1, &value(max));
    refused_in_every_codec("value length -5", 1, &value(-5));
    let headers = |count| record(0, &[varint(-1), varint(-1), varint(count)]);
    refused_in_every_codec("2^30 headers", 1, &headers(1 << 30));
    refused_in_every_codec("a header missing", 1, &headers(1));
    refused_in_every_codec("negative header count", 1, &headers(-1));
    let header = |length| record(0, &[varint(-1), varint(-1), varint(1), varint(length)]);
    refused_in_every_codec("null header key", 1, &header(-1));
    refused_in_every_codec("greatest header key", 1, &header(max));
    let header_value = [varint(-1), varint(-1), varint(1), varint(0), varint(max)];
    refused_in_every_codec("greatest header value", 1, &record(0, &header_value));
    let stray = record(0, &[varint(-1), varint(-1), varint(0), vec![1, 2, 3]]);
    refused_in_every_codec("stray bytes in a record", 1, &stray);
    let body = [
        vec![0],
        varint(i64::MAX),
        varint(0),
        varint(-1),
        varint(-1),
        varint(0),
    ]
    .concat();
    let far = [varint(body.len() as i64), body].concat();
    refused_in_every_codec("timestamp overflow", 1, &far);
}

#[test]
fn a_wrong_number_of_records_is_refused() {
    refused_in_every_codec(
        "stray byte after the last record",
        1,
        &[good(0), vec![0]].concat(),
    );
    refused_in_every_codec(
        "more records than the count",
        1,
        &[good(0), good(1)].concat(),
    );
    refused_in_every_codec(
        "fewer records than the count",
        3,
        &[good(0), good(1)].concat(),
    );
    refused_in_every_codec("no bytes at all", 1, &[]);
    refused_in_every_codec("zero bytes", 3, &[0; 300]);
    refused_in_every_codec("2^31-1 records", i32::MAX, &[good(0), good(1)].concat());
}

#[test]
fn offsets_must_be_dense() {
    refused_in_every_codec("gap", 2, &[good(0), good(2)].concat());
    refused_in_every_codec("repeated", 2, &[good(0), good(0)].concat());
    refused_in_every_codec("not from zero", 2, &[good(1), good(2)].concat());
    refused_in_every_codec("negative", 1, &good(-1));
}

#[test]
fn unknown_codecs_and_garbage_in_known_ones() {
    for codec in [5, 6, 7] {
        let error = validate(wrap_raw(codec, 1, &good(0)).into(), &options());
        assert_eq!(error, Err(BatchError::UnknownCodec(codec)));
        assert_eq!(BatchError::UnknownCodec(codec).kafka_code(), 76);
    }
    for codec in 1..=4 {
        for garbage in [&b""[..], b"\x00", b"garbage, not any codec's", &[0xff; 500]] {
            let batch = wrap_raw(codec, 1, garbage);
            let error = validate(batch.into(), &options()).expect_err("garbage");
            assert_eq!(error.kafka_code(), 87, "codec {codec}: {error}");
        }
    }
}

#[test]
fn cut_or_continued_compressed_data_is_refused() {
    for codec in &Compression::ALL[1..] {
        let whole = compress(*codec, None, &good(0).repeat(1)).expect("compressible");
        for cut in 0..whole.len() {
            let batch = wrap_raw(codec.id(), 1, &whole[..cut]);
            let error = validate(batch.into(), &options()).expect_err("cut");
            assert_eq!(error.kafka_code(), 87, "{codec:?} cut at {cut}");
        }
        let more = [&whole[..], b"more than one frame"].concat();
        let error = validate(wrap_raw(codec.id(), 1, &more).into(), &options());
        assert_eq!(
            error.map_err(|error| error.kafka_code()),
            Err(87),
            "{codec:?} continued"
        );
    }
}

#[test]
fn bombs_end_at_the_limit() {
    // One record whose value is 64 MiB of zeros, within a few hundred bytes for some codecs.
    let value = 64 << 20;
    let body = [vec![0], varint(0), varint(0), varint(-1), varint(value)].concat();
    let length = body.len() as i64 + value + 1;
    let mut records = [varint(length), body].concat();
    records.resize(records.len() + value as usize, 0);
    records.push(0);
    for codec in &Compression::ALL[1..] {
        let batch = wrap(*codec, 1, &records);
        let within = ValidateOptions {
            max_message_bytes: 100 << 20,
            ..options()
        };
        let valid = validate(batch.clone().into(), &within).expect("within the bound");
        assert_eq!(valid.inflated_bytes, records.len() as u64);
        let max = 1 << 20;
        let tight = ValidateOptions {
            max_inflated_bytes: max,
            ..within
        };
        let error = validate(batch.clone().into(), &tight).expect_err("beyond the bound");
        assert_eq!(error, BatchError::InflatedTooLarge { max });
        assert_eq!(error.kafka_code(), 10);
        let error = Records::open(&batch.into(), max).expect_err("beyond the bound");
        assert_eq!(error, RecordsError::Inflate(InflateError::TooLarge { max }));
    }
}

#[test]
fn a_claimed_snappy_length_allocates_nothing() {
    // Raw snappy claiming 4 GiB - 1, then Xerial blocks claiming it.
    let claim = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
    let raw = wrap_raw(2, 1, &claim);
    assert!(matches!(
        validate(raw.into(), &options()),
        Err(BatchError::Inflate(_))
    ));
    let framed = [b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x07", &claim[..]].concat();
    let framed = wrap_raw(2, 1, &framed);
    assert!(matches!(
        validate(framed.into(), &options()),
        Err(BatchError::Inflate(_))
    ));
    let block = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff\x00";
    let block = wrap_raw(2, 1, block);
    assert!(matches!(
        validate(block.into(), &options()),
        Err(BatchError::Inflate(_))
    ));
}

proptest! {
    #[test]
    fn any_bytes_end_in_a_value_or_an_error(
        data in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        fuzz::batch(&data);
        fuzz::compressed_batch(&data);
    }

    #[test]
    fn a_batch_with_some_bytes_changed_is_refused_or_sound(
        codec in 0_usize..5,
        count in 1_i64..6,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut batch = sample(Compression::ALL[codec], count).to_vec();
        for (at, value) in &changes {
            let at = at.index(batch.len());
            batch[at] = *value;
        }
        fuzz::batch(&batch);
        let mut compressed = vec![codec as u8, count as u8];
        compressed.extend_from_slice(&batch[61..]);
        fuzz::compressed_batch(&compressed);
    }
}
