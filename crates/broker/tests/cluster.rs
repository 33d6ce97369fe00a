//! The cluster described, coordinators, internal topics (K84), metrics, stopping.

mod common;

use std::time::Duration;

use common::{admin::*, batch, fetch_request, start};
use tidemill_wire::{
    ErrorCode, Str,
    messages::{
        create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic},
        delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic},
        delete_topics::DeleteTopicsRequest,
        describe_cluster::DescribeClusterRequest,
        describe_log_dirs::DescribeLogDirsRequest,
        describe_topic_partitions::{DescribeTopicPartitionsRequest, TopicRequest},
        fetch::FetchRequest,
        find_coordinator::FindCoordinatorRequest,
        produce::ProduceRequest,
    },
};

#[tokio::test(start_paused = true)]
async fn the_cluster_its_directories_and_partitions_are_described() {
    let h = start().await;
    for (name, partitions) in [("a", 3), ("b", 2)] {
        h.topic(name, partitions).await;
    }
    let mut client = h.connect();
    client.produce("a", 1, batch(&["x"])).await;
    let cluster = client.call(2, &DescribeClusterRequest::default()).await;
    assert_eq!((cluster.controller_id, cluster.brokers.len()), (1, 1));
    let dirs = client
        .call(4, &DescribeLogDirsRequest { topics: None })
        .await;
    let sizes: Vec<_> = dirs.results[0]
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|partition| partition.partition_size)
        .collect();
    assert_eq!(sizes.len(), 5);
    assert!(sizes[1] > 0, "{sizes:?}");
    let mut request = DescribeTopicPartitionsRequest {
        response_partition_limit: 2,
        ..DescribeTopicPartitionsRequest::default()
    };
    let mut seen = Vec::new();
    loop {
        let page = client.call(0, &request).await;
        for topic in page.topics {
            let name = topic.name.expect("named");
            seen.extend(
                topic
                    .partitions
                    .iter()
                    .map(|part| (name.to_string(), part.partition_index)),
            );
        }
        let Some(cursor) = page.next_cursor else {
            break;
        };
        request.cursor = Some(cursor);
    }
    let expected: Vec<_> = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
        .map(|(name, index)| (name.to_owned(), index))
        .to_vec();
    assert_eq!(seen, expected);
    request.cursor = None;
    request.topics = vec![TopicRequest {
        name: text("nowhere"),
    }];
    assert_eq!(client.call(0, &request).await.topics[0].error_code.0, 3);
}

#[tokio::test(start_paused = true)]
async fn coordinators_of_groups_only() {
    let h = start().await;
    let mut client = h.connect();
    for version in 0..=3 {
        let request = FindCoordinatorRequest {
            key: text("g"),
            ..Default::default()
        };
        let found = client.call(version, &request).await;
        assert_eq!(
            (found.error_code.0, found.node_id, found.port),
            (0, 1, 9092)
        );
    }
    // The empty group as well: Kafka 4.4 sends whoever commits for it to its coordinator.
    for (key_type, key, code) in [(0, "g", 0), (0, "", 0), (1, "tx", 42), (2, "s", 42)] {
        let request = FindCoordinatorRequest {
            key_type,
            coordinator_keys: vec![text(key)],
            ..FindCoordinatorRequest::default()
        };
        let found = client.call(6, &request).await.coordinators.remove(0);
        assert_eq!(found.error_code.0, code);
        assert_eq!(found.error_message.is_some(), code != 0);
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_answers_waiting_fetches_and_closes() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let mut request = common::fetch_request("t", &[(0, 0)]);
    request.max_wait_ms = 300_000;
    let sent = client.send(11, &request).await;
    h.sleep(Duration::from_secs(1)).await;
    let began = h.runtime.clock.monotonic();
    h.broker.shutdown(began + Duration::from_secs(30)).await;
    assert!(h.runtime.clock.monotonic() - began < Duration::from_secs(1));
    let (id, _) = client
        .receive::<tidemill_wire::messages::fetch::FetchRequest>(11)
        .await;
    assert_eq!(id, sent);
    assert!(client.closed().await);
}

#[tokio::test(start_paused = true)]
async fn shutdown_with_the_store_down_tells_producers_in_time() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    h.backend.pause();
    let request = common::produce_request("t", &[(0, batch(&["a"]))]);
    client
        .send(
            9,
            &ProduceRequest {
                timeout_ms: 600_000,
                ..request
            },
        )
        .await;
    h.sleep(Duration::from_secs(1)).await;
    let began = h.runtime.clock.monotonic();
    h.broker.shutdown(began + Duration::from_secs(30)).await;
    assert!(h.runtime.clock.monotonic() - began <= Duration::from_secs(30));
    let (_, response) = client.receive::<ProduceRequest>(9).await;
    let part = &response.responses[0].partition_responses[0];
    assert_eq!(part.error_code, ErrorCode::REQUEST_TIMED_OUT);
    assert!(client.closed().await);
}

