//! Whole groups over the wire: join, sync, heartbeat, leave; K85, F29 and a store that stalls.

use std::time::Duration;

use tidemill_wire::{
    ErrorCode,
    messages::{
        delete_groups::DeleteGroupsRequest, describe_groups::DescribeGroupsRequest,
        find_coordinator::FindCoordinatorRequest, heartbeat::HeartbeatRequest,
        list_groups::ListGroupsRequest, metadata::MetadataRequest,
        offset_commit::OffsetCommitRequest,
    },
};

use crate::client::*;

#[tokio::test(start_paused = true)]
async fn a_group_forms_commits_and_leaves_at_old_and_new_versions() {
    let h = start().await;
    h.topic("t", 2).await;
    for (join_version, sync_version, leave_version) in [(0, 0, 0), (3, 2, 2), (5, 3, 3), (9, 5, 5)]
    {
        let group = format!("g{join_version}");
        let (mut one, mut two) = (h.connect(), h.connect());
        let (a, b) = tokio::join!(
            join(&mut one, join_version, &group),
            join(&mut two, join_version, &group)
        );
        for joined in [&a, &b] {
            assert_eq!(joined.error_code, ErrorCode::NONE, "version {join_version}");
            assert_eq!((joined.generation_id, &joined.leader), (1, &a.leader));
        }
        assert_eq!(
            a.members.len() + b.members.len(),
            2,
            "only the leader sees them"
        );
        let (sa, sb) = tokio::join!(
            sync(&mut one, sync_version, &group, &a),
            sync(&mut two, sync_version, &group, &b)
        );
        for (synced, joined) in [(sa, &a), (sb, &b)] {
            assert_eq!(synced.error_code, ErrorCode::NONE);
            let wanted = format!("for {}", joined.member_id);
            assert_eq!(synced.assignment, wanted.as_bytes(), "K46");
        }
        assert_eq!(beat(&mut one, &group, &a).await, ErrorCode::NONE);
        assert_eq!(
            commit(&mut one, &group, &[(0, 5)]).await,
            ErrorCode::UNKNOWN_MEMBER_ID
        );
        let mut request = commit_request(&group, "t", &[(0, 5)]);
        request.member_id = a.member_id.clone();
        request.generation_id_or_member_epoch = 1;
        let done = one.call(8, &request).await;
        assert_eq!(done.topics[0].partitions[0].error_code, ErrorCode::NONE);
        let kept = committed(&mut two, &group, 0).await;
        assert_eq!(kept.committed_offset, 5);
        request.generation_id_or_member_epoch = 0;
        let stale = one.call(8, &request).await;
        let code = stale.topics[0].partitions[0].error_code;
        assert_eq!(code, ErrorCode::ILLEGAL_GENERATION, "I14");
        assert_eq!(delete(&mut one, &group).await, ErrorCode::NON_EMPTY_GROUP);
        assert_eq!(
            leave(&mut one, leave_version, &group, &a.member_id).await,
            ErrorCode::NONE
        );
        assert_eq!(
            beat(&mut two, &group, &b).await,
            ErrorCode::REBALANCE_IN_PROGRESS
        );
        assert_eq!(
            leave(&mut two, leave_version, &group, &b.member_id).await,
            ErrorCode::NONE
        );
        let again = leave(&mut two, leave_version, &group, &b.member_id).await;
        assert_eq!(again, ErrorCode::UNKNOWN_MEMBER_ID);
        assert_eq!(&*describe(&mut one, 5, &group).await.group_state, "Empty");
    }
}

