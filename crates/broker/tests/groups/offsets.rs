//! Committed offsets: K48, K50, K51, K84, K86, K88, OffsetDelete, snapshots of
//! `__consumer_offsets`.

use std::{collections::BTreeMap, time::Duration};

use tidemill_cluster::Change;
use tidemill_store::testing::{Operation, Step};
use tidemill_wire::{
    Decoder, ErrorCode, Message,
    batch::{BatchIter, Records},
    messages::{
        delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic},
        delete_topics::{DeleteTopicState, DeleteTopicsRequest},
        describe_groups::DescribeGroupsRequest,
        fetch::PartitionData,
        list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic},
        offset_commit::OffsetCommitRequest,
        offset_delete::{
            OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
        },
        offset_fetch::{
            OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic,
            OffsetFetchRequestTopics,
        },
    },
    records::offset_commit::{OffsetCommitKey, OffsetCommitValue},
};

use crate::{
    client::*,
    common::{Client, Harness},
};

const TOPIC: &str = "__consumer_offsets";

#[tokio::test(start_paused = true)]
async fn k50_k51_what_was_committed_comes_back_and_nothing_is_minus_one() {
    let h = start().await;
    let id = h.topic("t", 3).await;
    let mut client = h.connect();
    let nothing = committed(&mut client, "g", 0).await;
    assert_eq!(
        (nothing.committed_offset, nothing.committed_leader_epoch),
        (-1, -1)
    );
    assert_eq!(nothing.metadata, Some(text("")));
    assert_eq!(nothing.error_code, ErrorCode::NONE);
    for (offset, version) in (10..).zip(2..=10) {
        let mut request = commit_request("g", "t", &[(1, offset), (9, 1)]);
        request.topics[0].topic_id = id;
        let done = client.call(version, &request).await;
        let codes = done.topics[0].partitions.iter().map(|part| part.error_code);
        let codes: Vec<_> = codes.collect();
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        assert_eq!(codes, [ErrorCode::NONE, unknown], "version {version}");
        let kept = committed(&mut client, "g", 1).await;
        assert_eq!(kept.committed_offset, offset, "I15");
        assert_eq!(kept.metadata, Some(text("words")));
        let epoch = if version >= 6 { 7 } else { -1 };
        assert_eq!(kept.committed_leader_epoch, epoch);
    }
    let long = "x".repeat(5_000);
    let mut request = commit_request("g", "t", &[(1, 1)]);
    request.topics[0].partitions[0].committed_metadata = Some(text(&long));
    let refused = client.call(8, &request).await;
    let code = refused.topics[0].partitions[0].error_code;
    assert_eq!(code, ErrorCode::OFFSET_METADATA_TOO_LARGE);
    request.generation_id_or_member_epoch = 3;
    request.group_id = text("nobody");
    request.topics[0].partitions[0].committed_metadata = None;
    let refused = client.call(8, &request).await;
    let code = refused.topics[0].partitions[0].error_code;
    assert_eq!(code, ErrorCode::ILLEGAL_GENERATION);
}

/// A few bytes more do not bring everything again.
#[tokio::test(start_paused = true)]
async fn what_is_named_twice_is_told_once() {
    let h = start().await;
    h.topic("t", 3).await;
    let mut client = h.connect();
    let request = commit_request("g", "t", &[(1, 5)]);
    client.call(8, &request).await;
    let group = |topics| OffsetFetchRequestGroup {
        group_id: text("g"),
        topics,
        ..OffsetFetchRequestGroup::default()
    };
    let topic = OffsetFetchRequestTopics {
        name: text("t"),
        partition_indexes: vec![1, 2, 1],
        ..OffsetFetchRequestTopics::default()
    };
    let request = OffsetFetchRequest {
        groups: vec![
            group(Some(vec![topic.clone(), topic])),
            group(None),
            group(None),
        ],
        ..OffsetFetchRequest::default()
    };
    let response = client.call(8, &request).await;
    let twice = ErrorCode::INVALID_REQUEST;
    assert_eq!(response.groups[1].topics.len(), 1);
    assert_eq!(response.groups[2].error_code, twice);
    assert!(response.groups[2].topics.is_empty());
    let parts = response.groups[0]
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions);
    let parts: Vec<_> = parts
        .map(|part| (part.committed_offset, part.error_code))
        .collect();
    let (told, nothing) = ((5, ErrorCode::NONE), (-1, ErrorCode::NONE));
    let again = (-1, twice);
    assert_eq!(parts, [told, nothing, again, again, again, again]);

    let request = DescribeGroupsRequest {
        groups: vec![text("g"), text("g")],
        ..DescribeGroupsRequest::default()
    };
    let described = client.call(5, &request).await.groups;
    let codes: Vec<_> = described.iter().map(|group| group.error_code).collect();
    assert_eq!(codes, [ErrorCode::NONE, twice]);
}

