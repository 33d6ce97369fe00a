//! Sealing: races with the old writer and with other sealers, crashes, torn objects.

mod common;

use std::{
    collections::BTreeSet,
    ops::Range,
    os::unix::fs::MetadataExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use common::{CLUSTER, faulty, runtime, store};
use futures_util::future::join_all;
use tidemill_cluster::seal::{SealError, SealOptions, Sealed, TornPolicy, seal};
use tidemill_log::{
    format::{
        checkpoint::{Checkpoint, ClosingCheckpoint},
        wal::WalDirectory,
    },
    keys::{ckpt_prefix, wal_prefix},
    types::WAL_SPAN,
};
use tidemill_store::{
    Backend, CreateOutcome, Directory, DirectoryOptions, Envelope, LocalSync, Memory, NumberedLog,
    ObjectKind, ObjectMeta, Payload, PutAnswer, PutId, Store, StoreError, StoreOptions,
    envelope::EnvelopeError,
    testing::{Fault, FaultPlan, FaultyBackend, Operation, Rule},
};
use tidemill_wire::ids::WriterId;

const OLD: WriterId = WriterId(3);
const SEALER: WriterId = WriterId(9);

fn options(store: &Store) -> SealOptions {
    SealOptions {
        store: store.clone(),
        cluster_id: CLUSTER,
        sealer: SEALER,
        torn: TornPolicy::Corruption,
        deadline: None,
    }
}

fn wal(store: &Store) -> NumberedLog {
    NumberedLog::new(store.clone(), wal_prefix(OLD))
}

/// An object as the writer would write it, with `decided_below` and no entry.
fn object(put_id: PutId, kind: ObjectKind, number: u64, decided_below: u64) -> Payload {
    let directory = WalDirectory {
        number,
        decided_below: decided_below.min(number),
        replay_from: 0,
        written_ms: 0,
        entries: Vec::new(),
    };
    let directory = directory.encode();
    let envelope = Envelope {
        kind,
        version: 1,
        must_understand: 0,
        may_ignore: 0,
        put_id,
        cluster_id: CLUSTER,
        writer: OLD.0,
    };
    envelope.encode(&directory, 0).into()
}

async fn write(store: &Store, number: u64, decided_below: u64) -> bool {
    let put_id = PutId(store.runtime().entropy.bytes16());
    let body = object(put_id, ObjectKind::Wal, number, decided_below);
    let created = wal(store).create(number, body, put_id, None).await;
    matches!(created, Ok(CreateOutcome::Ours))
}

async fn checkpoint(store: &Store, number: u64) -> bool {
    let put_id = PutId(store.runtime().entropy.bytes16());
    let body = object(put_id, ObjectKind::Checkpoint, number, 0);
    let log = NumberedLog::new(store.clone(), ckpt_prefix(OLD));
    let created = log.create(number, body, put_id, None).await;
    matches!(created, Ok(CreateOutcome::Ours))
}

async fn sealed(store: &Store) -> Sealed {
    seal(OLD, &options(store))
        .await
        .expect("the store waits for ever")
}

fn healthy() -> (FaultyBackend, Store) {
    let backend = faulty(1, FaultPlan::none());
    let store = store(&backend, &runtime(1));
    (backend, store)
}

#[tokio::test(start_paused = true)]
async fn a_dead_writer_is_closed_behind_its_last_object() {
    let (_, store) = healthy();
    for (number, decided) in [(0, 0), (1, 1), (2, 2), (4, 2), (5, 3)] {
        assert!(write(&store, number, decided).await);
    }
    assert!(checkpoint(&store, 0).await && checkpoint(&store, 1).await);
    let outcome = sealed(&store).await;
    assert_eq!(outcome.closed.last, Some(5));
    assert_eq!(outcome.closed.checkpoint, 2);
    assert_eq!(outcome.closing.follows.map(|id| id.number), Some(1));
    let landed: Vec<u64> = (0..10).filter(|n| outcome.closing.landed(*n)).collect();
    assert_eq!(landed, [0, 1, 2, 4, 5]);
    assert!(!outcome.found_closed && outcome.last_write_ms.is_some());
    // Number 3 and W numbers behind the last are closed, and no more.
    for number in (3..4).chain(6..6 + WAL_SPAN) {
        assert!(!write(&store, number, 3).await, "{number} is closed");
    }
    assert!(write(&store, 6 + WAL_SPAN, 3).await);
    assert!(!checkpoint(&store, 2).await);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_never_wrote_is_closed() {
    let (_, store) = healthy();
    let outcome = sealed(&store).await;
    assert_eq!((outcome.closed.last, outcome.closed.checkpoint), (None, 0));
    assert_eq!(outcome.closing.follows, None);
    assert!(!write(&store, 0, 0).await);
    let again = sealed(&store).await;
    assert!(again.found_closed);
    assert_eq!(again.closed, outcome.closed);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_closed_itself_needs_no_marker() {
    let (backend, store) = healthy();
    assert!(write(&store, 0, 0).await);
    assert!(checkpoint(&store, 0).await);
    let closing = ClosingCheckpoint::new(None, 1, []);
    let put_id = PutId([4; 16]);
    let body = closing.encode(put_id, CLUSTER, OLD);
    let log = NumberedLog::new(store.clone(), ckpt_prefix(OLD));
    log.create(1, body, put_id, None).await.expect("healthy");
    let outcome = sealed(&store).await;
    assert!(outcome.found_closed);
    assert_eq!(outcome.closed.checkpoint_put_id, put_id);
    assert_eq!(outcome.closed.last, Some(0));
    let listed = backend.list("", None, 1_000).await.expect("healthy");
    assert_eq!(listed.len(), 3, "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn trimmed_numbers_are_left_alone() {
    let (backend, store) = healthy();
    for number in 0..300 {
        assert!(write(&store, number, number).await);
    }
    for number in 0..290 {
        backend
            .delete(&wal(&store).key(number))
            .await
            .expect("healthy");
    }
    let outcome = sealed(&store).await;
    assert_eq!(outcome.closed.last, Some(299));
    assert_eq!(outcome.closing.decided_below, 299);
    assert!(write(&store, 100, 0).await, "a late twin harms nobody");
    let listed = wal(&store).list_from(0).await.expect("healthy");
    let top = listed.last().map(|(n, _)| *n);
    assert_eq!(top, Some(299 + WAL_SPAN));
}

#[tokio::test(start_paused = true)]
async fn torn_objects_stop_the_seal_or_count_as_never_written() {
    let (backend, store) = healthy();
    for (number, decided) in [(0, 0), (1, 1), (2, 2)] {
        assert!(write(&store, number, decided).await);
    }
    let whole = object(PutId([5; 16]), ObjectKind::Wal, 3, 2);
    let torn = whole.slices()[0].slice(..50);
    let key = wal(&store).key(3);
    backend
        .put_if_absent(&key, torn.into())
        .await
        .expect("healthy");
    let error = seal(OLD, &options(&store)).await.expect_err("it is damage");
    assert!(
        matches!(&error, SealError::Torn { key: found, .. } if *found == key),
        "{error}"
    );
    let torn = TornPolicy::NeverLanded;
    let options = SealOptions {
        torn,
        ..options(&store)
    };
    let outcome = seal(OLD, &options).await.expect("it never landed");
    assert_eq!(outcome.lost, [key]);
    assert_eq!(outcome.closed.last, Some(2));
    let lost = backend
        .list("lost+found/", None, 10)
        .await
        .expect("healthy");
    assert_eq!((lost.len(), lost[0].size), (1, 50));
    assert!(!write(&store, 3, 2).await);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_a_newer_broker_stops_the_seal() {
    let (backend, store) = healthy();
    assert!(write(&store, 0, 0).await);
    let envelope = Envelope {
        kind: ObjectKind::Wal,
        version: 2,
        must_understand: 0,
        may_ignore: 0,
        put_id: PutId([5; 16]),
        cluster_id: CLUSTER,
        writer: OLD.0,
    };
    let body = Payload::from(envelope.encode(&[0; 32], 0));
    backend
        .put_if_absent(&wal(&store).key(1), body)
        .await
        .expect("healthy");
    let torn = TornPolicy::NeverLanded;
    let options = SealOptions {
        torn,
        ..options(&store)
    };
    let error = seal(OLD, &options).await.expect_err("not ours to judge");
    let SealError::Object { error, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(error, EnvelopeError::TooNew { .. }));
}

/// A writer with up to 8 objects in flight, in order of no kind; it stops where it meets a marker.
async fn live_writer(store: Store, objects: u64) -> BTreeSet<u64> {
    let mut known = BTreeSet::new();
    let mut next = 0;
    while next < objects {
        let decided = (0..).find(|n| !known.contains(n)).unwrap_or(0);
        let end = (next + 8).min(objects);
        let outcomes = join_all((next..end).map(|n| {
            let store = store.clone();
            async move { (n, write(&store, n, decided).await) }
        }));
        let outcomes = outcomes.await;
        known.extend(outcomes.iter().filter(|(_, ours)| *ours).map(|(n, _)| *n));
        if outcomes.iter().any(|(_, ours)| !ours) {
            break;
        }
        next = end;
    }
    known
}

#[tokio::test(start_paused = true)]
async fn sealers_and_a_live_writer_race_and_agree() {
    for seed in 0..60 {
        let backend = faulty(seed, FaultPlan::bad_day());
        let writer_store = store(&backend, &runtime(seed * 10));
        let mut sealers = Vec::new();
        for n in 1..=2u64 {
            let runtime = runtime(seed * 10 + n);
            let store = store(&backend, &runtime);
            let wait = Duration::from_millis(runtime.entropy.below(4_000));
            sealers.push(async move {
                runtime.clock.sleep(wait).await;
                sealed(&store).await
            });
        }
        let writer = live_writer(writer_store.clone(), 60);
        let (known, outcomes) = tokio::join!(writer, join_all(sealers));
        assert_eq!(outcomes[0].closed, outcomes[1].closed, "seed {seed}");
        assert_eq!(outcomes[0].closing, outcomes[1].closing, "seed {seed}");
        let closing = &outcomes[0].closing;
        for n in &known {
            assert!(
                closing.landed(*n),
                "seed {seed}: {n} was answered, but is not in the bitmap"
            );
        }
        // All late copies arrive; what the bitmap says stays true of what is there.
        writer_store
            .runtime()
            .clock
            .sleep(Duration::from_secs(48 * 3600))
            .await;
        backend.heal();
        for n in 0..200 {
            let bytes = wal(&writer_store).read(n).await.expect("healed");
            let kind = bytes.map(|b| Envelope::decode_header(&b).expect("whole").0.kind);
            let real = kind == Some(ObjectKind::Wal);
            assert_eq!(
                real,
                closing.landed(n) && closing.last >= Some(n),
                "seed {seed}: {n}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_sealer_that_dies_anywhere_is_followed_by_another() {
    for requests in 0..150 {
        let mut plan = FaultPlan::none();
        plan.rules
            .push(Rule::new(Operation::Put, "", Fault::Refused).skip(7 + requests));
        let backend = faulty(requests, plan);
        let store = store(&backend, &runtime(requests));
        for number in 0..7 {
            assert!(write(&store, number, number.saturating_sub(3)).await);
        }
        let deadline = Some(Duration::from_secs(1));
        let first = SealOptions {
            deadline,
            ..options(&store)
        };
        let died = seal(OLD, &first).await.is_err();
        assert_eq!(
            died,
            requests < WAL_SPAN + 1,
            "{requests} markers and checkpoints"
        );
        backend.heal();
        let outcome = sealed(&store).await;
        assert_eq!(outcome.closed.last, Some(6));
        let again = sealed(&store).await;
        assert_eq!(again.closed, outcome.closed);
    }
}

/// The same where all markers but the first are links to it.
#[tokio::test]
async fn a_sealer_that_dies_among_its_links_is_followed_by_another() {
    for requests in [0, 1, 2, 40, WAL_SPAN - 1, WAL_SPAN, WAL_SPAN + 1] {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = runtime(requests);
        let options_of_directory = DirectoryOptions::default();
        let directory = Directory::open(dir.path(), options_of_directory, runtime.clone()).await;
        let directory = Arc::new(directory.expect("writable"));
        let backend = FaultyBackend::new(directory, runtime.clone(), 1, FaultPlan::none());
        let store = store(&backend, &runtime);
        for number in 0..7 {
            assert!(write(&store, number, number.saturating_sub(3)).await);
        }
        // One marker is put, then come the links, then the closing checkpoint is put.
        let puts = requests.min(1) + requests.saturating_sub(WAL_SPAN);
        let links = requests.saturating_sub(1);
        let rule = |operation, skipped| Rule::new(operation, "", Fault::Refused).skip(skipped);
        let plan = FaultPlan::none().rule(rule(Operation::Put, puts));
        backend.set_plan(plan.rule(rule(Operation::Copy, links)));
        let first = SealOptions {
            deadline: Some(Duration::from_millis(200)),
            ..options(&store)
        };
        let died = seal(OLD, &first).await.is_err();
        assert_eq!(died, requests < WAL_SPAN + 1, "{requests} requests");
        backend.heal();
        backend.set_plan(FaultPlan::none());
        let outcome = sealed(&store).await;
        assert_eq!(outcome.closed.last, Some(6));
        assert_eq!(sealed(&store).await.closed, outcome.closed);
        for number in 7..7 + WAL_SPAN {
            assert!(!write(&store, number, 6).await, "{number} is closed");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_checkpoint_of_the_writer_is_closed_behind() {
    let (backend, store) = healthy();
    assert!(write(&store, 0, 0).await);
    assert!(checkpoint(&store, 0).await);
    // The sealer's listing shows checkpoint 0; the writer's next one lands before the closing one.
    let mut plan = FaultPlan::none();
    plan.rules.push(
        Rule::new(
            Operation::Put,
            ckpt_prefix(OLD),
            Fault::Stall(Duration::from_secs(1)),
        )
        .times(1),
    );
    plan.delay = Some((Duration::from_millis(10), Duration::from_millis(10)));
    backend.set_plan(plan);
    let late = async {
        store.runtime().clock.sleep(Duration::from_millis(30)).await;
        checkpoint(&store, 1).await
    };
    let (outcome, late) = tokio::join!(sealed(&store), late);
    let follows = outcome.closing.follows.map(|id| id.number);
    assert_eq!(follows, if late { Some(1) } else { Some(0) });
    let outcome = Arc::new(outcome);
    assert_eq!(outcome.closed.checkpoint, if late { 2 } else { 1 });
    let _: Bytes = store
        .get(&NumberedLog::new(store.clone(), ckpt_prefix(OLD)).key(outcome.closed.checkpoint))
        .await
        .expect("it stands");
}

#[tokio::test(start_paused = true)]
async fn a_torn_object_of_a_directory_is_moved_to_lost_and_found() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let runtime = runtime(1);
    let options_of_directory = DirectoryOptions {
        sync: LocalSync::Os,
        read_only: false,
    };
    let directory = Directory::open(dir.path(), options_of_directory, runtime.clone()).await;
    let directory = Arc::new(directory.expect("writable"));
    let store = Store::new(directory.clone(), runtime, StoreOptions::default());
    for (number, decided) in [(0, 0), (1, 1)] {
        assert!(write(&store, number, decided).await);
    }
    let whole = object(PutId([5; 16]), ObjectKind::Wal, 2, 2);
    let torn = whole.slices()[0].slice(..90);
    let key = wal(&store).key(2);
    directory
        .put_if_absent(&key, torn.into())
        .await
        .expect("healthy");
    let options = SealOptions {
        torn: TornPolicy::NeverLanded,
        ..options(&store)
    };
    let outcome = seal(OLD, &options).await.expect("it never landed");
    assert_eq!((outcome.lost, outcome.closed.last), (vec![key], Some(1)));
    let aside = std::fs::read_dir(dir.path().join("lost+found")).expect("it is there");
    assert_eq!(aside.count(), 1);
    assert!(!write(&store, 2, 2).await, "its number is closed");
}

/// They stay for ever: a disk that is small must not lose half a MiB to each broker that is killed.
#[tokio::test]
async fn the_markers_of_a_log_in_a_directory_are_one_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = runtime(1);
    let directory = Directory::open(dir.path(), DirectoryOptions::default(), runtime.clone()).await;
    let directory = Arc::new(directory.expect("writable"));
    let store = Store::new(directory, runtime, StoreOptions::default());
    for (number, decided) in [(0, 0), (1, 1), (2, 2), (4, 2)] {
        assert!(write(&store, number, decided).await);
    }
    assert_eq!(sealed(&store).await.closed.last, Some(4));
    let log = wal(&store);
    let folder = dir.path().join(wal_prefix(OLD));
    let mut shards = std::fs::read_dir(folder).expect("it is there");
    let shard = shards.next().expect("one").expect("readable").path();
    let mut files = BTreeSet::new();
    for number in (3..4).chain(5..5 + WAL_SPAN) {
        assert!(!write(&store, number, 3).await, "{number} is closed");
        let bytes = log.read(number).await.expect("healthy").expect("a marker");
        let (envelope, ..) = Envelope::decode_header(&bytes).expect("sound");
        assert_eq!(envelope.kind, ObjectKind::ClosedMarker);
        let file = std::fs::metadata(shard.join(format!("{number:020}")));
        files.insert(file.expect("there").ino());
    }
    assert_eq!(files.len(), 1);
    assert!(write(&store, 5 + WAL_SPAN, 3).await);
}

/// A store whose listings have no order: `shown` listings of the WAL end at number 5.
#[derive(Debug)]
struct Unordered {
    below: Arc<dyn Backend>,
    shown: AtomicU64,
}

#[async_trait::async_trait]
impl Backend for Unordered {
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        self.below.put_if_absent(key, body).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.below.get(key).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.below.get_range(key, range).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.below.head(key).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.below.delete(key).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        let mut page = self.below.list(prefix, start_after, limit).await?;
        if prefix.contains("/wal/") && self.shown.load(Ordering::Relaxed) > 0 {
            self.shown.fetch_sub(1, Ordering::Relaxed);
            // What was written meanwhile was passed over.
            page.retain(|meta| !meta.key.ends_with("300"));
        }
        Ok(page)
    }

    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        self.below.copy_if_absent(from, to).await
    }

    fn is_local(&self) -> bool {
        false
    }

    fn lists_at_once(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        "without order".to_owned()
    }
}

/// The sealer has looked at a listing that had missed object 300, and trimmed is all in between.
#[tokio::test(start_paused = true)]
async fn where_listings_have_no_order_the_newest_checkpoint_is_the_witness() {
    let runtime = runtime(1);
    let below = Arc::new(Memory::new(runtime.clock.clone()));
    let backend = Unordered {
        below,
        shown: AtomicU64::new(2),
    };
    let store = Store::new(Arc::new(backend), runtime, StoreOptions::default());
    assert!(write(&store, 5, 5).await && write(&store, 300, 300).await);
    let put_id = PutId([7; 16]);
    let witness = Checkpoint {
        number: 0,
        follows: None,
        full: true,
        replay_from: 300,
        decided_below: 300,
        next_data_seq: 0,
        taken_ms: 0,
        cleanup: Vec::new(),
        garbage: Vec::new(),
        dropped: Vec::new(),
        updates: Vec::new(),
    };
    let checkpoints = NumberedLog::new(store.clone(), ckpt_prefix(OLD));
    let body = witness.encode(put_id, CLUSTER, OLD);
    let created = checkpoints.create(0, body, put_id, None).await;
    assert!(matches!(created, Ok(CreateOutcome::Ours)));
    let outcome = sealed(&store).await;
    assert_eq!(outcome.closed.last, Some(300));
    assert!(!write(&store, 301, 301).await, "closed behind it");
}