#[tokio::test(start_paused = true)]
async fn k85_an_empty_group_is_there_before_and_after_a_restart_until_it_is_deleted() {
    let mut h = start().await;
    h.topic("t", 2).await;
    let mut client = h.connect();
    let joined = join(&mut client, 9, "g").await;
    sync(&mut client, 5, "g", &joined).await;
    leave(&mut client, 5, "g", &joined.member_id).await;
    assert_eq!(
        &*describe(&mut client, 6, "g").await.group_state,
        "Empty",
        "without offsets too"
    );
    assert_eq!(
        commit(&mut client, "g", &[(0, 5), (1, 6)]).await,
        ErrorCode::NONE
    );
    h = restart(&h).await;
    let mut client = h.connect();
    let group = describe(&mut client, 6, "g").await;
    assert_eq!(
        (&*group.group_state, group.error_code),
        ("Empty", ErrorCode::NONE)
    );
    assert_eq!(&*group.protocol_type, "consumer");
    assert_eq!(committed(&mut client, "g", 1).await.committed_offset, 6);
    assert_eq!(
        commit(&mut client, "g", &[(0, 1)]).await,
        ErrorCode::NONE,
        "reset"
    );
    assert_eq!(committed(&mut client, "g", 0).await.committed_offset, 1);
    assert_eq!(delete(&mut client, "g").await, ErrorCode::NONE);
    assert_eq!(
        delete(&mut client, "g").await,
        ErrorCode::GROUP_ID_NOT_FOUND
    );
    h = restart(&h).await;
    let mut client = h.connect();
    assert_eq!(committed(&mut client, "g", 1).await.committed_offset, -1);
    assert_eq!(
        delete(&mut client, "g").await,
        ErrorCode::GROUP_ID_NOT_FOUND
    );
}

#[tokio::test(start_paused = true)]
async fn a_commit_on_its_way_does_not_outlive_the_deletion_of_its_group() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    assert_eq!(commit(&mut client, "g", &[(0, 1)]).await, ErrorCode::NONE);
    // One connection: the commit is first, and not durable yet when the deletion comes.
    h.backend.pause();
    client.send(7, &commit_request("g", "t", &[(0, 2)])).await;
    h.sleep(Duration::from_millis(1)).await;
    let groups = DeleteGroupsRequest {
        groups_names: vec![text("g")],
    };
    client.send(2, &groups).await;
    h.sleep(Duration::from_millis(1)).await;
    h.backend.resume();
    let (_, answer) = client.receive::<OffsetCommitRequest>(7).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::NONE);
    let (_, answer) = client.receive::<DeleteGroupsRequest>(2).await;
    assert_eq!(answer.results[0].error_code, ErrorCode::NONE);
    assert_eq!(committed(&mut client, "g", 0).await.committed_offset, -1);
    let h = restart(&h).await;
    let offset = committed(&mut h.connect(), "g", 0).await.committed_offset;
    assert_eq!(offset, -1);
}