async fn fetch_all(client: &mut Client, version: i16, topics: Option<Vec<i32>>) -> Vec<i64> {
    let topics = topics.map(|indexes| match indexes.is_empty() {
        true => Vec::new(),
        false => vec![OffsetFetchRequestTopic {
            name: text("t"),
            partition_indexes: indexes,
        }],
    });
    all(client, "g", version, topics).await
}

async fn all_of(client: &mut Client, group: &str) -> Vec<i64> {
    all(client, group, 7, None).await
}

async fn all(
    client: &mut Client,
    group: &str,
    version: i16,
    topics: Option<Vec<OffsetFetchRequestTopic>>,
) -> Vec<i64> {
    let request = OffsetFetchRequest {
        group_id: text(group),
        topics,
        ..OffsetFetchRequest::default()
    };
    let response = client.call(version, &request).await;
    assert_eq!(response.error_code, ErrorCode::NONE);
    let parts = response.topics.iter().flat_map(|topic| &topic.partitions);
    parts.map(|part| part.committed_offset).collect()
}

#[tokio::test(start_paused = true)]
async fn all_topics_by_null_none_by_an_empty_array_and_many_groups_at_once() {
    let h = start().await;
    let id = h.topic("t", 3).await;
    let mut client = h.connect();
    assert_eq!(
        fetch_all(&mut client, 2, None).await,
        [0i64; 0],
        "before there is any group"
    );
    commit(&mut client, "g", &[(0, 5), (2, 6)]).await;
    for version in [2, 5, 7] {
        assert_eq!(fetch_all(&mut client, version, None).await, [5, 6]);
        assert_eq!(
            fetch_all(&mut client, version, Some(Vec::new())).await,
            [0i64; 0]
        );
        assert_eq!(
            fetch_all(&mut client, version, Some(vec![1, 2])).await,
            [-1, 6]
        );
    }
    assert_eq!(fetch_all(&mut client, 1, Some(vec![0])).await, [5]);
    let group = |name: &str, topics| OffsetFetchRequestGroup {
        group_id: text(name),
        topics,
        ..OffsetFetchRequestGroup::default()
    };
    for version in [8, 9, 10] {
        let asked = |topic_id| OffsetFetchRequestTopics {
            name: text("t"),
            topic_id,
            partition_indexes: vec![0],
        };
        let strange = tidemill_wire::ids::TopicId([9; 16]);
        let groups = vec![
            group("g", None),
            group("g", Some(Vec::new())),
            group("x", Some(vec![asked(id)])),
            group("g", Some(vec![asked(id), asked(strange)])),
        ];
        let request = OffsetFetchRequest {
            groups,
            ..OffsetFetchRequest::default()
        };
        let answer = client.call(version, &request).await.groups;
        assert!(
            answer
                .iter()
                .all(|group| group.error_code == ErrorCode::NONE)
        );
        assert_eq!(answer[0].topics[0].partitions.len(), 2);
        assert!(answer[1].topics.is_empty());
        assert_eq!(answer[2].topics[0].partitions[0].committed_offset, -1);
        assert_eq!(answer[3].topics[0].partitions[0].committed_offset, 5);
        if version == 10 {
            assert_eq!(answer[0].topics[0].topic_id, id);
            let code = answer[3].topics[1].partitions[0].error_code;
            assert_eq!(code, ErrorCode::UNKNOWN_TOPIC_ID);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn commits_are_answered_in_order_and_the_last_one_stands() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let sent = 200;
    for offset in 0..sent {
        client
            .send(7, &commit_request("g", "t", &[(0, offset)]))
            .await;
    }
    for _ in 0..sent {
        let (_, answer) = client.receive::<OffsetCommitRequest>(7).await;
        assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::NONE);
    }
    assert_eq!(
        committed(&mut client, "g", 0).await.committed_offset,
        sent - 1
    );
    let h = restart(&h).await;
    let kept = committed(&mut h.connect(), "g", 0).await.committed_offset;
    assert_eq!(kept, sent - 1);
}

/// Commits that one connection sends at once for a group.
const AT_ONCE: i64 = 5;

#[tokio::test(start_paused = true)]
async fn commits_that_wait_for_their_group_keep_their_order() {
    let mut h = start().await;
    h.topic("t", 1).await;
    let groups: Vec<String> = (0..20).map(|n| format!("g{n}")).collect();
    // At first the topic of the offsets is not there, later the groups are to be loaded.
    for round in 0..3 {
        let mut clients = Vec::new();
        for group in &groups {
            let mut client = h.connect();
            for n in 0..AT_ONCE {
                let commit = commit_request(group, "t", &[(0, round * AT_ONCE + n)]);
                client.send(7, &commit).await;
            }
            clients.push(client);
        }
        for (group, client) in groups.iter().zip(&mut clients) {
            for _ in 0..AT_ONCE {
                let (_, answer) = client.receive::<OffsetCommitRequest>(7).await;
                let code = answer.topics[0].partitions[0].error_code;
                assert_eq!(code, ErrorCode::NONE, "{group}, round {round}");
            }
            let last = committed(client, group, 0).await.committed_offset;
            assert_eq!(last, (round + 1) * AT_ONCE - 1, "{group}, round {round}");
        }
        h = restart(&h).await;
    }
}

async fn commit_v2(client: &mut Client, group: &str, retention_ms: i64) {
    let mut request = commit_request(group, "t", &[(0, 5)]);
    request.retention_time_ms = retention_ms;
    let done = client.call(2, &request).await;
    assert_eq!(done.topics[0].partitions[0].error_code, ErrorCode::NONE);
}

#[tokio::test(start_paused = true)]
async fn k86_a_commits_own_retention_time() {
    let mut h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    for (group, retention_ms) in [
        ("long", 15_000),
        ("short", 3_000),
        ("none", 0),
        ("default", -1),
    ] {
        commit_v2(&mut client, group, retention_ms).await;
    }
    for group in ["long", "short", "none", "default"] {
        assert_eq!(committed(&mut client, group, 0).await.committed_offset, 5);
    }
    h = restart(&h).await;
    let mut client = h.connect();
    h.sleep(Duration::from_secs(13)).await;
    for (group, offset) in [("long", 5), ("short", -1), ("none", -1), ("default", 5)] {
        assert_eq!(
            committed(&mut client, group, 0).await.committed_offset,
            offset,
            "{group}"
        );
    }
    h.sleep(Duration::from_secs(25)).await;
    assert_eq!(committed(&mut client, "long", 0).await.committed_offset, -1);
    assert_eq!(
        delete(&mut client, "long").await,
        ErrorCode::GROUP_ID_NOT_FOUND
    );
    assert_eq!(
        committed(&mut client, "default", 0).await.committed_offset,
        5
    );
    h.sleep(Duration::from_secs(7 * 24 * 3_600)).await;
    let mut client = h.connect();
    assert_eq!(
        committed(&mut client, "default", 0).await.committed_offset,
        -1
    );
    let h = restart(&h).await;
    let mut client = h.connect();
    for group in ["long", "short", "none", "default"] {
        assert_eq!(
            committed(&mut client, group, 0).await.committed_offset,
            -1,
            "{group}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn k86_live_members_keep_their_offsets() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let joined = join(&mut client, 9, "g").await;
    sync(&mut client, 5, "g", &joined).await;
    let mut request = commit_request("g", "t", &[(0, 5)]);
    request.retention_time_ms = 1_000;
    request.member_id = joined.member_id.clone();
    request.generation_id_or_member_epoch = joined.generation_id;
    client.call(2, &request).await;
    for _ in 0..10 {
        h.sleep(Duration::from_secs(10)).await;
        assert_eq!(beat(&mut client, "g", &joined).await, ErrorCode::NONE);
    }
    assert_eq!(committed(&mut client, "g", 0).await.committed_offset, 5);
    leave(&mut client, 3, "g", &joined.member_id).await;
    h.sleep(Duration::from_secs(21)).await;
    assert_eq!(committed(&mut client, "g", 0).await.committed_offset, -1);
}

/// However long ago it was committed, it is kept as long as was promised after the last member has
/// gone, and no longer; a restart starts nothing anew.
#[tokio::test(start_paused = true)]
async fn k86_the_default_retention_counts_from_when_the_group_became_empty() {
    let mut config = config();
    config.groups.offsets_retention = Duration::from_secs(600);
    let mut h = start_with(config.clone()).await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let joined = join(&mut client, 9, "g").await;
    sync(&mut client, 5, "g", &joined).await;
    let mut request = commit_request("g", "t", &[(0, 5)]);
    request.member_id = joined.member_id.clone();
    request.generation_id_or_member_epoch = joined.generation_id;
    client.call(7, &request).await;
    // Nobody is a member of this one, so it counts from the commit.
    assert_eq!(
        commit(&mut client, "simple", &[(0, 6)]).await,
        ErrorCode::NONE
    );
    for _ in 0..40 {
        h.sleep(Duration::from_secs(40)).await;
        assert_eq!(beat(&mut client, "g", &joined).await, ErrorCode::NONE);
    }
    let simple = committed(&mut client, "simple", 0).await.committed_offset;
    assert_eq!(simple, -1);
    leave(&mut client, 3, "g", &joined.member_id).await;
    for (seconds, offset) in [(300, 5), (280, 5), (40, -1)] {
        h.sleep(Duration::from_secs(seconds)).await;
        let found = committed(&mut h.connect(), "g", 0).await.committed_offset;
        assert_eq!(found, offset, "{seconds} s later");
        h = restart_with(&h, config.clone()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn kip_496_offsets_of_topics_that_a_live_group_left_lapse() {
    let mut config = config();
    config.groups.offsets_retention = Duration::from_secs(600);
    let h = start_with(config).await;
    h.topic("t", 1).await;
    h.topic("u", 2).await;
    let mut client = h.connect();
    let joined = join(&mut client, 9, "g").await;
    sync(&mut client, 5, "g", &joined).await;
    for topic in ["t", "u"] {
        let mut request = commit_request("g", topic, &[(0, 5)]);
        request.member_id = joined.member_id.clone();
        request.generation_id_or_member_epoch = joined.generation_id;
        client.call(7, &request).await;
    }
    // A group of another protocol type tells nobody what it uses: nothing of it lapses.
    let mut foreign = join_request("connect", "", &[]);
    foreign.protocol_type = text("connect");
    foreign.member_id = client.call(9, &foreign).await.member_id;
    let stranger = client.call(9, &foreign).await;
    let mut strange_sync = commit_request("connect", "u", &[(1, 5)]);
    strange_sync.member_id = stranger.member_id.clone();
    strange_sync.generation_id_or_member_epoch = stranger.generation_id;
    sync_as(&mut client, 5, "connect", "connect", &stranger).await;
    let done = client.call(7, &strange_sync).await;
    assert_eq!(done.topics[0].partitions[0].error_code, ErrorCode::NONE);
    // Members are alive all the while: before the ten minutes are over nothing goes.
    for (seconds, wanted) in [(560, vec![5, 5]), (80, vec![5])] {
        for _ in 0..seconds / 40 {
            h.sleep(Duration::from_secs(40)).await;
            assert_eq!(beat(&mut client, "g", &joined).await, ErrorCode::NONE);
            let beat = beat(&mut client, "connect", &stranger).await;
            assert_eq!(beat, ErrorCode::NONE);
        }
        assert_eq!(fetch_all(&mut client, 7, None).await, wanted);
        assert_eq!(all_of(&mut client, "connect").await, [5]);
    }
    let kept = committed(&mut client, "g", 0).await.committed_offset;
    assert_eq!(kept, 5, "the topic that it subscribes to");
}

#[tokio::test(start_paused = true)]
async fn a_commit_too_large_for_one_record_batch_is_refused_for_good() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    assert_eq!(commit(&mut client, "g", &[(0, 1)]).await, ErrorCode::NONE);
    let mut request = commit_request("g", "t", &[(0, 2); 5_000]);
    let words = text(&"x".repeat(4_096));
    for part in &mut request.topics[0].partitions {
        part.committed_metadata = Some(words.clone());
    }
    let refused = client.call(8, &request).await;
    let code = refused.topics[0].partitions[0].error_code;
    assert_eq!(code, ErrorCode::INVALID_COMMIT_OFFSET_SIZE);
    assert!(
        !code.is_retriable(),
        "a client that tried again would never end"
    );
    assert_eq!(committed(&mut client, "g", 0).await.committed_offset, 1);
}

/// K88: lag is end - max(commit, log start); what is answered are the numbers to work it out.
#[tokio::test(start_paused = true)]
async fn k88_an_old_commit_is_still_told_after_its_records_are_gone() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    for _ in 0..3 {
        let batch = crate::common::batch(&["a", "b"]);
        client.produce("t", 0, batch).await;
    }
    assert_eq!(commit(&mut client, "g", &[(0, 1)]).await, ErrorCode::NONE);
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: text("t"),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset: 4,
            }],
        }],
        timeout_ms: 1_000,
    };
    let deleted = client.call(2, &request).await;
    assert_eq!(deleted.topics[0].partitions[0].low_watermark, 4);
    assert_eq!(committed(&mut client, "g", 0).await.committed_offset, 1);
    let mut ends = Vec::new();
    for timestamp in [-2, -1] {
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: text("t"),
                partitions: vec![ListOffsetsPartition {
                    timestamp,
                    ..ListOffsetsPartition::default()
                }],
            }],
            ..ListOffsetsRequest::default()
        };
        ends.push(client.call(5, &request).await.topics[0].partitions[0].offset);
    }
    assert_eq!(ends, [4, 6], "a lag of 2 and not of 5");
}

