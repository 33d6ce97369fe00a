//! Groups while the store refuses writes: commits wait a while, and nobody waits behind them.

use std::time::Duration;

use tidemill_log::LogLimits;
use tidemill_store::{
    Store, StoreOptions,
    testing::{Fault, FaultPlan, Operation, Rule},
};
use tidemill_wire::{
    ErrorCode, Str,
    messages::{
        heartbeat::HeartbeatRequest,
        offset_commit::{OffsetCommitRequest, OffsetCommitResponse},
    },
};

use crate::{
    client::*,
    common::stored::{empty, open_store},
};

/// Kafka's `offsets.commit.timeout.ms`.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of the members.
const SESSION: Duration = Duration::from_secs(45);
/// Time that answers take besides.
const SLACK: Duration = Duration::from_millis(100);

fn refused_writes() -> FaultPlan {
    FaultPlan::none().rule(Rule::new(Operation::Put, "", Fault::Throttled))
}

fn code(answer: &OffsetCommitResponse) -> ErrorCode {
    answer.topics[0].partitions[0].error_code
}

fn member_commit(offset: i64, generation: i32, member: &Str) -> OffsetCommitRequest {
    OffsetCommitRequest {
        generation_id_or_member_epoch: generation,
        member_id: member.clone(),
        ..commit_request("g", "t", &[(0, offset)])
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_commit_of_all_waits_no_longer() {
    let h = start().await;
    h.topic("t", 1).await;
    h.backend.set_plan(refused_writes());
    let mut client = h.connect();
    let clock = &h.runtime.clock;
    let sent = clock.monotonic();
    let answer = client.call(7, &commit_request("g", "t", &[(0, 1)])).await;
    assert_eq!(code(&answer), ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    let took = clock.monotonic() - sent;
    assert!(took >= PATIENCE && took < PATIENCE + SLACK, "{took:?}");
    h.backend.set_plan(FaultPlan::none());
    h.sleep(PATIENCE).await;
    let answer = client.call(7, &commit_request("g", "t", &[(0, 2)])).await;
    assert_eq!(code(&answer), ErrorCode::NONE);
}

/// librdkafka sends both on one connection, and counts 45 s without an answer to its heartbeats.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_waits_behind_a_commit_no_longer_than_on_kafka() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let joined = join(&mut client, 9, "g").await;
    sync(&mut client, 5, "g", &joined).await;
    h.backend.set_plan(refused_writes());
    let clock = &h.runtime.clock;
    for offset in 1..=20 {
        let request = member_commit(offset, joined.generation_id, &joined.member_id);
        let sent = clock.monotonic();
        client.send(7, &request).await;
        client.send(3, &heartbeat("g", &joined)).await;
        let (_, answer) = client.receive::<OffsetCommitRequest>(7).await;
        assert_eq!(code(&answer), ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        let (_, answer) = client.receive::<HeartbeatRequest>(3).await;
        assert_eq!(answer.error_code, ErrorCode::NONE);
        let took = clock.monotonic() - sent;
        assert!(took >= PATIENCE && took < PATIENCE + SLACK, "{took:?}");
    }
    let durable = committed(&mut client, "g", 0).await.committed_offset;
    assert_eq!(durable, -1, "what is not durable is not told");
    h.backend.set_plan(FaultPlan::none());
    let request = member_commit(21, joined.generation_id, &joined.member_id);
    let answer = client.call(7, &request).await;
    assert_eq!(code(&answer), ErrorCode::NONE);
    let last = committed(&mut client, "g", 0).await.committed_offset;
    assert_eq!(last, 21, "those given up came before it");
}

#[tokio::test(start_paused = true)]
async fn commits_that_are_given_up_do_not_fill_the_memory() {
    let (runtime, backend) = empty();
    let store = Store::new(
        std::sync::Arc::new(backend.clone()),
        runtime,
        StoreOptions::default(),
    );
    let limits = LogLimits {
        pending_bytes_max: 8_000,
        ..LogLimits::local()
    };
    let h = open_store(store, backend, config(), limits).await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    assert_eq!(commit(&mut client, "g", &[(0, 1)]).await, ErrorCode::NONE);
    h.backend.set_plan(refused_writes());
    for offset in 2..=200 {
        let refused = commit(&mut client, "g", &[(0, offset)]).await;
        assert_eq!(refused, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, "{offset}");
    }
    let pending = h.log.pending_bytes();
    assert!((9_000..10_000).contains(&pending), "{pending} bytes");
    h.backend.set_plan(FaultPlan::none());
    let once_more = commit(&mut client, "g", &[(0, 201)]).await;
    assert_eq!(once_more, ErrorCode::NONE);
    let last = committed(&mut client, "g", 0).await.committed_offset;
    assert_eq!(last, 201);
}

/// librdkafka counts its session itself: silenced for longer, a member comes back as a new one.
#[tokio::test(start_paused = true)]
async fn a_group_waits_no_session_long_for_members_that_came_back_anew() {
    let h = start().await;
    h.topic("t", 1).await;
    let (mut one, mut two) = (h.connect(), h.connect());
    let (a, b) = tokio::join!(join(&mut one, 9, "g"), join(&mut two, 9, "g"));
    tokio::join!(sync(&mut one, 5, "g", &a), sync(&mut two, 5, "g", &b));
    h.backend.pause();
    // Longer than a proof may be old (R7).
    h.sleep(Duration::from_secs(12)).await;
    one.send(3, &heartbeat("g", &a)).await;
    two.send(3, &heartbeat("g", &b)).await;
    h.sleep(SESSION).await;
    // It commits before it leaves; a sign of life, but not of one that stays.
    let (one_last, two_last) = (
        member_commit(1, a.generation_id, &a.member_id),
        member_commit(1, b.generation_id, &b.member_id),
    );
    one.send(7, &one_last).await;
    two.send(7, &two_last).await;
    h.sleep(Duration::from_millis(100)).await;
    drop((one, two));
    let clock = &h.runtime.clock;
    let healed = async {
        h.sleep(Duration::from_secs(3)).await;
        h.backend.resume();
        clock.monotonic()
    };
    let (mut one, mut two) = (h.connect(), h.connect());
    let joins = async {
        let both = tokio::join!(join(&mut one, 9, "g"), join(&mut two, 9, "g"));
        (both, clock.monotonic())
    };
    let (((a, b), joined), healed) = tokio::join!(joins, healed);
    let waited = joined - healed;
    assert!(waited < SESSION / 2, "{waited:?}");
    assert_eq!(a.generation_id, b.generation_id, "one rebalance");
    assert_eq!(a.members.len() + b.members.len(), 2, "told to the leader");
}
