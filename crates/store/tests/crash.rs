//! The directory on a file system that loses power at every step.

mod common;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use common::{id, joined, object, suite};
use tidemill_runtime::{Entropy, Runtime};
use tidemill_store::{
    Backend, CreateOutcome, Directory, DirectoryOptions, LocalSync, OpenError, Payload, PutAnswer,
    Store, StoreErrorKind, StoreOptions,
    testing::{Crash, SimFs},
};

const ROOT: &str = "/srv/data";

async fn open(fs: &SimFs, sync: LocalSync) -> Result<Directory, OpenError> {
    let options = DirectoryOptions {
        sync,
        read_only: false,
    };
    let runtime = Runtime::simulated(1, 0);
    Directory::open_on(Arc::new(fs.clone()), Path::new(ROOT), options, runtime).await
}

fn body(key: &str) -> Payload {
    let byte = key.bytes().fold(0u8, u8::wrapping_add);
    object(id(byte), &vec![byte; 3_000])
}

const KEYS: [&str; 7] = [
    "root",
    "meta/00000000000000000000",
    "aa/wal/7/00000000000000004095",
    "aa/wal/7/00000000000000004096",
    "aa/wal/7/00000000000000004097",
    "bb/seg/1-7-1",
    "bb/seg/2-7-2",
];

/// What happens before the crash; returns what was acknowledged. Names that were deleted may be
/// there or not.
async fn scenario(fs: &SimFs) -> BTreeMap<String, bool> {
    let mut acknowledged = BTreeMap::new();
    let Ok(directory) = open(fs, LocalSync::Always).await else {
        return acknowledged;
    };
    for key in KEYS {
        if directory.put_if_absent(key, body(key)).await == Ok(PutAnswer::Created) {
            acknowledged.insert(key.to_owned(), true);
        }
    }
    let copied = directory
        .copy_if_absent("bb/seg/1-7-1", "cc/seg/copy")
        .await;
    if copied == Ok(PutAnswer::Created) {
        acknowledged.insert("cc/seg/copy".to_owned(), true);
    }
    // A second try of a write that is there.
    let again = directory
        .put_if_absent("bb/seg/1-7-1", body("bb/seg/1-7-1"))
        .await;
    if again == Ok(PutAnswer::Exists) {
        acknowledged.insert("bb/seg/1-7-1".to_owned(), true);
    }
    for key in [
        "aa/wal/7/00000000000000004095",
        "aa/wal/7/00000000000000004096",
    ] {
        acknowledged.remove(key);
        let _ = directory.delete(key).await;
    }
    acknowledged
}

/// The body a key was written with.
fn expected(key: &str) -> Vec<u8> {
    joined(&body(if key == "cc/seg/copy" {
        "bb/seg/1-7-1"
    } else {
        key
    }))
}