async fn delete_offset(client: &mut Client, group: &str, topic: &str) -> (ErrorCode, ErrorCode) {
    let request = OffsetDeleteRequest {
        group_id: text(group),
        topics: vec![OffsetDeleteRequestTopic {
            name: text(topic),
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
        }],
    };
    let response = client.call(0, &request).await;
    let own = response
        .topics
        .first()
        .map(|topic| topic.partitions[0].error_code);
    (response.error_code, own.unwrap_or(ErrorCode::NONE))
}

#[tokio::test(start_paused = true)]
async fn offsets_of_topics_that_nobody_subscribes_to_can_be_deleted() {
    let h = start().await;
    for topic in ["t", "u"] {
        h.topic(topic, 1).await;
    }
    let mut client = h.connect();
    let none = (ErrorCode::GROUP_ID_NOT_FOUND, ErrorCode::NONE);
    assert_eq!(delete_offset(&mut client, "g", "t").await, none);
    for topic in ["t", "u"] {
        client.call(7, &commit_request("g", topic, &[(0, 5)])).await;
    }
    let joined = join(&mut client, 9, "g").await;
    sync(&mut client, 5, "g", &joined).await;
    let ok = (ErrorCode::NONE, ErrorCode::NONE);
    let held = (ErrorCode::NONE, ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC);
    assert_eq!(delete_offset(&mut client, "g", "t").await, held);
    assert_eq!(delete_offset(&mut client, "g", "u").await, ok);
    let unknown = (ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(delete_offset(&mut client, "g", "x").await, unknown);
    assert_eq!(fetch_all(&mut client, 7, None).await, [5]);
    leave(&mut client, 3, "g", &joined.member_id).await;
    assert_eq!(delete_offset(&mut client, "g", "t").await, ok);
    assert_eq!(fetch_all(&mut client, 7, None).await, [0i64; 0]);
    let h = restart(&h).await;
    assert_eq!(fetch_all(&mut h.connect(), 7, None).await, [0i64; 0]);
}

fn delete_request(topic: &str) -> DeleteTopicsRequest {
    DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some(text(topic)),
            ..DeleteTopicState::default()
        }],
        timeout_ms: 1_000,
        ..DeleteTopicsRequest::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topics_offsets_do_not_meet_its_successor() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    assert_eq!(commit(&mut client, "g", &[(0, 5)]).await, ErrorCode::NONE);
    let request = delete_request("t");
    let deleted = client.call(6, &request).await;
    assert_eq!(deleted.responses[0].error_code, ErrorCode::NONE);
    // At once: whoever was told that it is deleted need not wait for more.
    h.topic("t", 1).await;
    assert_eq!(committed(&mut client, "g", 0).await.committed_offset, -1);
    let h = restart(&h).await;
    assert_eq!(
        committed(&mut h.connect(), "g", 0).await.committed_offset,
        -1
    );
}

