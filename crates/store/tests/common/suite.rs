//! What every backend must do alike.

use std::sync::Arc;

use bytes::Bytes;
use tidemill_runtime::Runtime;
use tidemill_store::{
    Backend, CreateOutcome, NumberedLog, Payload, PutAnswer, Store, StoreErrorKind, StoreOptions,
};

use super::{id, joined, object};

/// Creators of one key at once.
const WRITERS: u8 = 32;

fn payload(text: &str) -> Payload {
    Payload::from(Bytes::copy_from_slice(text.as_bytes()))
}

async fn put(backend: &dyn Backend, key: &str, text: &str) {
    let answer = backend.put_if_absent(key, payload(text)).await;
    assert_eq!(answer, Ok(PutAnswer::Created), "{key}");
}

async fn keys(
    backend: &dyn Backend,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Vec<String> {
    let page = backend.list(prefix, after, limit).await.expect("lists");
    page.into_iter().map(|meta| meta.key).collect()
}

/// The whole suite. The backend must be empty.
pub async fn run(backend: Arc<dyn Backend>, runtime: Runtime) {
    let store = &*backend;
    assert_eq!(keys(store, "", None, 10).await, [""; 0]);
    put_and_read(store).await;
    ranges(store).await;
    deletes(store).await;
    copies(store).await;
    listings(store).await;
    numbers(store).await;
    odd_keys(store).await;
    large(store).await;
    race(&backend, &runtime).await;
    numbered_log(&backend, &runtime).await;
}

async fn put_and_read(store: &dyn Backend) {
    let slices: Payload = ["one ", "", "two ", "three"]
        .map(Bytes::from)
        .into_iter()
        .collect();
    assert_eq!(
        store.put_if_absent("put/a", slices).await,
        Ok(PutAnswer::Created)
    );
    assert_eq!(store.get("put/a").await.expect("reads"), "one two three");
    let again = store.put_if_absent("put/a", payload("another")).await;
    assert_eq!(again, Ok(PutAnswer::Exists));
    assert_eq!(
        store.get("put/a").await.expect("reads"),
        "one two three",
        "never replaced"
    );
    let meta = store.head("put/a").await.expect("heads");
    assert_eq!((meta.key.as_str(), meta.size), ("put/a", 13));
    put(store, "put/empty", "").await;
    assert_eq!(store.get("put/empty").await.expect("reads"), "");
    for missing in ["put/none", "nowhere/at/all"] {
        assert_eq!(
            store.get(missing).await.expect_err("gone").kind,
            StoreErrorKind::NotFound
        );
        assert_eq!(
            store.head(missing).await.expect_err("gone").kind,
            StoreErrorKind::NotFound
        );
        let range = store.get_range(missing, 0..1).await;
        assert_eq!(range.expect_err("gone").kind, StoreErrorKind::NotFound);
    }
}

async fn ranges(store: &dyn Backend) {
    put(store, "range/a", "0123456789").await;
    for (range, text) in [
        (0..10, "0123456789"),
        (0..1, "0"),
        (9..10, "9"),
        (3..7, "3456"),
    ] {
        let bytes = store
            .get_range("range/a", range.clone())
            .await
            .expect("reads");
        assert_eq!(bytes, text, "{range:?}");
    }
    for range in [5..11, 10..11, 20..30] {
        let error = store
            .get_range("range/a", range.clone())
            .await
            .expect_err("beyond the end");
        assert_eq!(error.kind, StoreErrorKind::Invalid, "{range:?}: {error}");
    }
    assert_eq!(store.get_range("range/a", 4..4).await.expect("reads"), "");
}

async fn deletes(store: &dyn Backend) {
    put(store, "delete/a", "x").await;
    assert_eq!(store.get_range("delete/a", 0..1).await.expect("reads"), "x");
    assert_eq!(store.delete("delete/a").await, Ok(()));
    assert_eq!(
        store.delete("delete/a").await,
        Ok(()),
        "deleting what is gone is success"
    );
    assert_eq!(store.delete("delete/never/was").await, Ok(()));
    let gone = store.get_range("delete/a", 0..1).await;
    assert_eq!(gone.expect_err("gone").kind, StoreErrorKind::NotFound);
    put(store, "delete/a", "yz").await;
    assert_eq!(
        store.get_range("delete/a", 0..2).await.expect("reads"),
        "yz"
    );
}

async fn copies(store: &dyn Backend) {
    put(store, "copy/from", "content").await;
    assert_eq!(
        store.copy_if_absent("copy/from", "copy/sub/to").await,
        Ok(PutAnswer::Created)
    );
    assert_eq!(store.get("copy/sub/to").await.expect("reads"), "content");
    put(store, "copy/other", "other").await;
    assert_eq!(
        store.copy_if_absent("copy/other", "copy/sub/to").await,
        Ok(PutAnswer::Exists)
    );
    assert_eq!(store.delete("copy/from").await, Ok(()));
    assert_eq!(store.get("copy/sub/to").await.expect("reads"), "content");
    let gone = store.copy_if_absent("copy/from", "copy/new").await;
    assert_eq!(gone.expect_err("no source").kind, StoreErrorKind::NotFound);
}

async fn listings(store: &dyn Backend) {
    // Bytewise: `-` < `.` < `/` < `0`, so a folder sorts between its name's neighbours.
    let all = [
        "l/a", "l/a-b", "l/a.b", "l/a/b", "l/a/c/d", "l/a0", "l/b", "l/b/z", "l/c",
    ];
    let all: Vec<_> = all
        .into_iter()
        .filter(|key| *key != "l/a" && *key != "l/b")
        .collect();
    for key in all.iter().rev() {
        put(store, key, "x").await;
    }
    put(store, "l2", "x").await;
    assert_eq!(keys(store, "l/", None, 100).await, all);
    for limit in 1..=all.len() {
        let mut found: Vec<String> = Vec::new();
        loop {
            let page = keys(store, "l/", found.last().map(String::as_str), limit).await;
            let ended = page.len() < limit;
            found.extend(page);
            if ended {
                break;
            }
        }
        assert_eq!(found, all, "pages of {limit}");
    }
    assert_eq!(keys(store, "l/a/", None, 100).await, ["l/a/b", "l/a/c/d"]);
    assert_eq!(keys(store, "l/a/", Some("l/a/b"), 100).await, ["l/a/c/d"]);
    assert_eq!(
        keys(store, "l/", Some("l/a/bb"), 2).await,
        ["l/a/c/d", "l/a0"]
    );
    assert_eq!(keys(store, "l/", Some("k"), 1).await, ["l/a-b"]);
    assert_eq!(keys(store, "l/", Some("l0"), 10).await, [""; 0]);
    assert_eq!(keys(store, "nothing/", None, 10).await, [""; 0]);
    assert!(
        keys(store, "", None, 1_000)
            .await
            .contains(&"l2".to_owned())
    );
}

async fn numbers(store: &dyn Backend) {
    let numbers = [0, 1, 4_095, 4_096, 4_097, 8_191, 12_288, 1 << 40];
    let name = |n: u64| format!("n/{n:020}");
    for n in numbers {
        put(store, &name(n), "x").await;
    }
    // Beside them, what is not a number.
    put(store, "n/00000000000000000001-x", "x").await;
    put(store, "n/manifest", "x").await;
    let mut all: Vec<_> = numbers.into_iter().map(name).collect();
    all.push("n/00000000000000000001-x".to_owned());
    all.push("n/manifest".to_owned());
    all.sort();
    assert_eq!(keys(store, "n/", None, 100).await, all);
    for (at, after) in all.iter().enumerate() {
        assert_eq!(
            keys(store, "n/", Some(after), 100).await,
            all[at + 1..],
            "after {after}"
        );
        assert_eq!(
            keys(store, "n/", Some(after), 1).await,
            all[at + 1..].iter().take(1).cloned().collect::<Vec<_>>()
        );
    }
    for key in &all {
        assert_eq!(store.get(key).await.expect("reads"), "x");
        store.delete(key).await.expect("deletes");
    }
    assert_eq!(keys(store, "n/", None, 100).await, [""; 0]);
    put(store, &name(4_095), "again").await;
    assert_eq!(keys(store, "n/", None, 100).await, [name(4_095)]);
}

async fn odd_keys(store: &dyn Backend) {
    let long = format!("odd/{}", "x".repeat(200));
    for key in ["odd/A_b=c@d+e-f.g", "odd/0", "odd/ff/ff/ff/ff/ff/ff", &long] {
        put(store, key, key).await;
        assert_eq!(store.get(key).await.expect("reads"), key);
    }
    let listed = keys(store, "odd/", None, 10).await;
    assert_eq!(listed.len(), 4);
    assert!(listed.contains(&"odd/A_b=c@d+e-f.g".to_owned()));
    for bad in [
        "", "/", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a b", "a~b", "ä",
    ] {
        let error = store
            .put_if_absent(bad, payload("x"))
            .await
            .expect_err("refused");
        assert_eq!(error.kind, StoreErrorKind::Invalid, "{bad}");
    }
}

async fn large(store: &dyn Backend) {
    let len = 9 * 1024 * 1024 + 17;
    let bytes: Bytes = (0..len)
        .map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    // Many slices: more than one vectored write takes.
    let slices: Payload = (0..bytes.len())
        .step_by(4_096)
        .map(|at| bytes.slice(at..(at + 4_096).min(bytes.len())))
        .collect();
    assert_eq!(
        store.put_if_absent("large/a", slices).await,
        Ok(PutAnswer::Created)
    );
    assert_eq!(store.get("large/a").await.expect("reads"), bytes);
    let range = store
        .get_range("large/a", 5_000_000..5_000_100)
        .await
        .expect("reads");
    assert_eq!(range, bytes[5_000_000..5_000_100]);
    assert_eq!(
        store.head("large/a").await.expect("heads").size,
        bytes.len() as u64
    );
}

async fn race(backend: &Arc<dyn Backend>, runtime: &Runtime) {
    for round in 0..4 {
        let key = format!("race/{round:020}");
        let mut tasks = Vec::new();
        for writer in 0..WRITERS {
            let (backend, key) = (backend.clone(), key.clone());
            tasks.push(runtime.tasks.spawn("racer", async move {
                backend
                    .put_if_absent(&key, object(id(writer), &[writer; 1_000]))
                    .await
            }));
        }
        let mut winners = Vec::new();
        for (writer, task) in (0..WRITERS).zip(tasks) {
            match task.join().await.expect("does not panic") {
                Ok(PutAnswer::Created) => winners.push(writer),
                Ok(PutAnswer::Exists) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let [winner] = winners[..] else {
            panic!("winners of round {round}: {winners:?}")
        };
        let stored = backend.get(&key).await.expect("reads");
        assert_eq!(stored, joined(&object(id(winner), &[winner; 1_000])));
    }
}

async fn numbered_log(backend: &Arc<dyn Backend>, runtime: &Runtime) {
    let store = Store::new(backend.clone(), runtime.clone(), StoreOptions::default());
    let log = NumberedLog::new(store, "aa/wal/12");
    for n in 0..5 {
        let ours = log.create(n, object(id(1), b"body"), id(1), None).await;
        assert!(matches!(ours, Ok(CreateOutcome::Ours)), "{ours:?}");
        let foreign = log.create(n, object(id(2), b"late"), id(2), None).await;
        assert!(
            matches!(foreign, Ok(CreateOutcome::Foreign(_))),
            "{foreign:?}"
        );
        let again = log.create(n, object(id(1), b"body"), id(1), None).await;
        assert!(matches!(again, Ok(CreateOutcome::Ours)), "{again:?}");
    }
    assert_eq!(log.head_by_listing().await, Ok(Some(4)));
    assert_eq!(log.list_from(2).await.expect("lists").len(), 3);
    let whole = joined(&object(id(1), b"body"));
    assert_eq!(
        log.read_prefix(3, 1 << 20).await.expect("reads").as_deref(),
        Some(&whole[..])
    );
}
