//! What the codec does with values that do not fit and bytes that lie.

use bytes::Bytes;
use tidemill_wire::codec::{DecodeErrorKind, EncodeErrorKind};
use tidemill_wire::messages::fetch::{FetchableTopicResponse, PartitionData};
use tidemill_wire::messages::{
    ApiVersionsRequest, FetchRequest, FetchResponse, HeartbeatRequest, JoinGroupRequest,
    MetadataRequest, ProduceRequest, SyncGroupRequest,
};
use tidemill_wire::sample::Gen;
use tidemill_wire::{
    ApiKey, DecodeError, Decoder, Encoder, Message, Records, RequestKind, ResponseKind, Str,
};

fn decode<M: Message>(bytes: &[u8], version: i16) -> Result<M, DecodeError> {
    M::decode(&mut Decoder::new(Bytes::copy_from_slice(bytes)), version)
}

fn encode<M: Message>(message: &M, version: i16) -> Bytes {
    let mut encoder = Encoder::new();
    message
        .encode(&mut encoder, version)
        .expect("the version carries it");
    encoder.finish().to_bytes()
}

fn encode_fault<M: Message>(message: &M, version: i16) -> (EncodeErrorKind, &'static str) {
    let error = message
        .encode(&mut Encoder::new(), version)
        .expect_err("it does not fit");
    (error.kind, error.field)
}

#[test]
fn four_bytes_that_claim_2_to_the_31_topics() {
    let error = decode::<MetadataRequest>(&[0x7f, 0xff, 0xff, 0xff], 1).expect_err("a lie");
    assert_eq!(
        error.kind,
        DecodeErrorKind::TooManyItems {
            count: 0x7fff_ffff,
            left: 0
        }
    );
    assert_eq!(error.field, "MetadataRequest.topics");
    assert_eq!(
        error.to_string(),
        "`MetadataRequest.topics`: 2147483647 items claimed, 0 bytes left"
    );
    let error = decode::<MetadataRequest>(&[0xff, 0xff, 0xff, 0xff, 0x0f], 9).expect_err("a lie");
    assert_eq!(
        error.kind,
        DecodeErrorKind::TooManyItems {
            count: 0xffff_fffe,
            left: 0
        }
    );
}

#[test]
fn counts_are_held_against_what_an_element_needs() {
    // Three topic names need six bytes at least; five follow.
    let error = decode::<MetadataRequest>(&[0, 0, 0, 3, 0, 0, 0, 0, 0], 0).expect_err("a lie");
    assert_eq!(
        error.kind,
        DecodeErrorKind::TooManyItems { count: 3, left: 5 }
    );
}

#[test]
fn arrays_take_memory_in_proportion_to_their_bytes() {
    // Topics without a name or partitions: three bytes each, many times that in memory.
    let count: u32 = 10_000_000;
    let mut bytes = vec![1, 0xff, 0xff, 0, 0, 0, 0];
    let mut claim = count + 1;
    while claim >= 0x80 {
        bytes.push(claim as u8 | 0x80);
        claim >>= 7;
    }
    bytes.push(claim as u8);
    bytes.extend(std::iter::repeat_n([1, 1, 0], count as usize).flatten());
    let error = decode::<ProduceRequest>(&bytes, 9).expect_err("too much memory");
    assert_eq!(error.kind, DecodeErrorKind::MemoryLimit);
}

#[test]
fn arrays_take_no_more_memory_than_a_bound_however_many_bytes_there_are() {
    // Topics of twelve bytes each: no more in memory than sixteen times that.
    let count: u32 = 6_000_000;
    let mut bytes = count.to_be_bytes().to_vec();
    bytes.extend(std::iter::repeat_n(*b"\0\x0aabcdefghij", count as usize).flatten());
    let error = decode::<MetadataRequest>(&bytes, 0).expect_err("too much memory");
    assert_eq!(error.kind, DecodeErrorKind::MemoryLimit);
}

#[test]
fn lengths_below_minus_one() {
    let error = decode::<MetadataRequest>(&[0xff, 0xff, 0xff, 0xfe], 1).expect_err("negative");
    assert_eq!(error.kind, DecodeErrorKind::NegativeLength(-2));
    let error = decode::<HeartbeatRequest>(&[0x80, 0x00], 0).expect_err("negative");
    assert_eq!(error.kind, DecodeErrorKind::NegativeLength(-32768));
}

#[test]
fn null_only_where_the_version_has_it() {
    // Metadata v0 has no null array, v1 has: all topics.
    let null = [0xff, 0xff, 0xff, 0xff];
    let error = decode::<MetadataRequest>(&null, 0).expect_err("no null");
    assert_eq!(
        (error.kind, error.field),
        (DecodeErrorKind::Null, "MetadataRequest.topics")
    );
    assert_eq!(
        decode::<MetadataRequest>(&null, 1).expect("null").topics,
        None
    );
    let message = MetadataRequest {
        topics: None,
        ..Default::default()
    };
    assert_eq!(
        encode_fault(&message, 0),
        (EncodeErrorKind::Null, "MetadataRequest.topics")
    );
    assert_eq!(encode(&message, 1), null.as_slice());
    let error = decode::<HeartbeatRequest>(&[0xff, 0xff], 0).expect_err("no null");
    assert_eq!(error.kind, DecodeErrorKind::Null);
}

