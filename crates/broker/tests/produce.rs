//! Produce: K25, K37-K43, K80, K82, K84.

mod common;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::{Client, admin::alter, batch, produce_request, start, values};
use tidemill_wire::{
    ErrorCode, Str,
    batch::{BatchBuilder, BatchHeader, Compression, TimestampType, verify_crc},
    ids::{ProducerEpoch, ProducerId},
    messages::{
        create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest},
        init_producer_id::InitProducerIdRequest,
        produce::{ProduceRequest, TopicProduceData},
    },
};

fn sequenced(producer: i64, epoch: i16, sequence: i32, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.producer(ProducerId(producer), ProducerEpoch(epoch), sequence);
    for value in values {
        builder
            .push(&common::record(value, common::NOW_MS))
            .expect("small");
    }
    builder.build().expect("a batch")
}

async fn expect(client: &mut Client, batch: Bytes, code: ErrorCode) -> i64 {
    let response = client.produce("t", 0, batch).await;
    assert_eq!(response.error_code, code);
    response.base_offset
}

#[tokio::test(start_paused = true)]
async fn what_is_acknowledged_is_read_at_its_offset_in_every_version() {
    let h = start().await;
    let id = h.topic("t", 2).await;
    let mut client = h.connect();
    for (count, version) in (3..=13).enumerate() {
        let mut request = produce_request("t", &[(1, batch(&["a", "b"]))]);
        request.topic_data[0].topic_id = id;
        let response = client.call(version, &request).await;
        let part = &response.responses[0].partition_responses[0];
        assert_eq!(part.error_code, ErrorCode::NONE, "version {version}");
        assert_eq!(part.base_offset, 2 * i64::try_from(count).expect("small"));
        assert_eq!((part.index, part.log_append_time_ms), (1, -1));
        let name = if version >= 13 { "" } else { "t" };
        assert_eq!(response.responses[0].name, *name);
    }
    let data = client.fetch("t", 1, 21).await;
    assert_eq!(
        values(&data),
        ["a", "b"],
        "the whole batch that holds the offset (K10)"
    );
    assert_eq!((data.high_watermark, data.log_start_offset), (22, 0));
}

#[tokio::test(start_paused = true)]
async fn k37_k38_what_is_no_single_valid_batch_is_refused_alone() {
    let h = start().await;
    h.topic("t", 3).await;
    let good = batch(&["a"]);
    let mut two = good.to_vec();
    two.extend_from_slice(&good);
    let mut crc = BytesMut::from(good.as_ref());
    crc[20] ^= 1;
    let mut magic = BytesMut::from(good.as_ref());
    magic[16] = 1;
    let cases = [
        (Bytes::from(two), ErrorCode::INVALID_RECORD),
        (crc.freeze(), ErrorCode::CORRUPT_MESSAGE),
        (magic.freeze(), ErrorCode::INVALID_RECORD),
        (Bytes::new(), ErrorCode::INVALID_RECORD),
        (good.slice(..good.len() - 1), ErrorCode::INVALID_RECORD),
    ];
    let mut client = h.connect();
    for (bad, code) in cases {
        let parts = [(0, good.clone()), (1, bad), (2, good.clone())];
        let response = client.call(9, &produce_request("t", &parts)).await;
        let codes: Vec<_> = response.responses[0]
            .partition_responses
            .iter()
            .map(|part| part.error_code)
            .collect();
        assert_eq!(codes, [ErrorCode::NONE, code, ErrorCode::NONE]);
        assert_eq!(response.responses[0].partition_responses[1].base_offset, -1);
    }
    assert!(
        values(&client.fetch("t", 1, 0).await).is_empty(),
        "nothing appended"
    );
}

