//! The metadata log under races, faults and restarts.

mod common;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use common::{faulty, new_topic, open, registration, sealed, topic_id};
use futures_util::future::join_all;
use tidemill_cluster::{Change, Cluster, CommitError, Image, MetadataError};
use tidemill_store::{
    Backend, Payload,
    testing::{Fault, FaultPlan, Operation, Rule},
};
use tidemill_wire::ids::WriterId;

const N: u64 = 256;

async fn registered(cluster: &Cluster) -> WriterId {
    let outcome = cluster.register(registration(1), None).await;
    outcome.expect("the store waits for ever")
}

#[derive(Debug, PartialEq)]
struct Exists;

async fn create(
    cluster: &Arc<Cluster>,
    n: u64,
    name: &str,
) -> Result<Arc<Image>, CommitError<Exists>> {
    let topic = new_topic(n, name, 1, cluster.writer());
    let decide = move |image: &Image| {
        if image.topic_by_name(&topic.name).is_some() {
            return Err(Exists);
        }
        Ok(vec![Change::TopicCreated(topic.clone())])
    };
    cluster.commit(decide).await
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_is_read_again() {
    let backend = faulty(1, FaultPlan::none());
    let cluster = open(&backend, 1, N).await;
    assert_eq!(registered(&cluster).await, WriterId(1));
    let image = create(&cluster, 1, "a").await.expect("free");
    assert!(image.topic_by_name("a").is_some());
    assert_eq!(
        create(&cluster, 2, "a").await.err(),
        Some(CommitError::Rejected(Exists))
    );
    let again = open(&backend, 2, N).await;
    assert_eq!(again.image().next(), cluster.image().next());
    assert_eq!(
        again.image().topic_by_name("a").map(|t| t.id),
        Some(topic_id(1))
    );
}

#[tokio::test(start_paused = true)]
async fn concurrent_commits_share_an_entry() {
    let mut plan = FaultPlan::none();
    plan.delay = Some((Duration::from_millis(10), Duration::from_millis(20)));
    let backend = faulty(1, plan);
    let cluster = open(&backend, 1, N).await;
    registered(&cluster).await;
    let names: Vec<_> = (0..500).map(|n| (n, format!("t{n}"))).collect();
    let outcomes = join_all(names.iter().map(|(n, name)| create(&cluster, *n, name))).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(cluster.image().topic_count(), 500);
    assert!(cluster.image().next() <= 5, "{}", cluster.image().next());
}

#[tokio::test(start_paused = true)]
async fn brokers_that_race_for_a_number_agree() {
    for seed in 0..20 {
        let backend = faulty(seed, FaultPlan::bad_day());
        let brokers = join_all((0..4).map(|n| open(&backend, seed * 10 + n, 8))).await;
        let ids = join_all(brokers.iter().map(|broker| registered(broker))).await;
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), 4, "seed {seed}: writer ids are unique");
        // Ten names, each wanted by all: exactly one wins.
        let wins = AtomicU64::new(0);
        let wins = &wins;
        join_all(brokers.iter().enumerate().flat_map(|(b, broker)| {
            (0..10u64).map(move |n| async move {
                let id = b as u64 * 100 + n;
                match create(broker, id, &format!("t{n}")).await {
                    Ok(_) => wins.fetch_add(1, Ordering::Relaxed),
                    Err(CommitError::Rejected(Exists)) => 0,
                    Err(error) => panic!("seed {seed}: {error:?}"),
                }
            })
        }))
        .await;
        assert_eq!(wins.load(Ordering::Relaxed), 10, "seed {seed}");
        backend.heal();
        let mut seen = Vec::new();
        for broker in &brokers {
            let image = broker.refresh().await.expect("healed");
            seen.push(
                image
                    .topics()
                    .map(|t| (t.id, t.name.clone()))
                    .collect::<Vec<_>>(),
            );
        }
        let late = open(&backend, 999, 8).await;
        seen.push(
            late.image()
                .topics()
                .map(|t| (t.id, t.name.clone()))
                .collect(),
        );
        assert!(
            seen.windows(2).all(|pair| pair[0] == pair[1]),
            "seed {seed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_reads_a_snapshot_and_what_follows_it() {
    let backend = faulty(1, FaultPlan::none());
    let cluster = open(&backend, 1, 10).await;
    registered(&cluster).await;
    for n in 0..35 {
        create(&cluster, n, &format!("t{n}")).await.expect("free");
        tokio::task::yield_now().await;
    }
    let snapshots = backend
        .list("meta-snap/", None, 100)
        .await
        .expect("healthy");
    assert!((1..=2).contains(&snapshots.len()), "{snapshots:?}");
    // An entry below the newest snapshot is not needed any more (it is never trimmed, though).
    backend
        .delete("meta/00000000000000000002")
        .await
        .expect("healthy");
    let again = open(&backend, 2, 10).await;
    assert_eq!(again.image().topic_count(), 35);
    // A damaged snapshot is passed over as long as the entries are there.
    let newest = &snapshots.last().expect("one at least").key;
    backend.delete(newest).await.expect("healthy");
    let junk = Payload::from(Bytes::from_static(b"TDML torn"));
    backend.put_if_absent(newest, junk).await.expect("healthy");
    let again = open(&backend, 3, 10).await;
    assert_eq!(again.image().topic_count(), 35);
}

#[tokio::test(start_paused = true)]
async fn a_missing_entry_is_named() {
    let backend = faulty(1, FaultPlan::none());
    let cluster = open(&backend, 1, N).await;
    registered(&cluster).await;
    for n in 0..3 {
        create(&cluster, n, &format!("t{n}")).await.expect("free");
    }
    let key = "meta/00000000000000000002";
    backend.delete(key).await.expect("healthy");
    let runtime = common::runtime(2);
    let options = tidemill_cluster::ClusterOptions {
        store: common::store(&backend, &runtime),
        runtime,
        cluster_id: common::CLUSTER,
        snapshot_every: N,
    };
    let error = Cluster::open(options.clone()).await.expect_err("a gap");
    assert!(matches!(&error, MetadataError::Gap { key: found, highest: 4 } if found == key));
    let foreign = tidemill_cluster::ClusterOptions {
        cluster_id: [5; 16],
        ..options
    };
    let error = Cluster::open(foreign).await.expect_err("another cluster's");
    assert!(
        matches!(error, MetadataError::ForeignCluster { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_sealed_broker_commits_nothing() {
    let backend = faulty(1, FaultPlan::none());
    let old = open(&backend, 1, N).await;
    let writer = registered(&old).await;
    let new = open(&backend, 2, N).await;
    registered(&new).await;
    let seal = move |_: &Image| Ok::<_, Infallible>(vec![sealed(writer)]);
    new.commit(seal).await.expect("healthy");
    // It does not know yet, tries the next number and learns it there.
    assert_eq!(
        create(&old, 1, "a").await.err(),
        Some(CommitError::Superseded)
    );
    assert!(
        new.refresh()
            .await
            .expect("healthy")
            .topic_by_name("a")
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_commit_outlives_its_caller_and_an_outage() {
    let backend = faulty(1, FaultPlan::none());
    let cluster = open(&backend, 1, N).await;
    registered(&cluster).await;
    backend.go_down();
    let patience = Duration::from_secs(1);
    let waited = cluster.store().runtime().clock.clone();
    let outcome = waited.timeout(patience, create(&cluster, 1, "a")).await;
    assert!(outcome.is_err(), "the store is down");
    backend.heal();
    waited.sleep(Duration::from_secs(10)).await;
    assert!(cluster.image().topic_by_name("a").is_some());
    // Closed while the store is down: callers are told, nothing hangs.
    backend.go_down();
    let second = create(&cluster, 2, "b");
    let closed = async {
        waited.sleep(patience).await;
        cluster.close();
    };
    let (outcome, ()) = tokio::join!(second, closed);
    assert_eq!(outcome.err(), Some(CommitError::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_recognised_as_our_own_write() {
    let mut plan = FaultPlan::none();
    plan.rules
        .push(Rule::new(Operation::Put, "meta/", Fault::ErrorAfter).times(2));
    plan.rules
        .push(Rule::new(Operation::Put, "meta/", Fault::ExistsAfter).times(1));
    let backend = faulty(1, plan);
    let cluster = open(&backend, 1, N).await;
    assert_eq!(registered(&cluster).await, WriterId(1));
    create(&cluster, 1, "a").await.expect("free");
    create(&cluster, 2, "b").await.expect("free");
    assert_eq!(cluster.image().next(), 4, "one entry each");
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_panics_spoils_its_own_commit_only() {
    let backend = faulty(1, FaultPlan::none());
    let cluster = open(&backend, 1, N).await;
    registered(&cluster).await;
    let broken = |_: &Image| -> Result<Vec<Change>, Exists> { panic!("a mistake") };
    assert_eq!(
        cluster.commit(broken).await.err(),
        Some(CommitError::Closed)
    );
    create(&cluster, 1, "a").await.expect("free");
}