/// The broker died between the deletion and what follows from it, and the topic is created anew
/// before a group was asked for.
#[tokio::test(start_paused = true)]
async fn f31_a_crash_after_a_deletion_leaves_no_offsets_to_its_successor() {
    let h = start().await;
    let id = h.topic("t", 1).await;
    h.topic("other", 1).await;
    let mut client = h.connect();
    assert_eq!(commit(&mut client, "g", &[(0, 5)]).await, ErrorCode::NONE);
    assert_eq!(commit(&mut client, "h", &[(0, 6)]).await, ErrorCode::NONE);
    let stays = commit_request("h", "other", &[(0, 7)]);
    let done = client.call(7, &stays).await;
    assert_eq!(done.topics[0].partitions[0].error_code, ErrorCode::NONE);
    let delete =
        move |_: &_| Ok::<_, std::convert::Infallible>(vec![Change::TopicDeleted { topic: id }]);
    h.cluster.commit(delete).await.expect("a healthy store");
    for again in 0..2 {
        let h = restart(&h).await;
        if again == 0 {
            h.topic("t", 1).await;
        }
        let mut client = h.connect();
        assert_eq!(committed(&mut client, "g", 0).await.committed_offset, -1);
        assert_eq!(committed(&mut client, "h", 0).await.committed_offset, -1);
        assert_eq!(fetch_all(&mut client, 7, None).await, [0i64; 0]);
        let kept = OffsetFetchRequest {
            group_id: text("h"),
            ..OffsetFetchRequest::default()
        };
        let kept = client.call(7, &kept).await.topics;
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(kept[0].partitions[0].committed_offset, 7);
        if again == 0 {
            assert_eq!(commit(&mut client, "h", &[(0, 1)]).await, ErrorCode::NONE);
            let deleted = client.call(6, &delete_request("t")).await;
            assert_eq!(deleted.responses[0].error_code, ErrorCode::NONE);
        }
    }
}

