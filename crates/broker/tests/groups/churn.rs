//! Random churn: I13, I16, and no request left hanging.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidemill_broker::groups::machine::{GroupState, Reply};

use crate::sim::Sim;

#[derive(Clone, Debug)]
enum Step {
    JoinNew { modern: bool },
    JoinStatic { instance: u8, skip: bool },
    Rejoin { member: usize },
    Sync { member: usize },
    Beat { member: usize },
    Leave { member: usize },
    Pass { ms: i64 },
    Stored { ok: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let member = 0usize..8;
    prop_oneof![
        2 => any::<bool>().prop_map(|modern| Step::JoinNew { modern }),
        2 => (0u8..3, any::<bool>())
            .prop_map(|(instance, skip)| Step::JoinStatic { instance, skip }),
        4 => member.clone().prop_map(|member| Step::Rejoin { member }),
        6 => member.clone().prop_map(|member| Step::Sync { member }),
        3 => member.clone().prop_map(|member| Step::Beat { member }),
        1 => member.prop_map(|member| Step::Leave { member }),
        4 => (0i64..20_000).prop_map(|ms| Step::Pass { ms }),
        4 => prop::bool::weighted(0.8).prop_map(|ok| Step::Stored { ok }),
    ]
}

#[derive(Default)]
struct World {
    joins: Vec<Reply>,
    syncs: Vec<Reply>,
    /// Generation -> who was told that it leads.
    leaders: BTreeMap<i32, String>,
    /// Generation and assignment -> owner. Each leader hands out bytes of its own.
    owners: BTreeMap<(i32, String), String>,
    sync_of: BTreeMap<Reply, (String, i32)>,
}

/// A member's id and static name.
fn member(sim: &Sim, index: usize) -> Option<(String, Option<String>)> {
    let all: Vec<_> = sim.group.members().collect();
    let chosen = all.get(index % all.len().max(1))?;
    Some((chosen.id.clone(), chosen.instance_id.clone()))
}

fn sync(sim: &mut Sim, world: &mut World, index: usize) {
    let Some((id, instance)) = member(sim, index) else {
        return;
    };
    let generation = sim.group.generation();
    let ids: Vec<String> = sim
        .group
        .members()
        .map(|member| member.id.clone())
        .collect();
    let parts: Vec<(String, String)> = ids
        .into_iter()
        .zip((0..).map(|n| format!("p{n}")))
        .collect();
    let parts: Vec<(&str, &str)> = parts
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    let leads = sim.group.leader() == Some(id.as_str());
    let parts = if leads { &parts[..] } else { &[] };
    let reply = sim.sync_with(&id, instance.as_deref(), generation, parts);
    world.syncs.push(reply);
    world.sync_of.insert(reply, (id, generation));
}

fn run(sim: &mut Sim, world: &mut World, step: &Step) {
    match step {
        Step::JoinNew { modern } => {
            let mut join = sim.request("");
            join.require_known_id = *modern;
            let reply = sim.send(join);
            world.joins.push(reply);
            if let Some(Err(refused)) = sim.joins.get(&reply).cloned() {
                world.joins.push(sim.join(&refused.member_id));
            }
        }
        Step::JoinStatic { instance, skip } => {
            let name = format!("i{instance}");
            world.joins.push(sim.join_static(&name, "", *skip));
        }
        Step::Rejoin { member: index } => {
            if let Some((id, instance)) = member(sim, *index) {
                let mut join = sim.request(&id);
                join.instance_id = instance;
                world.joins.push(sim.send(join));
            }
        }
        Step::Sync { member } => sync(sim, world, *member),
        Step::Beat { member: index } => {
            if let Some((id, instance)) = member(sim, *index) {
                let (generation, now_ms) = (sim.group.generation(), sim.now_ms);
                let _ = sim
                    .group
                    .heartbeat(&id, instance.as_deref(), generation, now_ms);
            }
        }
        Step::Leave { member: index } => {
            if let Some((id, instance)) = member(sim, *index) {
                assert_eq!(sim.leave(&id, instance.as_deref()), Ok(()));
            }
        }
        Step::Pass { ms } => sim.pass(*ms),
        Step::Stored { ok } => sim.stored(*ok),
    }
}

fn check(sim: &Sim, world: &mut World) {
    for reply in &world.joins {
        if let Some(Ok(joined)) = sim.joins.get(reply)
            && joined.leader == joined.member_id
            && !joined.skip_assignment
        {
            let leader = world.leaders.entry(joined.generation);
            assert_eq!(
                leader.or_insert(joined.member_id.clone()),
                &joined.member_id
            );
        }
    }
    for (reply, (member, generation)) in &world.sync_of {
        if let Some(Ok(synced)) = sim.syncs.get(reply)
            && !synced.assignment.is_empty()
        {
            let bytes = String::from_utf8(synced.assignment.to_vec()).expect("text");
            // A static member's next process owns what its last one did; names stay apart by id.
            let owner = world.owners.entry((*generation, bytes));
            let owner = owner.or_insert(member.clone());
            let is_gone = sim.group.member(owner).is_none();
            assert!(
                owner == member || is_gone,
                "two owners in generation {generation} (I13)"
            );
        }
    }
    if sim.group.state() == GroupState::Stable {
        let leader = sim.group.leader().expect("a stable group has a leader");
        assert!(sim.group.member(leader).is_some());
    }
}

/// Every member does as a client would until the group is stable (I16).
fn converge(sim: &mut Sim, world: &mut World) {
    sim.store_at_once = true;
    while !sim.stores.is_empty() {
        sim.stored(true);
    }
    for _ in 0..40 {
        let count = sim.group.members().count();
        for index in 0..count {
            let state = sim.group.state();
            let Some((id, instance)) = member(sim, index) else {
                break;
            };
            let (generation, now_ms) = (sim.group.generation(), sim.now_ms);
            let beat = sim
                .group
                .heartbeat(&id, instance.as_deref(), generation, now_ms);
            match state {
                GroupState::PreparingRebalance if beat.is_err() => {
                    run(sim, world, &Step::Rejoin { member: index });
                }
                GroupState::CompletingRebalance => sync(sim, world, index),
                _ => {}
            }
        }
        sim.pass(5_000);
        check(sim, world);
    }
    let is_empty = sim.group.members().count() == 0;
    let wanted = if is_empty {
        GroupState::Empty
    } else {
        GroupState::Stable
    };
    assert_eq!(sim.group.state(), wanted);
    for reply in &world.joins {
        assert!(sim.joins.contains_key(reply), "a join hangs");
    }
    for reply in &world.syncs {
        assert!(sim.syncs.contains_key(reply), "a sync hangs");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn churn_ends_in_one_stable_generation(
        steps in prop::collection::vec(step(), 1..120),
        store_at_once in any::<bool>(),
    ) {
        let mut sim = Sim::new();
        sim.store_at_once = store_at_once;
        let mut world = World::default();
        for step in &steps {
            run(&mut sim, &mut world, step);
            check(&sim, &mut world);
        }
        converge(&mut sim, &mut world);
    }
}