/// Large batches are hashed in pieces.
#[tokio::test(start_paused = true)]
async fn k37_a_changed_byte_anywhere_in_a_large_batch_is_found() {
    let h = start().await;
    h.topic("t", 3).await;
    let long = |fill: &str, len: usize| fill.repeat(len);
    let (a, c) = (long("a", 300_001), long("c", 700_003));
    let (first, last) = (batch(&[&a, "1"]), batch(&[&c, &a, "2"]));
    let mut client = h.connect();
    for at in [60, 61, 24_575, 24_576, 100_000, 499_999] {
        let mut middle = BytesMut::from(batch(&[&long("b", 500_000)]).as_ref());
        middle[at] ^= 0x10;
        let parts = [(0, first.clone()), (1, middle.freeze()), (2, last.clone())];
        let response = client.call(9, &produce_request("t", &parts)).await;
        let codes = response.responses[0].partition_responses.iter();
        let codes: Vec<_> = codes.map(|part| part.error_code).collect();
        let wanted = [ErrorCode::NONE, ErrorCode::CORRUPT_MESSAGE, ErrorCode::NONE];
        assert_eq!(codes, wanted, "byte {at}");
    }
    assert_eq!(values(&client.fetch("t", 0, 10).await), [&a, "1"]);
    assert_eq!(values(&client.fetch("t", 2, 15).await), [&c, &a, "2"]);
}

#[tokio::test(start_paused = true)]
async fn k37_zstd_needs_version_7() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut builder = BatchBuilder::new(Compression::Zstd);
    builder
        .push(&common::record("z", common::NOW_MS))
        .expect("small");
    let request = produce_request("t", &[(0, builder.build().expect("a batch"))]);
    let mut client = h.connect();
    for (version, code) in [
        (6, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE),
        (7, ErrorCode::NONE),
    ] {
        let response = client.call(version, &request).await;
        assert_eq!(
            response.responses[0].partition_responses[0].error_code,
            code
        );
    }
}

#[tokio::test(start_paused = true)]
async fn k39_a_batch_over_the_limit_is_refused_without_a_close() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let large = "x".repeat(1_100_000);
    expect(&mut client, batch(&[&large]), ErrorCode::MESSAGE_TOO_LARGE).await;
    expect(&mut client, batch(&["small"]), ErrorCode::NONE).await;
}

#[tokio::test(start_paused = true)]
async fn k41_acks_0_is_not_answered_and_an_error_closes() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let request = |topic| ProduceRequest {
        acks: 0,
        ..produce_request(topic, &[(0, batch(&["a"]))])
    };
    client.send(9, &request("t")).await;
    assert_eq!(
        values(&client.fetch("t", 0, 0).await),
        ["a"],
        "the next answer is the fetch's"
    );
    client.send(9, &request("nowhere")).await;
    assert!(client.closed().await);
}

#[tokio::test(start_paused = true)]
async fn k42_acks_and_timeouts() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    for acks in [2, -2, i16::MAX] {
        let request = ProduceRequest {
            acks,
            ..produce_request("t", &[(0, batch(&["a"]))])
        };
        let response = client.call(9, &request).await;
        let part = &response.responses[0].partition_responses[0];
        assert_eq!(part.error_code, ErrorCode::INVALID_REQUIRED_ACKS);
    }
    // A store that takes a minute: the client is told in its time, the batch comes all the same.
    h.backend.pause();
    let request = ProduceRequest {
        timeout_ms: 2_000,
        ..produce_request("t", &[(0, batch(&["b"]))])
    };
    let began = h.runtime.clock.monotonic();
    let response = client.call(9, &request).await;
    let part = &response.responses[0].partition_responses[0];
    assert_eq!(part.error_code, ErrorCode::REQUEST_TIMED_OUT);
    assert_eq!((h.runtime.clock.monotonic() - began).as_secs(), 2);
    h.backend.heal();
    h.sleep(Duration::from_secs(60)).await;
    assert_eq!(values(&client.fetch("t", 0, 0).await), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn k43_unknown_topics_and_partitions_fail_by_themselves() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let mut request = produce_request("t", &[(0, batch(&["a"])), (7, batch(&["a"]))]);
    request.topic_data.push(TopicProduceData {
        name: Str::from("nowhere"),
        ..produce_request("", &[(0, batch(&["a"]))])
            .topic_data
            .remove(0)
    });
    let response = client.call(10, &request).await;
    let codes: Vec<_> = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .map(|part| part.error_code.0)
        .collect();
    assert_eq!(codes, [0, 3, 3]);
    assert!(response.node_endpoints.is_empty());
    let response = client.call(13, &request).await;
    let codes: Vec<_> = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .map(|part| part.error_code.0)
        .collect();
    assert_eq!(codes, [100, 100, 100], "the request names no id");
}

