//! Static members: K47.

use tidemill_broker::groups::{error::GroupError, machine::GroupState};

use tidemill_wire::ErrorCode;

use crate::{
    client::{describe, join_request, start, sync, text},
    sim::{REBALANCE_MS, SESSION_MS, Sim, protocols},
};

/// A stable group with static members `a` (leader) and `b`; their ids.
fn pair(sim: &mut Sim) -> [String; 2] {
    let replies = [
        sim.join_static("a", "", false),
        sim.join_static("b", "", false),
    ];
    sim.pass(6_000);
    let ids = replies.map(|reply| sim.joined(reply).member_id.clone());
    sim.sync_with(&ids[1], Some("b"), 1, &[]);
    sim.sync_with(
        &ids[0],
        Some("a"),
        1,
        &[(&ids[0], "for a"), (&ids[1], "for b")],
    );
    assert_eq!(sim.group.state(), GroupState::Stable);
    ids
}

#[test]
fn k47_a_new_process_takes_over_without_a_rebalance() {
    let mut sim = Sim::new();
    let ids = pair(&mut sim);
    sim.store_at_once = false;
    let again = sim.join_static("b", "", false);
    assert!(sim.is_parked(again), "told once it is stored");
    sim.stored(true);
    let joined = sim.joined(again).clone();
    assert_eq!(
        (joined.generation, joined.leader.as_str()),
        (1, ids[0].as_str())
    );
    assert_ne!(joined.member_id, ids[1]);
    let synced = sim.sync_with(&joined.member_id, Some("b"), 1, &[]);
    assert_eq!(sim.synced(synced), Ok("for b"), "the cached assignment");
    assert_eq!(sim.group.state(), GroupState::Stable);
}

/// The new process's time-outs hold from then on, the old one's do not.
#[test]
fn k47_a_new_process_brings_its_own_time_outs() {
    let mut sim = Sim::new();
    pair(&mut sim);
    let mut join = sim.request("");
    join.instance_id = Some("b".to_owned());
    join.session_timeout_ms = 3 * SESSION_MS;
    let again = sim.send(join);
    let id = sim.joined(again).member_id.clone();
    let others = sim.join_static("a", "", false);
    let other = sim.joined(others).member_id.clone();
    for _ in 0..5 {
        sim.pass(i64::from(SESSION_MS) / 2);
        let now_ms = sim.now_ms;
        assert_eq!(sim.group.heartbeat(&other, Some("a"), 1, now_ms), Ok(()));
    }
    let now_ms = sim.now_ms;
    assert_eq!(sim.group.heartbeat(&id, Some("b"), 1, now_ms), Ok(()));
    sim.pass(i64::from(SESSION_MS) / 2);
    let now_ms = sim.now_ms;
    assert_eq!(sim.group.heartbeat(&other, Some("a"), 1, now_ms), Ok(()));
}

#[test]
fn k47_the_old_process_is_fenced_everywhere() {
    let mut sim = Sim::new();
    let ids = pair(&mut sim);
    sim.join_static("b", "", false);
    let fenced = Err(GroupError::FencedInstanceId);
    let (old, now_ms) = (ids[1].as_str(), sim.now_ms);
    assert_eq!(sim.group.heartbeat(old, Some("b"), 1, now_ms), fenced);
    assert_eq!(sim.group.check_commit(old, Some("b"), 1, now_ms), fenced);
    assert_eq!(sim.leave(old, Some("b")), fenced);
    let sync = sim.sync_with(old, Some("b"), 1, &[]);
    assert_eq!(sim.synced(sync), Err(GroupError::FencedInstanceId));
    let join = sim.join_static("b", old, false);
    assert_eq!(sim.refused(join).error, GroupError::FencedInstanceId);
    let unknown = Err(GroupError::UnknownMemberId);
    assert_eq!(sim.group.heartbeat(old, None, 1, now_ms), unknown);
    assert_eq!(sim.group.heartbeat("x", Some("c"), 1, now_ms), unknown);
}

