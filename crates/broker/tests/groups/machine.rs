//! Joins, syncs, heartbeats, commits: K44-K46, K48, K49.

use tidemill_broker::groups::{error::GroupError, machine::GroupState};

use crate::sim::{REBALANCE_MS, SESSION_MS, Sim, protocols};

#[test]
fn k44_a_new_version_must_come_back_with_the_id_it_is_given() {
    let mut sim = Sim::new();
    let mut first = sim.request("");
    first.require_known_id = true;
    let first = sim.send(first);
    assert_eq!(sim.refused(first).error, GroupError::MemberIdRequired);
    let id = sim.refused(first).member_id.clone();
    assert!(!id.is_empty());
    assert_eq!(sim.group.state(), GroupState::Empty);
    let again = sim.join(&id);
    assert!(sim.is_parked(again));
    sim.pass(3_000);
    assert_eq!(sim.joined(again).member_id, id);
    let unknown = sim.join("nobody");
    assert_eq!(sim.refused(unknown).error, GroupError::UnknownMemberId);
    assert_eq!(sim.refused(unknown).member_id, "nobody");
}

#[test]
fn an_id_that_is_not_used_lapses_and_holds_a_rebalance_up_only_until_then() {
    let mut sim = Sim::new();
    let ids = sim.stable(1);
    let mut other = sim.request("");
    other.require_known_id = true;
    let other = sim.send(other);
    let given = sim.refused(other).member_id.clone();
    let again = sim.join(&ids[0]);
    assert!(sim.is_parked(again), "the id given out may come");
    sim.pass(i64::from(SESSION_MS));
    assert_eq!(sim.joined(again).members.len(), 1);
    let late = sim.join(&given);
    assert_eq!(sim.refused(late).error, GroupError::UnknownMemberId);
}

#[test]
fn k44_no_common_protocol_and_other_types_are_refused() {
    let mut sim = Sim::new();
    sim.stable(1);
    let mut other = sim.request("");
    other.protocols = protocols(&["cooperative"]);
    let mut connect = sim.request("");
    connect.protocol_type = "connect".to_owned();
    let mut nothing = sim.request("");
    nothing.protocols.clear();
    for bad in [other, connect, nothing] {
        let reply = sim.send(bad);
        let error = GroupError::InconsistentGroupProtocol;
        assert_eq!(sim.refused(reply).error, error);
    }
    let mut short = sim.request("");
    short.session_timeout_ms = 5_999;
    let short = sim.send(short);
    assert_eq!(sim.refused(short).error, GroupError::InvalidSessionTimeout);
    assert_eq!(sim.group.state(), GroupState::Stable);
}

#[test]
fn the_initial_delay_waits_for_more_and_is_extended_by_each() {
    let mut sim = Sim::new();
    let first = sim.join("");
    sim.pass(2_900);
    let second = sim.join("");
    sim.pass(200);
    assert!(sim.is_parked(first), "extended once");
    let third = sim.join("");
    sim.pass(3_000);
    assert!(sim.is_parked(first), "and again");
    sim.pass(3_000);
    assert_eq!(sim.joined(first).members.len(), 3);
    for reply in [second, third] {
        assert_eq!(sim.joined(reply).leader, sim.joined(first).member_id);
        assert!(
            sim.joined(reply).members.is_empty(),
            "only the leader sees them"
        );
        assert_eq!(sim.joined(reply).generation, 1);
    }
}

#[test]
fn the_extension_ends_with_the_rebalance_time_out() {
    let mut sim = Sim::new();
    let first = sim.join("");
    for _ in 0..i64::from(REBALANCE_MS) / 1_000 {
        sim.join("");
        sim.pass(1_000);
    }
    assert!(!sim.is_parked(first));
}