#[tokio::test(start_paused = true)]
async fn k25_a_resend_gets_its_first_offset() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let init = InitProducerIdRequest::default();
    let producer = client.call(4, &init).await.producer_id;
    let other = client.call(4, &init).await.producer_id;
    assert_ne!(producer, other);
    assert_eq!(
        producer >> 32,
        i64::try_from(h.log.writer().0).expect("small")
    );
    for sequence in 0..6 {
        let batch = sequenced(producer, 0, sequence, &["v"]);
        let offset = expect(&mut client, batch, ErrorCode::NONE).await;
        assert_eq!(offset, i64::from(sequence));
    }
    for sequence in 1..6 {
        let batch = sequenced(producer, 0, sequence, &["v"]);
        let offset = expect(&mut client, batch, ErrorCode::NONE).await;
        assert_eq!(offset, i64::from(sequence), "resent");
    }
    let old = sequenced(producer, 0, 0, &["v"]);
    expect(&mut client, old, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER).await;
    let gap = sequenced(producer, 0, 9, &["v"]);
    expect(&mut client, gap, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER).await;
    let next_epoch = sequenced(producer, 1, 0, &["w"]);
    assert_eq!(expect(&mut client, next_epoch, ErrorCode::NONE).await, 6);
    let fenced = sequenced(producer, 0, 6, &["v"]);
    expect(&mut client, fenced, ErrorCode::INVALID_PRODUCER_EPOCH).await;
}

#[tokio::test(start_paused = true)]
async fn idempotent_batches_in_flight_keep_their_order_and_their_offsets() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    for sequence in 0..5 {
        let batch = sequenced(77, 0, sequence, &["v"]);
        client.send(9, &produce_request("t", &[(0, batch)])).await;
    }
    // The first again while it is pending (R5).
    client
        .send(
            9,
            &produce_request("t", &[(0, sequenced(77, 0, 0, &["v"]))]),
        )
        .await;
    for offset in [0, 1, 2, 3, 4, 0] {
        let (_, response) = client.receive::<ProduceRequest>(9).await;
        let part = &response.responses[0].partition_responses[0];
        assert_eq!(
            (part.error_code, part.base_offset),
            (ErrorCode::NONE, offset)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn transactional_batches_are_refused() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let mut builder = BatchBuilder::new(Compression::None);
    builder
        .producer(ProducerId(5), ProducerEpoch(0), 0)
        .transactional();
    builder
        .push(&common::record("x", common::NOW_MS))
        .expect("small");
    let batch = builder.build().expect("a batch");
    expect(&mut client, batch, ErrorCode::INVALID_TXN_STATE).await;
    let init = InitProducerIdRequest {
        transactional_id: Some(Str::from("tx")),
        transaction_timeout_ms: 1_000,
        ..InitProducerIdRequest::default()
    };
    assert_eq!(
        client.call(4, &init).await.error_code,
        ErrorCode::INVALID_REQUEST
    );
}

async fn topic_with(client: &mut Client, configs: &[(&str, &str)]) {
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
        name: Str::from((*name).to_owned()),
        value: Some(Str::from((*value).to_owned())),
    });
    let topic = CreatableTopic {
        name: Str::from("t"),
        num_partitions: 1,
        replication_factor: 1,
        configs: configs.collect(),
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        ..CreateTopicsRequest::default()
    };
    assert_eq!(
        client.call(7, &request).await.topics[0].error_code,
        ErrorCode::NONE
    );
}