/// Who is told that a topic is deleted may create it anew: its offsets must be forgotten by then.
#[tokio::test(start_paused = true)]
async fn f31_a_deletion_is_answered_once_its_offsets_are_forgotten_in_the_log() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    assert_eq!(commit(&mut client, "g", &[(0, 5)]).await, ErrorCode::NONE);
    h.backend.pause_at(Step {
        operation: Operation::Put,
        key: "wal/".to_owned(),
        landed: false,
        skip: 0,
    });
    let deleted = client.call(6, &delete_request("t")).await;
    assert!(h.backend.is_paused(), "the deletion is written");
    let told = deleted.responses[0].error_code;
    assert_eq!(told, ErrorCode::REQUEST_TIMED_OUT, "not yet forgotten");
    h.backend.resume();
    h.sleep(Duration::from_secs(1)).await;
    h.topic("t", 1).await;
    assert_eq!(committed(&mut client, "g", 0).await.committed_offset, -1);
}

/// Commits under way while the topic is deleted count as before it, whatever came first.
#[tokio::test(start_paused = true)]
async fn f31_commits_that_race_with_a_deletion_do_not_outlive_it() {
    let h = start().await;
    for pause_us in (0..4_000).step_by(250) {
        h.topic("t", 1).await;
        let (mut one, mut other) = (h.connect(), h.connect());
        let committing = async {
            h.sleep(Duration::from_micros(pause_us)).await;
            commit(&mut one, "g", &[(0, 5)]).await
        };
        let request = delete_request("t");
        let (_, deleted) = tokio::join!(committing, other.call(6, &request));
        assert_eq!(deleted.responses[0].error_code, ErrorCode::NONE);
        h.topic("t", 1).await;
        let found = committed(&mut one, "g", 0).await.committed_offset;
        assert_eq!(found, -1, "{pause_us} us after the deletion began");
        let deleted = other.call(6, &request).await;
        assert_eq!(deleted.responses[0].error_code, ErrorCode::NONE);
    }
}

