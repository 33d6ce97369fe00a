//! `group.max.size`, sizes, and numbers clients make up.

use tidemill_broker::groups::{error::GroupError, machine::GroupState};

use crate::sim::Sim;

#[test]
fn a_full_group_takes_nobody_in() {
    let mut sim = Sim::new();
    sim.limits.size_max = 2;
    let ids = sim.stable(2);
    let third = sim.join("");
    assert_eq!(sim.refused(third).error, GroupError::GroupMaxSizeReached);
    let mut modern = sim.request("");
    modern.require_known_id = true;
    let modern = sim.send(modern);
    assert_eq!(sim.refused(modern).error, GroupError::GroupMaxSizeReached);
    let again = sim.join(&ids[1]);
    assert_eq!(sim.joined(again).generation, 1, "members are in");
}

#[test]
fn a_lowered_limit_holds_for_known_members_at_the_next_rebalance() {
    let mut sim = Sim::new();
    let ids = sim.stable(3);
    sim.limits.size_max = 2;
    let first = sim.join(&ids[0]);
    let second = sim.join(&ids[1]);
    let third = sim.join(&ids[2]);
    assert_eq!(sim.refused(third).error, GroupError::GroupMaxSizeReached);
    sim.pass(60_000);
    assert_eq!(sim.joined(first).members.len(), 2);
    assert!(!sim.is_parked(second));
}

#[test]
fn ids_given_out_and_never_used_lock_nobody_out() {
    let mut sim = Sim::new();
    sim.limits.size_max = 1;
    for _ in 0..5 {
        let mut lost = sim.request("");
        lost.require_known_id = true;
        let lost = sim.send(lost);
        assert_eq!(sim.refused(lost).error, GroupError::MemberIdRequired);
    }
    let in_time = sim.join("");
    sim.pass(60_000);
    assert_eq!(sim.joined(in_time).generation, 1);
    assert_eq!(sim.group.size(), 0, "its session has ended too");
}

#[test]
fn a_rebalance_time_out_of_nothing_or_less_does_not_spin() {
    let mut sim = Sim::new();
    for (instance, ms) in [("a", 0), ("b", -1), ("c", i32::MIN)] {
        let mut join = sim.request("");
        join.instance_id = Some(instance.to_owned());
        join.rebalance_timeout_ms = ms;
        sim.send(join);
    }
    sim.pass(3_000);
    assert_eq!(sim.group.state(), GroupState::CompletingRebalance);
    assert_eq!(sim.leave("", Some("a")), Ok(()));
    sim.pass(600_000);
    assert_eq!(sim.group.state(), GroupState::Empty);
}

#[test]
fn metadata_without_end_is_refused() {
    let mut sim = Sim::new();
    sim.limits.metadata_bytes_max = 10;
    let reply = sim.join("");
    let error = GroupError::InconsistentGroupProtocol;
    assert_eq!(sim.refused(reply).error, error);
    assert_eq!(sim.group.size(), 0);
}