#[tokio::test(start_paused = true)]
async fn metrics_count_requests_errors_and_bytes() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    client.produce("t", 0, batch(&["a", "b"])).await;
    client.produce("nowhere", 0, batch(&["a"])).await;
    client.fetch("t", 0, 0).await;
    let mut text = String::new();
    h.broker.render_metrics(&mut text);
    for line in [
        "tidemill_requests_total{api=\"Produce\"} 2",
        "tidemill_request_errors_total{api=\"Produce\",error=\"UNKNOWN_TOPIC_OR_PARTITION\"} 1",
        "tidemill_produced_records_total 2",
        "tidemill_request_duration_seconds_count{api=\"Fetch\"} 1",
        "tidemill_connections_total 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn k84_internal_topics_are_the_brokers_alone() {
    let h = start().await;
    let mut client = h.connect();
    let member = join(&mut client, Str::EMPTY).await.member_id;
    assert_eq!(join(&mut client, member).await.error_code, ErrorCode::NONE);
    let name = "__consumer_offsets";
    let listed = metadata(&mut client, 9, asked(&[name]), false)
        .await
        .topics
        .remove(0);
    assert!(listed.error_code == ErrorCode::NONE && listed.is_internal);
    assert_eq!(
        client.produce(name, 0, batch(&["x"])).await.error_code.0,
        17
    );
    assert_eq!(
        alter(&mut client, 2, name, &[("retention.ms", 0, "1")]).await,
        17
    );
    let topic = CreatePartitionsTopic {
        name: text(name),
        count: 500,
        assignments: None,
    };
    let request = CreatePartitionsRequest {
        topics: vec![topic],
        timeout_ms: 5_000,
        validate_only: false,
    };
    assert_eq!(client.call(3, &request).await.results[0].error_code.0, 17);
    let partition = DeleteRecordsPartition {
        partition_index: 0,
        offset: -1,
    };
    let topic = DeleteRecordsTopic {
        name: text(name),
        partitions: vec![partition],
    };
    let request = DeleteRecordsRequest {
        topics: vec![topic],
        timeout_ms: 5_000,
    };
    let response = client.call(2, &request).await;
    assert_eq!(response.topics[0].partitions[0].error_code.0, 17);
    let request = DeleteTopicsRequest {
        topic_names: vec![text(name)],
        timeout_ms: 5_000,
        ..DeleteTopicsRequest::default()
    };
    assert_eq!(client.call(5, &request).await.responses[0].error_code.0, 17);
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_rebalance() {
    let h = start().await;
    let (mut one, mut two) = (h.connect(), h.connect());
    let member = join(&mut one, Str::EMPTY).await.member_id;
    join(&mut one, member).await;
    // The second member waits until the first has joined again, which it never does.
    let member = join(&mut two, Str::EMPTY).await.member_id;
    let joining = async {
        h.runtime
            .clock
            .timeout(Duration::from_secs(20), join(&mut two, member))
            .await
    };
    assert!(joining.await.is_err());
    let began = h.runtime.clock.monotonic();
    h.broker.shutdown(began + Duration::from_secs(30)).await;
    assert!(h.runtime.clock.monotonic() - began < Duration::from_secs(1));
    assert!(two.closed().await);
}

#[tokio::test(start_paused = true)]
async fn every_stage_of_a_record_is_counted_once() {
    let h = start().await;
    h.topic("t", 1).await;
    let stages = || {
        let mut text = String::new();
        h.broker.render_metrics(&mut text);
        let count = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.and_then(|rest| rest.trim().parse::<u64>().ok());
            value.unwrap_or_else(|| panic!("{name}\n{text}"))
        };
        let stage = |stage| {
            count(&format!(
                "tidemill_stage_duration_seconds_count{{stage=\"{stage}\"}}"
            ))
        };
        let of_one = ["receive", "validate", "queue", "order", "commit", "wake"].map(stage);
        (of_one, count("tidemill_commit_to_first_byte_seconds_count"))
    };
    let (before, _) = stages();
    let mut consumer = h.connect();
    let waiting = FetchRequest {
        max_wait_ms: 5_000,
        min_bytes: 1,
        ..fetch_request("t", &[(0, 0)])
    };
    consumer.send(12, &waiting).await;
    h.sleep(Duration::from_millis(10)).await;
    let mut producer = h.connect();
    producer.produce("t", 0, batch(&["a"])).await;
    let (_, answer) = consumer.receive::<FetchRequest>(12).await;
    assert!(answer.responses[0].partitions[0].records.is_some());
    // The answer is read before the broker has noted that it was sent.
    h.sleep(Duration::from_millis(1)).await;
    let (after, first_bytes) = stages();
    assert_eq!(after, before.map(|count| count + 1));
    assert_eq!(first_bytes, 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_with_a_waiting_consumer_costs_at_most_360_gets() {
    const HOUR: Duration = Duration::from_secs(3_600);
    /// How old a proof of leadership the binary's own look may be, as Fetch's (R7).
    const DOUBT_EVERY: Duration = Duration::from_secs(10);
    let h = start().await;
    h.topic("t", 1).await;
    let mut consumer = h.connect();
    let mut producer = h.connect();
    producer.produce("t", 0, batch(&["a"])).await;
    let doubting = {
        let (log, clock) = (h.log.clone(), h.runtime.clock.clone());
        async move {
            loop {
                clock.sleep(DOUBT_EVERY).await;
                log.fresh_within(DOUBT_EVERY).await.expect("nobody else");
            }
        }
    };
    let doubting = h.runtime.tasks.spawn("doubt", doubting);
    let before = h.log.store().counters();
    let end = h.runtime.clock.monotonic() + HOUR;
    let waiting = FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        ..fetch_request("t", &[(0, 1)])
    };
    while h.runtime.clock.monotonic() < end {
        let answer = consumer.call(12, &waiting).await;
        assert_eq!(answer.error_code, ErrorCode::NONE);
    }
    doubting.abort();
    let after = h.log.store().counters();
    assert_eq!(
        (after.put_tries, after.lists),
        (before.put_tries, before.lists)
    );
    let gets = after.gets - before.gets;
    assert!((1..=360).contains(&gets), "{gets}");
}
