//! Fetch and its sessions: K10-K15, K80, F21, F22, F24.

mod common;

use std::time::Duration;

use common::{Client, batch, fetch_request, produce_request, start, values};
use tidemill_broker::config::BrokerConfig;
use tidemill_runtime::Runtime;
use tidemill_wire::{
    ErrorCode,
    ids::TopicId,
    messages::{
        delete_topics::DeleteTopicsRequest,
        fetch::{FetchRequest, FetchResponse, ForgottenTopic, PartitionData},
    },
};

async fn put(client: &mut Client, index: i32, values: &[&str]) {
    let response = client.produce("t", index, batch(values)).await;
    assert_eq!(response.error_code, ErrorCode::NONE);
}

fn parts(response: &FetchResponse) -> Vec<&PartitionData> {
    response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn every_version_is_served() {
    let h = start().await;
    let id = h.topic("t", 1).await;
    let mut client = h.connect();
    put(&mut client, 0, &["a", "b"]).await;
    for version in 4..=18 {
        let mut request = fetch_request("t", &[(0, 0)]);
        request.topics[0].topic_id = id;
        let response = client.call(version, &request).await;
        assert_eq!(response.error_code, ErrorCode::NONE);
        assert_eq!(response.session_id, 0, "epoch -1 asks for no session");
        let data = parts(&response)[0];
        assert_eq!(values(data), ["a", "b"], "version {version}");
        assert_eq!((data.high_watermark, data.last_stable_offset), (2, 2));
        let topic = &response.responses[0];
        assert_eq!(
            topic.topic_id,
            if version >= 13 { id } else { TopicId::ZERO }
        );
    }
}

#[tokio::test(start_paused = true)]
async fn k10_k11_whole_batches_and_at_least_one() {
    let h = start().await;
    h.topic("t", 2).await;
    let mut client = h.connect();
    put(&mut client, 0, &["a", "b", "c"]).await;
    put(&mut client, 0, &["d"]).await;
    put(&mut client, 1, &["e"]).await;
    assert_eq!(values(&client.fetch("t", 0, 1).await), ["a", "b", "c", "d"]);
    let mut request = fetch_request("t", &[(0, 2), (1, 0)]);
    for limit in [0, 1, 70] {
        request.max_bytes = limit;
        let response = client.call(11, &request).await;
        assert_eq!(
            values(parts(&response)[0]),
            ["a", "b", "c"],
            "max_bytes {limit}"
        );
        assert!(
            values(parts(&response)[1]).is_empty(),
            "the budget is used up"
        );
    }
    request.max_bytes = 1 << 20;
    request.topics[0].partitions[0].partition_max_bytes = 1;
    let response = client.call(11, &request).await;
    assert_eq!(values(parts(&response)[0]), ["a", "b", "c"]);
    assert_eq!(values(parts(&response)[1]), ["e"]);
}

#[tokio::test(start_paused = true)]
async fn k12_f21_one_wait_for_the_whole_request() {
    let h = start().await;
    h.topic("t", 100).await;
    let mut client = h.connect();
    let all: Vec<_> = (0..100).map(|index| (index, 0)).collect();
    let began = h.runtime.clock.monotonic();
    let response = client.call(11, &fetch_request("t", &all)).await;
    let took = h.runtime.clock.monotonic() - began;
    assert!(
        took >= Duration::from_millis(500) && took < Duration::from_millis(520),
        "{took:?}"
    );
    for data in parts(&response) {
        assert_eq!((data.error_code, data.high_watermark), (ErrorCode::NONE, 0));
        assert!(
            data.records
                .as_ref()
                .is_some_and(|records| records.is_empty()),
            "K80"
        );
    }
    // min_bytes 0 asks for an answer at once.
    let began = h.runtime.clock.monotonic();
    client
        .call(
            11,
            &FetchRequest {
                min_bytes: 0,
                ..fetch_request("t", &all)
            },
        )
        .await;
    assert!(h.runtime.clock.monotonic() - began < Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn f22_a_commit_wakes_a_waiting_fetch_without_a_store_request() {
    let h = start().await;
    h.topic("t", 2).await;
    let (mut reader, mut writer) = (h.connect(), h.connect());
    let request = FetchRequest {
        max_wait_ms: 60_000,
        ..fetch_request("t", &[(0, 0), (1, 0)])
    };
    let began = h.runtime.clock.monotonic();
    reader.send(11, &request).await;
    h.sleep(Duration::from_secs(5)).await;
    let gets = h.log.store().counters();
    h.sleep(Duration::from_secs(4)).await;
    assert_eq!(h.log.store().counters(), gets, "waiting costs nothing");
    put(&mut writer, 1, &["a"]).await;
    let (_, response) = reader.receive::<FetchRequest>(11).await;
    let took = h.runtime.clock.monotonic() - began;
    assert!(took < Duration::from_millis(9_100), "{took:?}");
    assert_eq!(values(parts(&response)[1]), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn k12_min_bytes_are_gathered_over_several_commits() {
    let h = start().await;
    h.topic("t", 2).await;
    let (mut reader, mut writer) = (h.connect(), h.connect());
    let request = FetchRequest {
        max_wait_ms: 60_000,
        min_bytes: 200,
        ..fetch_request("t", &[(0, 0), (1, 0)])
    };
    reader.send(11, &request).await;
    for (index, value) in [(0, "a"), (1, "b"), (0, "c")] {
        h.sleep(Duration::from_secs(1)).await;
        put(&mut writer, index, &[value]).await;
    }
    let began = h.runtime.clock.monotonic();
    let (_, response) = reader.receive::<FetchRequest>(11).await;
    assert!(h.runtime.clock.monotonic() - began < Duration::from_millis(100));
    assert_eq!(values(parts(&response)[0]), ["a", "c"]);
    assert_eq!(values(parts(&response)[1]), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn k15_f24_errors_stay_with_their_partition_and_answer_at_once() {
    let h = start().await;
    h.topic("t", 2).await;
    let mut client = h.connect();
    put(&mut client, 0, &["a"]).await;
    let began = h.runtime.clock.monotonic();
    let request = fetch_request("t", &[(0, 0), (1, 1), (1, -1), (7, 0)]);
    let response = client.call(11, &request).await;
    assert!(h.runtime.clock.monotonic() - began < Duration::from_millis(10));
    let data = parts(&response);
    assert_eq!(values(data[0]), ["a"]);
    for (index, code) in [(1, 1), (2, 1), (3, 3)] {
        let data = data[index];
        assert_eq!(data.error_code.0, code);
        let marks = (
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
        );
        assert_eq!(marks, (-1, -1, -1));
        assert!(
            data.records
                .as_ref()
                .is_some_and(|records| records.is_empty()),
            "K80"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn k21_leader_epochs_are_checked_only_if_given() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    put(&mut client, 0, &["a"]).await;
    for (epoch, code) in [(-1, 0), (0, 0), (1, 75)] {
        let mut request = fetch_request("t", &[(0, 0)]);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        let response = client.call(12, &request).await;
        assert_eq!(parts(&response)[0].error_code.0, code);
    }
}

#[tokio::test(start_paused = true)]
async fn k14_topic_ids() {
    let h = start().await;
    let id = h.topic("t", 1).await;
    let mut client = h.connect();
    let mut request = fetch_request("t", &[(0, 0)]);
    request.topics[0].topic_id = TopicId([7; 16]);
    let response = client.call(13, &request).await;
    assert_eq!(parts(&response)[0].error_code, ErrorCode::UNKNOWN_TOPIC_ID);
    // A session sees its topic deleted, then made anew.
    request.topics[0].topic_id = id;
    (request.session_epoch, request.max_wait_ms) = (0, 0);
    let session = client.call(13, &request).await.session_id;
    let delete = DeleteTopicsRequest {
        topic_names: vec!["t".into()],
        timeout_ms: 1_000,
        ..DeleteTopicsRequest::default()
    };
    assert_eq!(
        client.call(5, &delete).await.responses[0].error_code,
        ErrorCode::NONE
    );
    let mut next = FetchRequest {
        session_id: session,
        session_epoch: 1,
        ..request.clone()
    };
    next.topics.clear();
    let response = client.call(13, &next).await;
    assert_eq!(parts(&response)[0].error_code, ErrorCode::UNKNOWN_TOPIC_ID);
    assert_ne!(h.topic("t", 1).await, id, "F31");
    next.session_epoch = 2;
    let response = client.call(13, &next).await;
    assert_eq!(
        parts(&response)[0].error_code,
        ErrorCode::INCONSISTENT_TOPIC_ID
    );
}

#[tokio::test(start_paused = true)]
async fn k13_a_session_answers_what_is_new_and_waits_when_asked_for_nothing() {
    let h = start().await;
    h.topic("t", 3).await;
    let (mut client, mut writer) = (h.connect(), h.connect());
    put(&mut writer, 0, &["a"]).await;
    let mut request = fetch_request("t", &[(0, 0), (1, 0), (2, 0)]);
    request.session_epoch = 0;
    let response = client.call(11, &request).await;
    let id = response.session_id;
    assert!(id != 0);
    assert_eq!(parts(&response).len(), 3, "the first answer is full");
    // Only partition 0 moves on; the rest stays as it was.
    let mut next = fetch_request("t", &[(0, 1)]);
    (next.session_id, next.session_epoch) = (id, 1);
    let began = h.runtime.clock.monotonic();
    let response = client.call(11, &next).await;
    assert_eq!(
        (response.session_id, parts(&response).len()),
        (id, 0),
        "nothing is new"
    );
    assert!(h.runtime.clock.monotonic() - began >= Duration::from_millis(500));
    // Empty: all partitions of the session, and a long poll (redpanda#1123).
    let mut empty = FetchRequest {
        max_wait_ms: 30_000,
        ..next.clone()
    };
    empty.topics.clear();
    empty.session_epoch = 2;
    client.send(11, &empty).await;
    h.sleep(Duration::from_secs(1)).await;
    put(&mut writer, 2, &["b"]).await;
    let (_, response) = client.receive::<FetchRequest>(11).await;
    let data = parts(&response);
    assert_eq!(data.len(), 1);
    assert_eq!(
        (data[0].partition_index, values(data[0])),
        (2, vec!["b".to_owned()])
    );
    // Forgotten: gone from the session.
    empty.session_epoch = 3;
    empty.max_wait_ms = 0;
    empty.forgotten_topics_data = vec![ForgottenTopic {
        topic: "t".into(),
        partitions: vec![2],
        ..Default::default()
    }];
    let response = client.call(11, &empty).await;
    assert!(parts(&response).is_empty());
}

#[tokio::test(start_paused = true)]
async fn k13_wrong_ids_and_epochs() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let mut request = FetchRequest {
        max_wait_ms: 0,
        ..fetch_request("t", &[(0, 0)])
    };
    (request.session_id, request.session_epoch) = (12_345, 1);
    let response = client.call(11, &request).await;
    assert_eq!(response.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert!(response.responses.is_empty());
    (request.session_id, request.session_epoch) = (0, 0);
    let id = client.call(11, &request).await.session_id;
    for epoch in [2, 5] {
        (request.session_id, request.session_epoch) = (id, epoch);
        let response = client.call(11, &request).await;
        assert_eq!(response.error_code, ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    }
    request.session_epoch = 1;
    assert_eq!(client.call(11, &request).await.session_id, id);
    // Closed by epoch -1; then it is not known any more.
    request.session_epoch = -1;
    assert_eq!(client.call(11, &request).await.session_id, 0);
    request.session_epoch = 2;
    let response = client.call(11, &request).await;
    assert_eq!(response.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn f24_a_session_gives_every_partition_its_turn() {
    let h = start().await;
    h.topic("t", 4).await;
    let mut client = h.connect();
    for index in 0..4 {
        let batch = batch(&[&"x".repeat(1_000)]);
        for _ in 0..4 {
            client
                .send(9, &produce_request("t", &[(index, batch.clone())]))
                .await;
        }
        for _ in 0..4 {
            client
                .receive::<tidemill_wire::messages::produce::ProduceRequest>(9)
                .await;
        }
    }
    let mut request = fetch_request("t", &[(0, 0), (1, 0), (2, 0), (3, 0)]);
    (request.session_epoch, request.max_bytes) = (0, 1_500);
    let mut served = Vec::new();
    for epoch in 0..4 {
        request.session_epoch = epoch;
        let response = client.call(11, &request).await;
        request.session_id = response.session_id;
        request.topics.clear();
        let data = parts(&response);
        let with_data = data.iter().filter(|data| !values(data).is_empty());
        served.extend(with_data.map(|data| data.partition_index));
    }
    assert_eq!(
        served,
        [0, 1, 2, 3],
        "one batch a fetch, each from the next partition"
    );
}

#[tokio::test(start_paused = true)]
async fn k12_a_partition_that_has_filled_its_maximum_is_answered_at_once() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    for _ in 0..3 {
        put(&mut client, 0, &[&"x".repeat(400)]).await;
    }
    let mut request = fetch_request("t", &[(0, 0)]);
    (request.min_bytes, request.max_wait_ms) = (1 << 20, 60_000);
    request.topics[0].partitions[0].partition_max_bytes = 1_000;
    let began = h.runtime.clock.monotonic();
    let response = client.call(11, &request).await;
    assert!(h.runtime.clock.monotonic() - began < Duration::from_millis(10));
    assert_eq!(values(parts(&response)[0]).len(), 2);
}

/// Kafka's rule: a session goes if it was unused for two minutes, or if it is smaller than the one
/// that wants its place; who finds no place is served without session.
#[tokio::test(start_paused = true)]
async fn k13_a_full_session_cache_evicts_the_stale_and_the_small() {
    let config = BrokerConfig {
        fetch_sessions_max: 2,
        ..BrokerConfig::default()
    };
    let h = common::start_with(Runtime::simulated(1, common::NOW_MS), config).await;
    h.topic("t", 4).await;
    let mut client = h.connect();
    let mut open = async |partitions: i32| {
        let parts: Vec<_> = (0..partitions).map(|index| (index, 0)).collect();
        let request = FetchRequest {
            max_wait_ms: 0,
            session_epoch: 0,
            ..fetch_request("t", &parts)
        };
        client.call(11, &request).await.session_id
    };
    let (one, two) = (open(2).await, open(3).await);
    assert!(one != 0 && two != 0 && one != two);
    assert_eq!(open(2).await, 0, "no smaller and no stale one to go");
    let large = open(4).await;
    assert_ne!(large, 0, "the smallest gave way");
    let mut other = h.connect();
    let mut ask = async |id: i32, epoch: i32| {
        let request = FetchRequest {
            max_wait_ms: 0,
            session_id: id,
            session_epoch: epoch,
            ..fetch_request("t", &[])
        };
        let response = other.call(11, &request).await;
        (response.error_code, response.session_id)
    };
    assert_eq!(ask(one, 1).await.0, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(ask(two, 1).await, (ErrorCode::NONE, two));
    h.sleep(Duration::from_secs(100)).await;
    assert_eq!(ask(large, 1).await, (ErrorCode::NONE, large));
    h.sleep(Duration::from_secs(30)).await;
    let new = open(1).await;
    assert_ne!(
        new, 0,
        "the one unused for 130 s gave way, though it is larger"
    );
    assert_eq!(ask(two, 2).await.0, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(ask(large, 2).await, (ErrorCode::NONE, large));
}