#[tokio::test(start_paused = true)]
async fn members_survive_a_restart_with_their_generation() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let joined = join(&mut client, 9, "g").await;
    sync(&mut client, 5, "g", &joined).await;
    let h = restart(&h).await;
    let mut client = h.connect();
    assert_eq!(beat(&mut client, "g", &joined).await, ErrorCode::NONE);
    let again = sync(&mut client, 5, "g", &joined).await;
    assert_eq!(
        again.assignment,
        format!("for {}", joined.member_id).as_bytes()
    );
    let group = describe(&mut client, 5, "g").await;
    assert_eq!((&*group.group_state, group.members.len()), ("Stable", 1));
    assert_eq!(group.members[0].member_metadata, subscription(&["t"]));
    h.sleep(Duration::from_secs(50)).await;
    assert_eq!(
        beat(&mut client, "g", &joined).await,
        ErrorCode::UNKNOWN_MEMBER_ID
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stalls_for_a_minute_costs_no_session_and_no_rebalance() {
    let h = start().await;
    h.topic("t", 1).await;
    let (mut one, mut two) = (h.connect(), h.connect());
    let (a, b) = tokio::join!(join(&mut one, 9, "g"), join(&mut two, 9, "g"));
    tokio::join!(sync(&mut one, 5, "g", &a), sync(&mut two, 5, "g", &b));
    for stall_s in [60, 45, 56, 58, 120] {
        for _ in 0..3 {
            h.sleep(Duration::from_secs(3)).await;
            assert_eq!(beat(&mut one, "g", &a).await, ErrorCode::NONE);
            assert_eq!(beat(&mut two, "g", &b).await, ErrorCode::NONE);
        }
        h.backend.pause();
        let clock = &h.runtime.clock;
        let alive = |mut client: crate::common::Client, joined| async move {
            let end = clock.monotonic() + Duration::from_secs(stall_s + 30);
            while clock.monotonic() < end {
                let code = beat(&mut client, "g", &joined).await;
                assert_eq!(code, ErrorCode::NONE, "stall of {stall_s} s");
                clock.sleep(Duration::from_secs(3)).await;
            }
            client
        };
        let heal = async {
            h.sleep(Duration::from_secs(stall_s)).await;
            h.backend.resume();
        };
        let clients = tokio::join!(alive(one, a.clone()), alive(two, b.clone()), heal);
        (one, two) = (clients.0, clients.1);
    }
    assert_eq!(&*describe(&mut one, 5, "g").await.group_state, "Stable");
    h.sleep(Duration::from_secs(50)).await;
    assert_ne!(
        &*describe(&mut one, 5, "g").await.group_state,
        "Stable",
        "silence still ends it"
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_groups_are_described_by_version_and_listed_by_filter() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let old = describe(&mut client, 5, "x").await;
    assert_eq!(
        (&*old.group_state, old.error_code),
        ("Dead", ErrorCode::NONE)
    );
    let new = describe(&mut client, 6, "x").await;
    assert_eq!(
        (&*new.group_state, new.error_code),
        ("Dead", ErrorCode::GROUP_ID_NOT_FOUND)
    );
    assert!(new.error_message.is_some());
    assert_eq!(
        commit(&mut client, "empty", &[(0, 1)]).await,
        ErrorCode::NONE
    );
    let joined = join(&mut client, 9, "live").await;
    sync(&mut client, 5, "live", &joined).await;
    let mut refused = join_request("none", "", &["t"]);
    refused.session_timeout_ms = 1;
    let refused = client.call(9, &refused).await;
    assert_eq!(refused.error_code, ErrorCode::INVALID_SESSION_TIMEOUT);
    let cases: [(&[&str], &[&str], &[&str]); 5] = [
        (&[], &[], &["empty", "live"]),
        (&["stable"], &[], &["live"]),
        (&["Empty", "Dead"], &["Classic"], &["empty"]),
        (&["PreparingRebalance"], &[], &[]),
        (&[], &["consumer"], &[]),
    ];
    for (states, types, wanted) in cases {
        let request = ListGroupsRequest {
            states_filter: states.iter().map(|name| text(name)).collect(),
            types_filter: types.iter().map(|name| text(name)).collect(),
        };
        let listed = client.call(5, &request).await;
        let ids: Vec<_> = listed
            .groups
            .iter()
            .map(|group| group.group_id.to_string())
            .collect();
        assert_eq!(ids, wanted, "{states:?} {types:?}");
        assert!(
            listed
                .groups
                .iter()
                .all(|group| &*group.group_type == "classic")
        );
    }
    let request = DescribeGroupsRequest {
        groups: vec![text("live")],
        include_authorized_operations: true,
    };
    let described = client.call(5, &request).await;
    assert!(described.groups[0].authorized_operations > 0);
}

#[tokio::test(start_paused = true)]
async fn asking_for_a_coordinator_makes_the_topic_and_empty_ids_are_refused_where_kafka_does() {
    let h = start().await;
    let mut client = h.connect();
    for version in [0, 3, 4] {
        let request = FindCoordinatorRequest {
            key: if version < 4 { text("g") } else { text("") },
            coordinator_keys: if version < 4 {
                Vec::new()
            } else {
                vec![text("g")]
            },
            ..FindCoordinatorRequest::default()
        };
        let found = client.call(version, &request).await;
        assert_eq!(found.error_code, ErrorCode::NONE);
        assert!(
            found
                .coordinators
                .iter()
                .all(|one| one.error_code == ErrorCode::NONE)
        );
    }
    let metadata = client
        .call(
            9,
            &MetadataRequest {
                topics: None,
                ..MetadataRequest::default()
            },
        )
        .await;
    let names: Vec<_> = metadata
        .topics
        .iter()
        .map(|topic| (topic.name.clone(), topic.is_internal))
        .collect();
    assert_eq!(names, [(Some(text("__consumer_offsets")), true)]);
    let invalid = ErrorCode::INVALID_GROUP_ID;
    assert_eq!(join(&mut client, 9, "").await.error_code, invalid);
    assert_eq!(
        client
            .call(3, &HeartbeatRequest::default())
            .await
            .error_code,
        invalid
    );
    assert_eq!(leave(&mut client, 2, "", &text("x")).await, invalid);
    h.topic("t", 1).await;
    assert_eq!(commit(&mut client, "", &[(0, 3)]).await, ErrorCode::NONE);
    assert_eq!(committed(&mut client, "", 0).await.committed_offset, 3);
    assert_eq!(&*describe(&mut client, 5, "").await.group_state, "Empty");
    assert_eq!(delete(&mut client, "").await, ErrorCode::NONE);
}
