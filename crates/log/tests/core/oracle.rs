//! The commit rule against a brute-force oracle.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_invariants::wal::{applies, inherit, missing_before};
use tidemill_log::{
    Entry, Latency, LogLimits, Part, PartBody, format::wal::WalDirectory, recover::Recovered,
};
use tidemill_runtime::Entropy;
use tidemill_wire::ids::PartitionId;

use crate::harness::{World, batch, lead, partition, simulate};

const PARTITIONS: u64 = 6;

/// An entry as the directories show it: its objects, and the dependencies it states.
struct Known {
    objects: Vec<u64>,
    deps: u128,
    partitions: Vec<PartitionId>,
}

async fn entries(world: &World) -> BTreeMap<u64, Known> {
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    let wal = world.wal(1);
    for (number, _) in wal.list_from(1).await.unwrap() {
        let bytes = wal.read(number).await.unwrap().unwrap();
        for entry in WalDirectory::decode_object(&bytes).unwrap().1.entries {
            let empty = || Known {
                objects: Vec::new(),
                deps: 0,
                partitions: Vec::new(),
            };
            let known = known.entry(entry.id).or_insert_with(empty);
            known.objects.push(number);
            known.deps = entry.deps;
            known
                .partitions
                .extend(entry.parts.iter().map(|part| part.partition));
        }
    }
    known
}

/// The entries without a missing object among their own and those of all entries before them in
/// their partitions, and of those before these.
fn brute_force(known: &BTreeMap<u64, Known>, landed: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut committed = BTreeSet::new();
    let mut blocked = BTreeSet::new();
    // Entries of one partition have ascending ids in the order of their last objects.
    let mut order: Vec<_> = known.iter().collect();
    order.sort_by_key(|(id, entry)| (entry.objects.last().copied(), **id));
    for (id, entry) in order {
        let free = entry.objects.iter().all(|number| landed.contains(number))
            && entry
                .partitions
                .iter()
                .all(|partition| !blocked.contains(partition));
        if free {
            committed.insert(*id);
        } else {
            blocked.extend(entry.partitions.iter().copied());
        }
    }
    committed
}

async fn run(world: World, seed: u64) {
    let random = Entropy::from_seed(seed);
    let limits = LogLimits {
        spacing_low: std::time::Duration::ZERO,
        bulk_entry_bytes: 500,
        fragment_bytes: 500,
        puts_in_flight_max: 32,
        bulk_in_flight_max: 20,
        ..LogLimits::bucket()
    };
    let log = world.open_with(1, limits, Recovered::default()).await;
    (0..PARTITIONS as i32).for_each(|index| {
        lead(&log, index);
    });
    // Nothing is decided while entries are encoded, so that every dependency is stated.
    world.faulty.pause();
    for _ in 0..60 {
        let first = random.below(PARTITIONS) as i32;
        let second = random.below(PARTITIONS) as i32;
        let targets: BTreeSet<_> = match random.chance(0.3) {
            true => [first, second].into(),
            false => [first].into(),
        };
        let bytes = if random.chance(0.2) { 2_000 } else { 10 };
        let part = |index| Part {
            partition: partition(index),
            leader_epoch: None,
            body: PartBody::Records(batch(&vec![b'x'; bytes], 1)),
        };
        let parts = targets.into_iter().map(part).collect();
        log.append(Entry {
            parts,
            latency: Latency::Low,
        })
        .unwrap();
        if random.chance(0.6) {
            world.sleep_ms(1).await;
        }
    }
    let in_flight = log.next_number();
    world.faulty.heal();
    world.sleep_ms(10_000).await;
    let mut known = entries(&world).await;
    // Later objects were encoded when earlier ones were decided.
    known.retain(|_, entry| entry.objects.last().is_some_and(|last| *last < in_flight));
    assert!(
        known.len() > 10,
        "{} entries in {in_flight} objects",
        known.len()
    );
    for _ in 0..300 {
        let landed: BTreeSet<u64> = (1..in_flight).filter(|_| random.chance(0.93)).collect();
        let expected = brute_force(&known, &landed);
        let is_in = |number: u64| number == 0 || landed.contains(&number);
        for (id, entry) in &known {
            let last = entry.objects.last().copied().unwrap_or(0);
            let missing = missing_before(last, is_in);
            let decided = applies(is_in(last), entry.deps, missing);
            assert_eq!(decided, expected.contains(id), "entry {id}, seed {seed}");
        }
    }
}

#[test]
fn the_bitmap_says_what_brute_force_says() {
    for seed in 0..20 {
        simulate(seed, |world| run(world, seed));
    }
}

proptest::proptest! {
    #[test]
    fn inherited_dependencies_name_the_same_numbers(
        deps in proptest::prelude::any::<u128>(),
        distance in 0u64..200,
    ) {
        let (n, deps) = (1_000u64, deps & tidemill_invariants::wal::WINDOW);
        let names = |n: u64, deps: u128| -> BTreeSet<u64> {
            (0..127).filter(|j| deps & 1 << j != 0).map(|j| n - 1 - j).collect()
        };
        let later = n + distance;
        let mut expected = names(n, deps);
        if distance > 0 {
            expected.insert(n);
        }
        expected.retain(|number| later - number < 128);
        proptest::prop_assert_eq!(names(later, inherit(deps, distance)), expected);
    }
}