#[test]
fn k47_a_leader_that_comes_back_is_told_to_skip_or_sees_the_old_leader() {
    let mut sim = Sim::new();
    let ids = pair(&mut sim);
    let old_version = sim.join_static("a", "", false);
    let joined = sim.joined(old_version).clone();
    assert_eq!(
        joined.leader, ids[0],
        "an old client must not think itself leader"
    );
    assert!(joined.members.is_empty() && !joined.skip_assignment);
    let v9 = sim.join_static("a", "", true);
    let joined = sim.joined(v9).clone();
    assert!(joined.skip_assignment);
    assert_eq!(joined.leader, joined.member_id);
    assert_eq!(joined.members.len(), 2);
    let synced = sim.sync_with(&joined.member_id, Some("a"), 1, &[]);
    assert_eq!(sim.synced(synced), Ok("for a"));
}

#[test]
fn k47_a_changed_protocol_and_a_rebalance_under_way_do_rebalance() {
    let mut sim = Sim::new();
    let ids = pair(&mut sim);
    let mut changed = sim.request("");
    changed.instance_id = Some("b".to_owned());
    changed.protocols = protocols(&["sticky"]);
    let changed = sim.send(changed);
    assert_eq!(sim.group.state(), GroupState::PreparingRebalance);
    let replaced = sim.join_static("b", "", false);
    assert_eq!(
        sim.refused(changed).error,
        GroupError::FencedInstanceId,
        "parked and replaced"
    );
    let leader = sim.join_static("a", &ids[0], false);
    assert_eq!(sim.joined(leader).members.len(), 2);
    assert_eq!(sim.joined(replaced).generation, 2);
}

#[test]
fn k47_leave_by_instance_id_alone() {
    let mut sim = Sim::new();
    pair(&mut sim);
    assert_eq!(sim.leave("", Some("c")), Err(GroupError::UnknownMemberId));
    assert_eq!(sim.leave("", Some("b")), Ok(()));
    assert_eq!(sim.group.state(), GroupState::PreparingRebalance);
    assert_eq!(sim.leave("", Some("b")), Err(GroupError::UnknownMemberId));
    assert_eq!(sim.leave("", Some("a")), Ok(()));
    assert_eq!(sim.group.state(), GroupState::Empty);
}

#[test]
fn a_static_member_may_be_away_for_its_session() {
    let mut sim = Sim::new();
    let ids = pair(&mut sim);
    let a = sim.join_static("a", &ids[0], false);
    assert!(sim.is_parked(a), "b may come back");
    sim.pass(i64::from(SESSION_MS));
    assert_eq!(sim.joined(a).members.len(), 1);
}

#[test]
fn static_members_that_all_stay_away_go_with_their_sessions() {
    let mut sim = Sim::new();
    let ids = pair(&mut sim);
    assert_eq!(sim.leave(&ids[0], Some("a")), Ok(()));
    sim.pass(i64::from(REBALANCE_MS));
    assert_eq!(sim.group.state(), GroupState::Empty);
    assert_eq!(sim.group.members().count(), 0);
}

/// Over the wire: whoever looks at the group sees the process that is there now.
#[tokio::test(start_paused = true)]
async fn k47_a_new_process_is_described_by_its_own_client_id() {
    let h = start().await;
    let mut request = join_request("g", "", &["t"]);
    request.group_instance_id = Some(text("i"));
    let mut generations = Vec::new();
    for id in ["one", "two"] {
        let mut client = h.connect();
        client.id = id;
        let joined = client.call(7, &request).await;
        assert_eq!(joined.error_code, ErrorCode::NONE);
        generations.push(joined.generation_id);
        // A static member is synced by its id alone while it is not fenced.
        let synced = sync(&mut client, 5, "g", &joined).await;
        assert_eq!(synced.error_code, ErrorCode::NONE);
        for version in 4..=6 {
            let group = describe(&mut client, version, "g").await;
            assert_eq!(group.group_state, *"Stable");
            let [member] = &group.members[..] else {
                panic!("{} members", group.members.len());
            };
            assert_eq!(member.member_id, joined.member_id);
            assert_eq!(member.client_id, *id);
            assert_eq!(member.group_instance_id, Some(text("i")));
        }
    }
    assert_eq!(generations, [1, 1], "no rebalance");
}