#[test]
fn strings_are_utf8_and_short() {
    let error = decode::<HeartbeatRequest>(&[0, 2, 0xc3, 0x28], 0).expect_err("not UTF-8");
    assert_eq!(error.kind, DecodeErrorKind::InvalidUtf8);
    assert_eq!(error.field, "HeartbeatRequest.group_id");
    // A compact string may not be longer than any other.
    let mut bytes = vec![0x81, 0x80, 0x02];
    bytes.resize(40_000, b'a');
    let error = decode::<HeartbeatRequest>(&bytes, 4).expect_err("too long");
    assert_eq!(error.kind, DecodeErrorKind::StringTooLong(32_768));
    let long = Str::from("a".repeat(32_768));
    let message = HeartbeatRequest {
        group_id: long,
        ..Default::default()
    };
    let fault = (
        EncodeErrorKind::TooLong(32_768),
        "HeartbeatRequest.group_id",
    );
    assert_eq!(encode_fault(&message, 0), fault);
    assert_eq!(encode_fault(&message, 4), fault);
}

#[test]
fn varints_end_within_32_bits() {
    let error = decode::<HeartbeatRequest>(&[0xff, 0xff, 0xff, 0xff, 0x1f], 4).expect_err("long");
    assert_eq!(error.kind, DecodeErrorKind::VarintOverflow);
    let error = decode::<HeartbeatRequest>(&[0x80; 9], 4).expect_err("long");
    assert_eq!(error.kind, DecodeErrorKind::VarintOverflow);
}

#[test]
fn tagged_fields() {
    let plain = encode(&FetchRequest::default(), 12);
    let (end, body) = plain.split_last().expect("not empty");
    assert_eq!(*end, 0);
    let with = |tags: &[u8]| decode::<FetchRequest>(&[body, tags].concat(), 12);
    // A known one, and an unknown one that is passed over.
    let read = with(&[2, 0, 2, 2, b'x', 77, 3, 1, 2, 3]).expect("both are fine");
    assert_eq!(read.cluster_id.as_deref(), Some("x"));
    // One of a later version is unknown in this one.
    assert_eq!(
        with(&[1, 1, 1, 9]).expect("unknown here"),
        FetchRequest::default()
    );
    let longer = with(&[1, 0, 3, 2, b'x', 0]).expect_err("longer than its value");
    assert_eq!(longer.kind, DecodeErrorKind::TagSize { tag: 0, left: 1 });
    let shorter = with(&[1, 0, 1, 2, b'x']).expect_err("shorter than its value");
    assert!(
        matches!(shorter.kind, DecodeErrorKind::Truncated { .. }),
        "{shorter}"
    );
    let beyond = with(&[1, 77, 0xff, 0xff, 0xff, 0xff, 0x0f]).expect_err("beyond the end");
    assert!(
        matches!(beyond.kind, DecodeErrorKind::Truncated { .. }),
        "{beyond}"
    );
    let many = with(&[0xff, 0xff, 0xff, 0xff, 0x0f]).expect_err("beyond the end");
    assert!(
        matches!(many.kind, DecodeErrorKind::Truncated { .. }),
        "{many}"
    );
}

#[test]
fn what_a_version_lacks_is_dropped_or_refused() {
    // Ignorable: dropped.
    let named = ApiVersionsRequest {
        client_software_name: "x".into(),
        ..Default::default()
    };
    assert!(encode(&named, 0).is_empty());
    // Not ignorable: refused, naming the field.
    let message = HeartbeatRequest {
        group_instance_id: Some("i".into()),
        ..Default::default()
    };
    let fault = (
        EncodeErrorKind::NotInVersion(2),
        "HeartbeatRequest.group_instance_id",
    );
    assert_eq!(encode_fault(&message, 2), fault);
    let request = JoinGroupRequest::default();
    assert_eq!(request.rebalance_timeout_ms, -1);
    assert_eq!(
        decode::<JoinGroupRequest>(&encode(&request, 0), 0).expect("read"),
        request
    );
}

#[test]
fn versions_out_of_range() {
    let fault = encode_fault(&HeartbeatRequest::default(), 5);
    assert_eq!(
        fault,
        (EncodeErrorKind::UnsupportedVersion(5), "HeartbeatRequest")
    );
    for version in [-1, 2, i16::MIN] {
        let error = decode::<ProduceRequest>(&[0; 64], version).expect_err("not served");
        assert_eq!(error.kind, DecodeErrorKind::UnsupportedVersion(version));
    }
}

#[test]
fn bytes_behind_a_message_are_left() {
    let mut bytes = encode(&HeartbeatRequest::default(), 4).to_vec();
    bytes.extend([1, 2, 3]);
    let mut decoder = Decoder::new(bytes.into());
    HeartbeatRequest::decode(&mut decoder, 4).expect("as Kafka takes it");
    assert_eq!(decoder.rest(), [1, 2, 3].as_slice());
}