#[test]
fn k45_the_rebalance_time_out_and_not_the_session_bounds_the_wait() {
    let mut sim = Sim::new();
    let ids = sim.stable(2);
    let again = sim.join(&ids[0]);
    for _ in 0..5 {
        sim.pass(5_000);
        assert_eq!(sim.beat(&ids[1]), Err(GroupError::RebalanceInProgress));
        assert!(sim.is_parked(again));
    }
    for _ in 0..7 {
        sim.pass(5_000);
        // The beats alone keep it from being expired, not from being left out.
        let _ = sim.beat(&ids[1]);
    }
    assert_eq!(sim.joined(again).members.len(), 1);
    assert_eq!(sim.beat(&ids[1]), Err(GroupError::UnknownMemberId));
}

#[test]
fn k46_everybody_gets_the_leaders_bytes_as_they_are() {
    let mut sim = Sim::new();
    let replies = [sim.join(""), sim.join("")];
    sim.pass(6_000);
    let [leader, other] = replies.map(|reply| sim.joined(reply).member_id.clone());
    assert_eq!(sim.joined(replies[0]).leader, leader);
    let waits = sim.sync(&other, &[]);
    assert!(sim.is_parked(waits));
    let leads = sim.sync(&leader, &[(&leader, "\u{0}one"), (&other, "two")]);
    assert_eq!(sim.synced(waits), Ok("two"));
    assert_eq!(sim.synced(leads), Ok("\u{0}one"));
    let again = sim.sync(&other, &[(&other, "mine")]);
    assert_eq!(
        sim.synced(again),
        Ok("two"),
        "in a stable group what was assigned"
    );
    let stale = sim.sync_with(&other, None, 0, &[]);
    assert_eq!(sim.synced(stale), Err(GroupError::IllegalGeneration));
}

#[test]
fn k46_a_lost_leader_sends_the_others_back() {
    let mut sim = Sim::new();
    let replies = [sim.join(""), sim.join("")];
    sim.pass(6_000);
    let [leader, other] = replies.map(|reply| sim.joined(reply).member_id.clone());
    let waits = sim.sync(&other, &[]);
    sim.pass(i64::from(SESSION_MS));
    assert_eq!(sim.synced(waits), Err(GroupError::RebalanceInProgress));
    let late = sim.sync(&leader, &[]);
    assert_eq!(sim.synced(late), Err(GroupError::UnknownMemberId));
    let again = sim.join(&other);
    assert_eq!(sim.joined(again).leader, other, "elected");
    assert_eq!(sim.joined(again).generation, 2);
}

/// A rebalance began before the member has synced: it has to join again (27), whatever it hands in.
#[test]
fn k46_a_sync_during_a_rebalance_is_sent_back_to_join() {
    let mut sim = Sim::new();
    let replies = [sim.join(""), sim.join("")];
    sim.pass(6_000);
    let [leader, other] = replies.map(|reply| sim.joined(reply).member_id.clone());
    sim.join("");
    assert_eq!(sim.group.state(), GroupState::PreparingRebalance);
    for (id, assignments) in [(&other, vec![]), (&leader, vec![(other.as_str(), "o")])] {
        let late = sim.sync(id, &assignments);
        assert_eq!(sim.synced(late), Err(GroupError::RebalanceInProgress));
    }
    let old = sim.sync_with(&other, None, 0, &[]);
    assert_eq!(sim.synced(old), Err(GroupError::IllegalGeneration));
}

#[test]
fn a_member_that_never_syncs_is_out_and_one_that_syncs_late_stays() {
    let mut sim = Sim::new();
    let replies = [sim.join(""), sim.join(""), sim.join("")];
    sim.pass(6_000);
    let [leader, late, never] = replies.map(|reply| sim.joined(reply).member_id.clone());
    sim.sync(&leader, &[(&late, "l")]);
    for second in 0..i64::from(REBALANCE_MS) / 1_000 - 1 {
        for id in [&leader, &late, &never] {
            assert_eq!(sim.beat(id), Ok(()));
        }
        if second == 30 {
            let synced = sim.sync(&late, &[]);
            assert_eq!(sim.synced(synced), Ok("l"));
        }
        sim.pass(1_000);
    }
    sim.pass(2_000);
    assert_eq!(sim.beat(&never), Err(GroupError::UnknownMemberId));
    assert_eq!(sim.beat(&late), Err(GroupError::RebalanceInProgress));
    assert_eq!(sim.beat(&leader), Err(GroupError::RebalanceInProgress));
}