#[tokio::test(start_paused = true)]
async fn k22_k23_timestamps() {
    let h = start().await;
    let mut client = h.connect();
    topic_with(&mut client, &[("message.timestamp.type", "LogAppendTime")]).await;
    let now = h.runtime.clock.now_ms();
    let response = client.produce("t", 0, batch(&["a"])).await;
    assert_eq!(response.log_append_time_ms, now);
    let data = client.fetch("t", 0, 0).await;
    let records = data.records.expect("never null").to_bytes();
    let header = BatchHeader::parse(&records).expect("a batch");
    assert_eq!(header.max_timestamp, now);
    assert_eq!(
        header.attributes.timestamp_type(),
        TimestampType::LogAppendTime
    );
    assert_eq!(verify_crc(&records), Ok(true));
    h.topic("create", 1).await;
    let hour = 3_600_000;
    for (time, code) in [(-1, 0), (0, 0), (hour, 0), (hour + 10_000, 32)] {
        let mut builder = BatchBuilder::new(Compression::None);
        let time = if time < hour { time } else { now + time };
        builder.push(&common::record("x", time)).expect("small");
        let response = client
            .produce("create", 0, builder.build().expect("a batch"))
            .await;
        assert_eq!(response.error_code.0, code, "{time}");
    }
}