async fn check(fs: &SimFs, acknowledged: &BTreeMap<String, bool>, what: &str) {
    let directory = open(fs, LocalSync::Always).await.expect("opens again");
    let listed = directory.list("", None, 100).await.expect("lists");
    for meta in &listed {
        let bytes = directory
            .get(&meta.key)
            .await
            .expect("a listed object can be read");
        assert_eq!(bytes, expected(&meta.key), "{what}: `{}` is torn", meta.key);
    }
    for key in acknowledged.keys() {
        assert!(
            listed.iter().any(|meta| meta.key == *key),
            "{what}: `{key}` is lost"
        );
    }
    let trimmed = |n: u64| listed.iter().any(|m| m.key == format!("aa/wal/7/{n:020}"));
    assert!(
        !trimmed(4_095) || trimmed(4_096) || acknowledged.len() < 6,
        "{what}: out of order"
    );
    // Life goes on.
    for key in KEYS {
        directory
            .put_if_absent(key, body(key))
            .await
            .expect("can be written again");
        assert_eq!(
            directory.get(key).await.expect("reads"),
            expected(key),
            "{what}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn no_step_loses_or_tears() {
    let whole = SimFs::new();
    assert_eq!(scenario(&whole).await.len(), KEYS.len() - 2 + 1);
    let steps = whole.steps();
    assert!(steps > 60, "{steps}");
    for step in 0..=steps {
        for mode in 0..6 {
            let fs = SimFs::new();
            fs.crash_at(step);
            let acknowledged = scenario(&fs).await;
            let entropy = Entropy::from_seed(step * 100 + mode);
            match mode {
                0 => fs.restart(&Crash::Power),
                1 => {
                    // The process alone dies; its successor is cut off later.
                    fs.restart(&Crash::Process);
                    drop(open(&fs, LocalSync::Always).await.expect("opens"));
                    let seen = open(&fs, LocalSync::Always).await.expect("opens");
                    let seen = seen.list("", None, 100).await.expect("lists");
                    fs.restart(&Crash::Power);
                    let seen = seen.into_iter().map(|meta| (meta.key, true)).collect();
                    check(&fs, &seen, &format!("step {step}, after a kill")).await;
                }
                _ => fs.restart(&Crash::PowerByChance(&entropy)),
            }
            check(&fs, &acknowledged, &format!("step {step}, mode {mode}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn under_os_sync_a_power_failure_may_lose_but_a_kill_does_not() {
    let fs = SimFs::new();
    let directory = open(&fs, LocalSync::Os).await.expect("opens");
    for key in KEYS {
        assert_eq!(
            directory.put_if_absent(key, body(key)).await,
            Ok(PutAnswer::Created)
        );
    }
    fs.restart(&Crash::Process);
    let directory = open(&fs, LocalSync::Os).await.expect("opens");
    assert_eq!(
        directory.list("", None, 100).await.expect("lists").len(),
        KEYS.len()
    );
    fs.restart(&Crash::Process);
    // Changed to `always`: what is there must be durable from then on.
    let directory = open(&fs, LocalSync::Always).await.expect("opens");
    assert_eq!(
        directory.list("", None, 100).await.expect("lists").len(),
        KEYS.len()
    );
    fs.restart(&Crash::Power);
    let directory = open(&fs, LocalSync::Always).await.expect("opens");
    for key in KEYS {
        assert_eq!(directory.get(key).await.expect("is there"), expected(key));
    }
}

#[tokio::test(start_paused = true)]
async fn failed_syncs_never_make_an_acknowledged_object_vanish() {
    // Each create syncs its file and its directory, and directories of new folders: fail each once.
    for failing in 0..8 {
        for key in ["k", "a/b/00000000000000000007"] {
            let fs = SimFs::new();
            let directory = open(&fs, LocalSync::Always).await.expect("opens");
            let runtime = Runtime::simulated(1, 0);
            let backend: Arc<dyn Backend> = Arc::new(directory);
            let store = Store::new(backend, runtime, StoreOptions::default());
            fs.fail_syncs(failing);
            let put_id = id(key.bytes().fold(0u8, u8::wrapping_add));
            let ours = store.create(key, body(key), put_id, None).await;
            assert!(matches!(ours, Ok(CreateOutcome::Ours)), "{ours:?}");
            fs.restart(&Crash::Power);
            let directory = open(&fs, LocalSync::Always).await.expect("opens");
            let bytes = directory.get(key).await;
            assert_eq!(
                bytes.expect("is there"),
                expected(key),
                "{failing} failed syncs"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_not_durable_is_nobody_elses() {
    let fs = SimFs::new();
    let directory = open(&fs, LocalSync::Always).await.expect("opens");
    directory.put_if_absent("a", body("a")).await.expect("puts");
    // The file's sync succeeds, the directory's fails.
    let mut failed = false;
    for _ in 0..2 {
        let step = fs.steps();
        fs.fail_syncs(u64::from(failed) + 1);
        let answer = directory.put_if_absent("b", body("b")).await;
        assert!(answer.is_err(), "{answer:?} after {step} steps");
        failed = true;
    }
    fs.fail_syncs(0);
    let stranger = directory.put_if_absent("b", object(id(255), b"")).await;
    assert!(stranger.is_ok() || stranger.is_err_and(|e| e.kind == StoreErrorKind::Unknown));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_says_so_and_is_over_when_there_is_room() {
    let fs = SimFs::new();
    let directory = open(&fs, LocalSync::Always).await.expect("opens");
    fs.set_capacity(Some(8_000));
    directory.put_if_absent("a", body("a")).await.expect("puts");
    directory.put_if_absent("b", body("b")).await.expect("puts");
    let full = directory
        .put_if_absent("c", body("c"))
        .await
        .expect_err("no room");
    assert_eq!(full.kind, StoreErrorKind::Full);
    let space = directory.space().await.expect("says").expect("has limits");
    assert_eq!(space.total, 8_000);
    assert!(space.free < 3_000, "{space:?}");
    fs.set_capacity(None);
    assert_eq!(
        directory.put_if_absent("c", body("c")).await,
        Ok(PutAnswer::Created)
    );
}

#[tokio::test(start_paused = true)]
async fn conformance() {
    let fs = SimFs::new();
    let directory = open(&fs, LocalSync::Always).await.expect("opens");
    suite::run(Arc::new(directory), Runtime::simulated(1, 0)).await;
}