fn cut_everywhere(name: &str, whole: &Bytes, read: impl Fn(&mut Decoder) -> bool) {
    let step = whole.len() / 400 + 1;
    for end in (0..whole.len())
        .step_by(step)
        .chain(whole.len().checked_sub(1))
    {
        assert!(
            !read(&mut Decoder::new(whole.slice(..end))),
            "{name} cut at {end}"
        );
    }
    assert!(read(&mut Decoder::new(whole.clone())), "{name} whole");
}

#[test]
fn truncated_at_every_byte() {
    for key in ApiKey::ALL {
        for version in key.versions() {
            let mut g = Gen::new(version as u64);
            let mut encoder = Encoder::new();
            let request = RequestKind::sample(*key, version, &mut g);
            request
                .encode(&mut encoder, version)
                .expect("a sample fits");
            cut_everywhere(
                &format!("{key} v{version}"),
                &encoder.finish().to_bytes(),
                |d| RequestKind::decode(*key, version, d).is_ok(),
            );
            let mut encoder = Encoder::new();
            let response = ResponseKind::sample(*key, version, &mut g);
            response
                .encode(&mut encoder, version)
                .expect("a sample fits");
            cut_everywhere(
                &format!("{key} v{version}"),
                &encoder.finish().to_bytes(),
                |d| ResponseKind::decode(*key, version, d).is_ok(),
            );
        }
    }
}

fn fetch_response(payloads: &[Bytes]) -> FetchResponse {
    let partition = |(index, payload): (usize, &Bytes)| PartitionData {
        partition_index: index as i32,
        records: Some(Records::from(payload.clone())),
        ..Default::default()
    };
    let topic = FetchableTopicResponse {
        partitions: payloads.iter().enumerate().map(partition).collect(),
        ..Default::default()
    };
    FetchResponse {
        responses: vec![topic],
        ..Default::default()
    }
}

#[test]
fn long_payloads_are_shared_and_short_ones_copied() {
    let payloads = [vec![1; 100_000], vec![2; 10], vec![3; 1024]].map(Bytes::from);
    let response = fetch_response(&payloads);
    for version in FetchResponse::VERSIONS {
        let mut encoder = Encoder::frame();
        response.encode(&mut encoder, version).expect("it fits");
        let frame = encoder.finish_frame().expect("it fits");
        let shared: Vec<_> = frame.slices.iter().filter(|s| s.len() >= 1024).collect();
        assert_eq!(shared.len(), 2, "v{version}");
        let at = |index: usize| shared[index].memory().map(|bytes| bytes.as_ptr());
        assert_eq!(at(0), Some(payloads[0].as_ptr()));
        assert_eq!(at(1), Some(payloads[2].as_ptr()));
        let whole = frame.to_bytes();
        assert_eq!(whole.len(), frame.len());
        assert_eq!(whole[..4], (whole.len() as i32 - 4).to_be_bytes());
        let read = FetchResponse::decode(&mut Decoder::new(whole.slice(4..)), version);
        assert_eq!(read.expect("it is read"), response, "v{version}");
    }
}

#[test]
fn records_and_strings_are_read_in_place() {
    let request = SyncGroupRequest {
        group_id: "group".into(),
        ..Default::default()
    };
    let bytes = encode(&request, 5);
    let read = SyncGroupRequest::decode(&mut Decoder::new(bytes.clone()), 5).expect("it is read");
    assert_eq!(read.group_id.as_bytes().as_ptr(), bytes[1..].as_ptr());
    assert_ne!(
        read.group_id.detached().as_bytes().as_ptr(),
        bytes[1..].as_ptr()
    );
    let whole = encode(&fetch_response(&[Bytes::from(vec![1; 5000])]), 12);
    let read = FetchResponse::decode(&mut Decoder::new(whole.clone()), 12).expect("it is read");
    let records = read.responses[0].partitions[0]
        .records
        .as_ref()
        .expect("not null");
    assert!(whole.as_ptr_range().contains(&records.to_bytes().as_ptr()));
}

#[test]
fn records_are_equal_however_they_are_cut() {
    let whole = Records::from(Bytes::from_static(b"abcdef"));
    let slices = ["", "ab", "", "cd", "ef"].map(|s| Bytes::from_static(s.as_bytes()));
    let cut: Records = slices.into_iter().collect();
    assert_eq!((cut.len(), cut.slices().count()), (6, 3));
    assert_eq!(cut, whole);
    assert_eq!(cut.to_bytes(), whole.to_bytes());
    assert_ne!(cut, Records::new());
    assert!(Records::new().is_empty() && Records::new().slices().next().is_none());
}

#[test]
fn a_str_is_its_text() {
    let text = Str::from("tide".to_owned());
    assert_eq!(text, Str::from_static("tide"));
    assert!(text == "tide" && text.len() == 4);
    assert_eq!(format!("{text} {text:?}"), "tide \"tide\"");
    assert!([Str::from("a"), Str::from("b")].is_sorted());
    let map = std::collections::HashMap::from([(text, 1)]);
    assert_eq!(map.get("tide"), Some(&1));
}