#[tokio::test(start_paused = true)]
async fn k40_bytes_are_kept_unless_the_topic_wants_its_own_codec() {
    let h = start().await;
    h.topic("kept", 1).await;
    let mut client = h.connect();
    topic_with(&mut client, &[("compression.type", "zstd")]).await;
    let value = "v".repeat(500);
    for codec in Compression::ALL {
        let mut builder = BatchBuilder::new(codec);
        builder
            .push(&common::record(&value, common::NOW_MS))
            .expect("small");
        let sent = builder.build().expect("a batch");
        for (topic, stored) in [("kept", codec), ("t", Compression::Zstd)] {
            let response = client.produce(topic, 0, sent.clone()).await;
            assert_eq!(response.error_code, ErrorCode::NONE);
            let data = client.fetch(topic, 0, response.base_offset).await;
            assert_eq!(values(&data), std::slice::from_ref(&value));
            let bytes = data.records.expect("never null").to_bytes();
            let header = BatchHeader::parse(&bytes).expect("a batch");
            assert_eq!(header.attributes.compression(), Some(stored));
            assert_eq!(verify_crc(&bytes), Ok(true));
            if topic == "kept" {
                assert_eq!(bytes[16..], sent[16..], "all behind offset and epoch");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn k82_the_same_partition_twice_and_null_records() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let request = produce_request("t", &[(0, batch(&["a"])), (0, batch(&["b"]))]);
    let response = client.call(9, &request).await;
    let parts = &response.responses[0].partition_responses;
    let answers: Vec<_> = parts
        .iter()
        .map(|part| (part.error_code.0, part.base_offset))
        .collect();
    assert_eq!(answers, [(0, 0), (0, 1)]);
    let mut request = produce_request("t", &[(0, batch(&["c"]))]);
    request.topic_data[0].partition_data[0].records = None;
    let response = client.call(9, &request).await;
    let part = &response.responses[0].partition_responses[0];
    assert_eq!(part.error_code, ErrorCode::INVALID_RECORD);
}

fn timed(timestamps: &[i64]) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None);
    for timestamp in timestamps {
        builder
            .push(&common::record("v", *timestamp))
            .expect("small");
    }
    builder.build().expect("a batch")
}

#[tokio::test(start_paused = true)]
async fn kip_467_the_records_to_blame_are_named_as_kafka_names_them() {
    let h = start().await;
    h.topic("t", 2).await;
    let mut client = h.connect();
    let (now, late) = (common::NOW_MS, common::NOW_MS + 9_999_999);
    let parts = [(0, timed(&[now, late, now, late])), (1, timed(&[now]))];
    for version in [8, 9, 13] {
        let mut request = produce_request("t", &parts);
        let image = h.cluster.image();
        request.topic_data[0].topic_id = image.topic_by_name("t").expect("it exists").id;
        let response = client.call(version, &request).await;
        let [refused, taken] = &response.responses[0].partition_responses[..] else {
            panic!("two partitions");
        };
        assert_eq!(refused.error_code, ErrorCode::INVALID_TIMESTAMP);
        assert_eq!(refused.base_offset, -1);
        let indexes: Vec<_> = refused
            .record_errors
            .iter()
            .map(|one| one.batch_index)
            .collect();
        assert_eq!(indexes, [1, 3], "version {version}");
        for one in &refused.record_errors {
            let text = one.batch_index_error_message.as_deref().expect("says why");
            assert!(text.contains(&late.to_string()), "{text}");
        }
        assert!(refused.error_message.is_some());
        assert_eq!(
            (taken.error_code, taken.record_errors.len()),
            (ErrorCode::NONE, 0)
        );
    }
    // Before version 8 there is no place for them. What is no batch blames no record, as in Kafka.
    let response = client.call(7, &produce_request("t", &parts)).await;
    let refused = &response.responses[0].partition_responses[0];
    assert_eq!(refused.error_code, ErrorCode::INVALID_TIMESTAMP);
    assert!(refused.record_errors.is_empty());
    let two = [batch(&["a"]), batch(&["b"])].concat();
    let refused = client.produce("t", 0, Bytes::from(two)).await;
    assert_eq!(refused.error_code, ErrorCode::INVALID_RECORD);
    assert!(refused.record_errors.is_empty());
}

/// How long the second of two produces takes, right after the first, in milliseconds.
async fn second_takes(h: &common::Harness, client: &mut Client) -> u64 {
    // The last PUT is long ago.
    h.sleep(Duration::from_secs(1)).await;
    client.produce("t", 0, batch(&["a"])).await;
    let start = h.runtime.clock.monotonic();
    client.produce("t", 0, batch(&["b"])).await;
    let took = h.runtime.clock.monotonic() - start;
    u64::try_from(took.as_millis()).expect("short")
}

#[tokio::test(start_paused = true)]
async fn tidemill_latency_is_changed_live() {
    const SET: i8 = 0;
    const DELETE: i8 = 1;
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    assert!(
        second_takes(&h, &mut client).await < 5,
        "the default of memory"
    );
    for (class, least, most) in [("balanced", 45, 52), ("economy", 240, 252), ("low", 0, 4)] {
        let changes = [("tidemill.latency", SET, class)];
        assert_eq!(alter(&mut client, 2, "t", &changes).await, 0);
        let took = second_takes(&h, &mut client).await;
        assert!((least..=most).contains(&took), "{class}: {took} ms");
    }
    // The broker's key is the default of topics without one.
    let changes = [("tidemill.latency", DELETE, "")];
    assert_eq!(alter(&mut client, 2, "t", &changes).await, 0);
    let changes = [("tidemill.latency", SET, "economy")];
    assert_eq!(alter(&mut client, 4, "", &changes).await, 0);
    let took = second_takes(&h, &mut client).await;
    assert!((240..=252).contains(&took), "{took} ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_many_partitions_is_one_put() {
    let h = start().await;
    h.topic("t", 50).await;
    let mut client = h.connect();
    let parts: Vec<_> = (0..50).map(|index| (index, batch(&["x"]))).collect();
    let before = h.log.store().counters().puts;
    for _ in 0..20 {
        let response = client.call(9, &produce_request("t", &parts)).await;
        let parts = &response.responses[0].partition_responses;
        assert!(parts.iter().all(|part| part.error_code == ErrorCode::NONE));
    }
    assert_eq!(h.log.store().counters().puts - before, 20);
}
