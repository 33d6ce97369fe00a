//! Records of internal topics.

use bytes::Bytes;
use tidemill_wire::codec::DecodeErrorKind;
use tidemill_wire::ids::TopicId;
use tidemill_wire::records::group_metadata::MemberMetadata;
use tidemill_wire::records::{
    self, ConsumerProtocolSubscription, GroupMetadataKey, GroupMetadataValue, OffsetCommitKey,
    OffsetCommitValue, TransactionLogValue,
};
use tidemill_wire::{Decoder, Message};

#[test]
fn an_offset_commit_as_kafka_writes_it() {
    let key = OffsetCommitKey {
        group: "g".into(),
        topic: "t".into(),
        partition: 7,
    };
    let bytes = records::encode_key(records::OFFSET_COMMIT_KEY, &key).expect("it fits");
    assert_eq!(
        bytes,
        b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x07".as_slice()
    );
    let (key_type, mut decoder) = records::key_type(bytes).expect("a key");
    assert_eq!(key_type, 1);
    assert_eq!(
        OffsetCommitKey::decode(&mut decoder, 0).expect("it is read"),
        key
    );

    let value = OffsetCommitValue {
        offset: 5,
        leader_epoch: 2,
        metadata: "m".into(),
        commit_timestamp: 9,
        ..Default::default()
    };
    let bytes = records::encode_value(&value, 3).expect("it fits");
    let expected = b"\0\x03\0\0\0\0\0\0\0\x05\0\0\0\x02\0\x01m\0\0\0\0\0\0\0\x09".as_slice();
    assert_eq!(bytes, expected);
    assert_eq!(
        records::decode_value::<OffsetCommitValue>(bytes).expect("it is read"),
        value
    );

    let with_id = OffsetCommitValue {
        topic_id: TopicId([1; 16]),
        ..value
    };
    let bytes = records::encode_value(&with_id, 4).expect("it fits");
    assert_eq!(
        records::decode_value::<OffsetCommitValue>(bytes).expect("it is read"),
        with_id
    );
}

#[test]
fn group_metadata_in_every_version() {
    let member = MemberMetadata {
        member_id: "m".into(),
        subscription: Bytes::from_static(b"s"),
        assignment: Bytes::from_static(b"a"),
        ..Default::default()
    };
    let value = GroupMetadataValue {
        protocol_type: "consumer".into(),
        generation: 3,
        protocol: Some("range".into()),
        leader: None,
        members: vec![member.clone(), member],
        ..Default::default()
    };
    for version in GroupMetadataValue::VERSIONS {
        let bytes = records::encode_value(&value, version).expect("it fits");
        assert_eq!(
            records::decode_value::<GroupMetadataValue>(bytes).expect("read"),
            value
        );
    }
    let key = records::encode_key(2, &GroupMetadataKey { group: "g".into() }).expect("it fits");
    assert_eq!(key, b"\x00\x02\x00\x01g".as_slice());
}

#[test]
fn unknown_value_versions_are_refused() {
    let error = records::decode_value::<OffsetCommitValue>(Bytes::from_static(&[0, 9, 0, 0]));
    assert_eq!(
        error.expect_err("unknown").kind,
        DecodeErrorKind::UnsupportedVersion(9)
    );
    let value = TransactionLogValue {
        producer_id: 1,
        ..Default::default()
    };
    assert_eq!(value.previous_producer_id, -1);
    for version in 0..=1 {
        let bytes = records::encode_value(&value, version).expect("it fits");
        assert_eq!(
            records::decode_value::<TransactionLogValue>(bytes).expect("read"),
            value
        );
    }
}

#[test]
fn a_subscription_of_a_later_version_is_read_as_the_newest_known() {
    let subscription = ConsumerProtocolSubscription {
        topics: vec!["t".into()],
        rack_id: Some("r".into()),
        ..Default::default()
    };
    let mut bytes = records::encode_value(&subscription, 3)
        .expect("it fits")
        .to_vec();
    bytes[1] = 99;
    bytes.extend([1, 2, 3]);
    let read = records::decode_consumer_protocol(bytes.into());
    assert_eq!(read, Ok(subscription));
    let empty = records::decode_consumer_protocol::<ConsumerProtocolSubscription>(Bytes::new());
    assert!(empty.is_err());
    assert!(
        Decoder::new(Bytes::new())
            .message::<GroupMetadataKey>(0)
            .is_err()
    );
}