/// Reads `__consumer_offsets` as a lag monitor does, to its end; the newest offset of each
/// partition.
async fn monitor(h: &Harness) -> (i64, BTreeMap<i32, i64>) {
    let mut client = h.connect();
    let mut newest = BTreeMap::new();
    let image = h.cluster.image();
    let topic = image.topic_by_name(TOPIC).expect("it exists");
    let (id, _) = topic.partitions().next().expect("it has one");
    let start = h.log.partition(id).expect("led").log_start().0;
    let mut offset = start;
    loop {
        let data: PartitionData = client.fetch(TOPIC, 0, offset).await;
        assert_eq!(data.error_code, ErrorCode::NONE);
        if offset == data.high_watermark {
            return (start, newest);
        }
        let bytes = data.records.as_ref().expect("never null").to_bytes();
        for batch in BatchIter::new(bytes) {
            let batch = batch.expect("a whole batch");
            for record in Records::open(&batch.bytes, 8 << 20).expect("readable") {
                let record = record.expect("a record");
                offset = record.offset.0 + 1;
                let mut key = Decoder::new(record.key.expect("a key"));
                if key.i16().expect("a tag") > 1 {
                    continue;
                }
                let key = OffsetCommitKey::decode(&mut key, 0).expect("Kafka's format");
                let mut value = Decoder::new(record.value.expect("a value"));
                let version = value.i16().expect("a version");
                let value = OffsetCommitValue::decode(&mut value, version).expect("its format");
                newest.insert(key.partition, value.offset);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn k84_a_reader_of_the_topic_reaches_its_end_and_understands_it() {
    let h = start().await;
    h.topic("t", 3).await;
    let mut client = h.connect();
    let joined = join(&mut client, 9, "other").await;
    sync(&mut client, 5, "other", &joined).await;
    commit(&mut client, "g", &[(0, 5), (1, 6)]).await;
    commit(&mut client, "g", &[(0, 7)]).await;
    let (start, newest) = monitor(&h).await;
    assert_eq!((start, newest), (0, BTreeMap::from([(0, 7), (1, 6)])));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_lets_the_log_begin_later_and_loses_nothing() {
    const PARTITIONS: i32 = 50;
    let h = start().await;
    h.topic("t", PARTITIONS).await;
    let mut client = h.connect();
    let mut last = 0;
    for round in 0..1_200 {
        let offsets: Vec<(i32, i64)> = (0..PARTITIONS)
            .map(|index| (index, i64::from(index) * 1_000 + round))
            .collect();
        assert_eq!(commit(&mut client, "g", &offsets).await, ErrorCode::NONE);
        last = round;
    }
    h.sleep(Duration::from_secs(30)).await;
    let (start, newest) = monitor(&h).await;
    assert!(start > 0, "the log start has moved");
    let wanted: BTreeMap<i32, i64> = (0..PARTITIONS)
        .map(|index| (index, i64::from(index) * 1_000 + last))
        .collect();
    assert_eq!(newest, wanted, "what is left is complete");
    let h = restart(&h).await;
    let mut client = h.connect();
    for (index, offset) in wanted {
        assert_eq!(
            committed(&mut client, "g", index).await.committed_offset,
            offset
        );
    }
}