#[test]
fn an_assignment_that_cannot_be_stored_reaches_nobody() {
    let mut sim = Sim::new();
    sim.store_at_once = false;
    let joined = sim.join("");
    sim.pass(3_000);
    let id = sim.joined(joined).member_id.clone();
    let waits = sim.sync(&id, &[(&id, "a")]);
    assert!(
        sim.is_parked(waits),
        "nothing is told before it is durable (R1)"
    );
    sim.stored(false);
    assert_eq!(sim.synced(waits), Err(GroupError::CoordinatorNotAvailable));
    assert_eq!(sim.group.state(), GroupState::PreparingRebalance);
    let again = sim.join(&id);
    assert_eq!(sim.joined(again).generation, 2);
    let waits = sim.sync(&id, &[(&id, "b")]);
    sim.stored(true);
    assert_eq!(sim.synced(waits), Ok("b"));
}

#[test]
fn k48_who_may_commit() {
    let mut sim = Sim::new();
    let now_ms = sim.now_ms;
    assert_eq!(sim.group.check_commit("", None, -1, now_ms), Ok(()));
    let error = Err(GroupError::UnknownMemberId);
    assert_eq!(sim.group.check_commit("x", None, 1, now_ms), error);
    let reply = sim.join("");
    assert_eq!(sim.group.check_commit("", None, -1, now_ms), error);
    sim.pass(3_000);
    let (id, now_ms) = (sim.joined(reply).member_id.clone(), sim.now_ms);
    let error = Err(GroupError::RebalanceInProgress);
    assert_eq!(sim.group.check_commit(&id, None, 1, now_ms), error);
    sim.sync(&id, &[]);
    assert_eq!(sim.group.check_commit(&id, None, 1, now_ms), Ok(()));
    let error = Err(GroupError::IllegalGeneration);
    assert_eq!(sim.group.check_commit(&id, None, 0, now_ms), error);
    assert_eq!(sim.group.check_commit(&id, None, 2, now_ms), error);
    let error = Err(GroupError::UnknownMemberId);
    assert_eq!(sim.group.check_commit("", None, -1, now_ms), error);
    sim.join(&id);
    let mut other = sim.request("");
    other.fresh_id = "other".to_owned();
    sim.sync(&id, &[]);
    sim.send(other);
    assert_eq!(sim.group.state(), GroupState::PreparingRebalance);
    let generation = sim.group.generation();
    assert_eq!(
        sim.group.check_commit(&id, None, generation, now_ms),
        Ok(())
    );
}

#[test]
fn k49_heartbeats_in_every_state() {
    let mut sim = Sim::new();
    assert_eq!(sim.beat("x"), Err(GroupError::UnknownMemberId));
    let reply = sim.join("");
    sim.pass(3_000);
    let id = sim.joined(reply).member_id.clone();
    sim.pass(9_000);
    assert_eq!(
        sim.beat(&id),
        Ok(()),
        "CompletingRebalance; the timer starts anew"
    );
    sim.pass(9_000);
    sim.sync(&id, &[]);
    sim.pass(9_000);
    assert_eq!(sim.beat(&id), Ok(()), "Stable");
    let error = Err(GroupError::IllegalGeneration);
    assert_eq!(sim.group.heartbeat(&id, None, 7, sim.now_ms), error);
    let other = sim.join("");
    assert_eq!(sim.beat(&id), Err(GroupError::RebalanceInProgress));
    assert!(sim.is_parked(other));
    sim.pass(i64::from(SESSION_MS));
    assert_eq!(
        sim.beat(&id),
        Err(GroupError::UnknownMemberId),
        "silent too long"
    );
    assert_eq!(sim.joined(other).members.len(), 1);
}

