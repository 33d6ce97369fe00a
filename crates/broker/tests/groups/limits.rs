//! `group.max.size`, sizes, and numbers clients make up.

use tidemill_broker::groups::{error::GroupError, machine::GroupState};

use crate::sim::{Sim, protocols};

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

#[test]
fn protocols_without_end_are_refused() {
    let mut sim = Sim::new();
    let names: Vec<_> = (0..=sim.limits.protocols_max)
        .map(|n| n.to_string())
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for (names, is_taken) in [(&names[..], false), (&names[1..], true)] {
        let mut join = sim.request("");
        join.protocols = protocols(names);
        let reply = sim.send(join);
        assert_eq!(sim.group.size(), usize::from(is_taken));
        if !is_taken {
            let error = GroupError::InconsistentGroupProtocol;
            assert_eq!(sim.refused(reply).error, error);
        }
    }
}

/// A name that comes twice in one request is offered once.
#[test]
fn a_protocol_is_common_only_if_everybody_offers_it() {
    let mut sim = Sim::new();
    let mut join = |names: &[&str]| {
        let mut join = sim.request("");
        join.protocols = protocols(names);
        sim.send(join)
    };
    let first = join(&["own", "own", "both"]);
    let second = join(&["own", "both", "both"]);
    let third = join(&["both", "other"]);
    let fourth = join(&["own", "own", "own", "other"]);
    let error = GroupError::InconsistentGroupProtocol;
    assert_eq!(
        sim.refused(fourth).error,
        error,
        "the third offers none of these"
    );
    sim.pass(6_000);
    for reply in [first, second, third] {
        assert_eq!(sim.joined(reply).protocol_name.as_deref(), Some("both"));
    }
}