#[test]
fn the_last_member_leaves_an_empty_group_of_a_new_generation() {
    let mut sim = Sim::new();
    sim.store_at_once = false;
    let reply = sim.join("");
    sim.pass(3_000);
    let id = sim.joined(reply).member_id.clone();
    sim.sync(&id, &[]);
    sim.stored(true);
    assert_eq!(sim.leave(&id, None), Ok(()));
    assert_eq!(sim.group.state(), GroupState::Empty);
    assert_eq!(
        (sim.group.generation(), sim.stores.len()),
        (2, 1),
        "and it is stored (K85)"
    );
    assert_eq!(sim.group.protocol_type(), Some("consumer"));
    assert_eq!(sim.leave(&id, None), Err(GroupError::UnknownMemberId));
    assert_eq!(sim.group.delete(), Ok(()));
    let late = sim.join("");
    assert_eq!(sim.refused(late).error, GroupError::CoordinatorNotAvailable);
}

#[test]
fn the_same_member_twice_gets_two_answers_and_is_one_member() {
    let mut sim = Sim::new();
    let ids = sim.stable(2);
    let first = sim.join(&ids[0]);
    let second = sim.join(&ids[0]);
    assert_eq!(sim.refused(first).error, GroupError::RebalanceInProgress);
    assert!(sim.is_parked(second));
    let other = sim.join(&ids[1]);
    assert_eq!(sim.joined(second).members.len(), 2);
    let again = sim.join(&ids[1]);
    assert_eq!(
        sim.joined(again),
        sim.joined(other),
        "the first answer may be lost"
    );
}

#[test]
fn a_new_member_that_asks_twice_is_not_expired_while_it_waits() {
    let mut sim = Sim::new();
    let ids = sim.stable(1);
    let new = sim.request("");
    let id = new.fresh_id.clone();
    sim.send(new);
    let again = sim.join(&id);
    for _ in 0..4 {
        sim.pass(i64::from(SESSION_MS) - 1_000);
        let _ = sim.beat(&ids[0]);
    }
    assert!(sim.is_parked(again));
    sim.join(&ids[0]);
    assert_eq!(sim.joined(again).member_id, id);
}

#[test]
fn a_stall_of_the_store_expires_nobody() {
    let mut sim = Sim::new();
    let ids = sim.stable(2);
    sim.now_ms += 60_000;
    sim.group.excuse(50_000, sim.now_ms);
    sim.pass(5_000);
    for id in &ids {
        assert_eq!(sim.beat(id), Ok(()));
    }
    sim.pass(i64::from(SESSION_MS));
    assert_eq!(
        sim.group.state(),
        GroupState::Empty,
        "but silence does, afterwards"
    );
}

/// Clients that count for themselves have given these members up, and their group waits for them.
#[test]
fn after_a_stall_longer_than_their_session_members_get_time_for_some_heartbeats() {
    let mut sim = Sim::new();
    let ids = sim.stable(2);
    sim.now_ms += i64::from(SESSION_MS) + 1;
    let waited_ms = i64::from(SESSION_MS);
    let generation = sim.group.generation();
    for id in &ids {
        let late = sim
            .group
            .heartbeat_after(id, None, generation, waited_ms, sim.now_ms);
        assert_eq!(late, Ok(()), "it is a member as yet");
    }
    sim.group.excuse(waited_ms, sim.now_ms);
    sim.pass(5_999);
    assert_eq!(sim.beat(&ids[0]), Ok(()));
    sim.pass(1);
    assert_eq!(sim.beat(&ids[0]), Err(GroupError::RebalanceInProgress));
    assert_eq!(sim.beat(&ids[1]), Err(GroupError::UnknownMemberId));
}

/// The client is still there and could not send another while it waited.
#[test]
fn a_heartbeat_that_is_answered_late_counts_once_more() {
    let mut sim = Sim::new();
    let id = sim.stable(1).remove(0);
    sim.now_ms += i64::from(SESSION_MS) - 1;
    let generation = sim.group.generation();
    let waited_ms = i64::from(SESSION_MS) - 1;
    let late = sim
        .group
        .heartbeat_after(&id, None, generation, waited_ms, sim.now_ms);
    assert_eq!(late, Ok(()));
    sim.pass(i64::from(SESSION_MS) - 1);
    assert_eq!(sim.beat(&id), Ok(()));
}
