//! A real directory: its lock, its files, and trouble with its disk.

mod common;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use common::{id, joined, object};
use tidemill_runtime::Runtime;
use tidemill_store::{
    Backend, Directory, DirectoryOptions, LocalSync, OpenError, PutAnswer, StoreErrorKind,
};

async fn open(root: &Path) -> Result<Directory, OpenError> {
    Directory::open(root, DirectoryOptions::default(), Runtime::system()).await
}

#[tokio::test]
async fn a_second_opener_is_told_who_holds_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let first = open(dir.path()).await.expect("opens");
    let error = open(dir.path()).await.expect_err("held");
    let text = error.to_string();
    assert!(
        text.contains(&format!("process {}", std::process::id())),
        "{text}"
    );
    assert!(text.contains("on host"), "{text}");
    // Beside it, for reading only.
    first
        .put_if_absent("a", object(id(1), b"x"))
        .await
        .expect("puts");
    let how = DirectoryOptions {
        read_only: true,
        ..DirectoryOptions::default()
    };
    let reader = Directory::open(dir.path(), how, Runtime::system())
        .await
        .expect("reads");
    assert_eq!(
        reader.get("a").await.expect("reads"),
        joined(&object(id(1), b"x"))
    );
    let refused = reader
        .put_if_absent("b", object(id(1), b"x"))
        .await
        .expect_err("read only");
    assert_eq!(refused.kind, StoreErrorKind::Refused);
    let refused = reader.delete("a").await.expect_err("read only");
    assert_eq!(refused.kind, StoreErrorKind::Refused);
    drop(first);
    open(dir.path()).await.expect("free again");
}

#[tokio::test]
async fn reading_only_creates_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let how = DirectoryOptions {
        read_only: true,
        ..DirectoryOptions::default()
    };
    let missing = dir.path().join("none");
    let error = Directory::open(&missing, how, Runtime::system())
        .await
        .expect_err("not there");
    assert!(
        error.to_string().contains("cannot read data directory"),
        "{error}"
    );
    assert!(!missing.exists());
}

#[tokio::test]
async fn unfinished_files_are_removed_and_other_peoples_files_are_listed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    drop(open(dir.path()).await.expect("opens"));
    let left = dir.path().join(".tmp/0102-7");
    std::fs::write(&left, b"half").expect("writes");
    std::fs::write(dir.path().join("holiday photo.jpg"), b"x").expect("writes");
    let directory = open(dir.path()).await.expect("opens");
    assert!(!left.exists());
    let listed = directory.list("", None, 10).await.expect("lists");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].key, "holiday photo.jpg");
}

/// Names that lead nowhere are what another process has just deleted, as `fsck` meets it beside a
/// broker, or a stranger's links: no objects, and no reason to fail or to end early.
#[tokio::test]
async fn names_that_lead_nowhere_are_not_listed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path()).await.expect("opens");
    for key in ["f/b", "f/d", "f/f", "f/h"] {
        let put = store.put_if_absent(key, object(id(1), b"x"));
        put.await.expect("puts");
    }
    for gone in ["f/a", "f/c", "f/e", "f/i"] {
        std::os::unix::fs::symlink("nowhere", dir.path().join(gone)).expect("a link");
    }
    for limit in 1..6 {
        let mut all: Vec<String> = Vec::new();
        loop {
            let page = store.list("f/", all.last().map(String::as_str), limit);
            let page = page.await.expect("lists");
            all.extend(page.iter().map(|meta| meta.key.clone()));
            // Fewer than asked for is the end.
            if page.len() < limit {
                break;
            }
        }
        assert_eq!(all, ["f/b", "f/d", "f/f", "f/h"], "{limit} a page");
    }
}

#[tokio::test]
async fn numbers_lie_in_directories_of_4096() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let directory = open(dir.path()).await.expect("opens");
    for n in [0, 4_095, 4_096] {
        let key = format!("meta/{n:020}");
        assert_eq!(
            directory.put_if_absent(&key, object(id(1), b"")).await,
            Ok(PutAnswer::Created)
        );
    }
    let shard = |n: u64| dir.path().join(format!("meta/~{n:016}"));
    assert!(shard(0).join("00000000000000000000").exists());
    assert!(shard(1).join("00000000000000004096").exists());
    // Trimmed in ascending order, an empty directory goes.
    for n in [0, 4_095] {
        directory
            .delete(&format!("meta/{n:020}"))
            .await
            .expect("deletes");
    }
    assert!(!shard(0).exists());
    // A late twin makes it come back (R11).
    let late = directory
        .put_if_absent("meta/00000000000000000007", object(id(1), b""))
        .await;
    assert_eq!(late, Ok(PutAnswer::Created));
    assert!(shard(0).exists());
}

#[tokio::test]
async fn space_of_deleted_objects_is_freed_although_they_were_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let directory = open(dir.path()).await.expect("opens");
    directory
        .put_if_absent("a", object(id(1), &[1; 1_000]))
        .await
        .expect("puts");
    directory.get_range("a", 0..100).await.expect("reads");
    directory.delete("a").await.expect("deletes");
    let held = std::fs::read_dir("/proc/self/fd")
        .expect("lists")
        .filter_map(Result::ok);
    let root = dir.path().to_owned();
    let deleted = held
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .filter(|target| target.starts_with(&root))
        .filter(|target| target.to_string_lossy().ends_with("(deleted)"))
        .count();
    assert_eq!(deleted, 0);
}

#[tokio::test]
async fn a_torn_object_is_set_aside() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let how = DirectoryOptions {
        sync: LocalSync::Os,
        ..DirectoryOptions::default()
    };
    let directory = Directory::open(dir.path(), how, Runtime::system())
        .await
        .expect("opens");
    assert!(directory.may_tear());
    let key = "aa/wal/7/00000000000000000001";
    for n in 0..2 {
        directory
            .put_if_absent(key, object(id(1), b""))
            .await
            .expect("puts");
        assert_eq!(directory.set_aside(key).await, Ok(true));
        let kept = dir
            .path()
            .join(format!("lost+found/aa_wal_7_00000000000000000001.{n}"));
        assert!(kept.exists());
    }
    assert_eq!(directory.set_aside(key).await, Ok(false));
    assert_eq!(directory.list("", None, 10).await, Ok(Vec::new()));
}

/// Names of everything below a directory.
fn names(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).expect("lists");
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            names.extend(self::names(&path));
        } else {
            let name = path.file_name().expect("a name");
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_made_ready_before_show_nowhere_and_outlive_their_directory() {
    for sync in [LocalSync::Always, LocalSync::Os] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = DirectoryOptions {
            sync,
            ..DirectoryOptions::default()
        };
        let opened = Directory::open(dir.path(), options, Runtime::system())
            .await
            .expect("opens");
        let key = |n: u64| format!("0f/wal/7/{n:020}");
        let body = |n: u64| object(id(n as u8), &[b'x'; 3_000]);
        for n in 1..=40 {
            let answer = opened.put_if_absent(&key(n), body(n)).await.expect("puts");
            assert_eq!(answer, PutAnswer::Created);
            let again = opened.put_if_absent(&key(n), body(99)).await.expect("puts");
            assert_eq!(again, PutAnswer::Exists);
        }
        let mut shown = names(dir.path());
        shown.retain(|name| name != "LOCK");
        shown.sort();
        let expected: Vec<_> = (1..=40).map(|n| format!("{n:020}")).collect();
        assert_eq!(shown, expected);
        std::fs::remove_dir_all(dir.path().join("0f/wal/7/~0000000000000000")).expect("removes");
        for n in 41..=50 {
            let answer = opened.put_if_absent(&key(n), body(n)).await.expect("puts");
            assert_eq!(answer, PutAnswer::Created);
        }
        for n in 41..=50 {
            let read = opened.get(&key(n)).await.expect("reads");
            assert_eq!(read, joined(&body(n)));
        }
        assert_eq!(
            opened.get(&key(1)).await.expect_err("gone").kind,
            StoreErrorKind::NotFound
        );
    }
}

#[tokio::test]
async fn space_is_told() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let directory = open(dir.path()).await.expect("opens");
    let space = directory.space().await.expect("says").expect("has limits");
    assert!(space.free <= space.total && space.total > 0, "{space:?}");
}

#[tokio::test]
async fn a_path_that_cannot_be_a_directory_is_refused_with_help() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("file");
    std::fs::write(&file, b"x").expect("writes");
    for path in [file.clone(), file.join("below")] {
        let error = open(&path).await.expect_err("not a directory");
        assert!(error.to_string().contains("--data file:DIR"), "{error}");
    }
}

#[test]
fn local_sync_is_always_or_os() {
    assert_eq!("always".parse(), Ok(LocalSync::Always));
    assert_eq!("os".parse(), Ok(LocalSync::Os));
    assert!("never".parse::<LocalSync>().is_err());
}

/// Set where a test runs inside a mount namespace: the directory that is mounted there.
const INSIDE: &str = "TIDEMILL_TEST_DIR";

/// Runs `inside` in a mount namespace of its own, where `mount` prepares the directory it is given:
/// this process starts itself there, for the same `test` alone.
#[expect(clippy::print_stderr, reason = "a test left out says so")]
fn in_namespace<F: Future<Output = ()>>(
    test: &str,
    mount: &str,
    inside: impl FnOnce(PathBuf) -> F,
) {
    if let Some(dir) = std::env::var_os(INSIDE) {
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        return executor.expect("threads").block_on(inside(dir.into()));
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let exe = std::env::current_exe().expect("the test's own path");
    let script = format!("{mount} || exit 77; exec \"$EXE\" --exact {test} --nocapture");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .env("DIR", dir.path())
        .env(INSIDE, dir.path())
        .env("EXE", exe)
        .output();
    let said = output.as_ref().map_or_else(ToString::to_string, |output| {
        String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
    });
    let code = output.as_ref().ok().map(|output| output.status.code());
    if code.is_none() || code == Some(Some(77)) || said.contains("unshare failed") {
        eprintln!("{test} was left out: no mount namespace here, which needs root: {said}");
        return;
    }
    assert_eq!(code, Some(Some(0)), "{said}");
    assert!(said.contains("1 passed"), "it has run: {said}");
}

#[test]
fn full_disk() {
    let mount = "mount -t tmpfs -o size=16m tmpfs \"$DIR\"";
    in_namespace("full_disk", mount, fill_disk);
}

async fn fill_disk(dir: PathBuf) {
    let directory = open(&dir).await.expect("opens");
    let body = object(id(1), &[1; 1 << 20]);
    let mut stored = Vec::new();
    let error = loop {
        let key = format!("seg/{}", stored.len());
        match directory.put_if_absent(&key, body.clone()).await {
            Ok(answer) => {
                assert_eq!(answer, PutAnswer::Created);
                stored.push(key);
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
    assert!(stored.len() >= 14, "{}", stored.len());
    for key in &stored {
        assert_eq!(directory.get(key).await.expect("reads"), joined(&body));
    }
    // What could not be written takes no room.
    for key in &stored[..2] {
        directory.delete(key).await.expect("deletes on a full disk");
    }
    assert_eq!(
        directory.put_if_absent("seg/later", body).await,
        Ok(PutAnswer::Created)
    );
}

#[test]
fn read_only_mount() {
    let mount = "mount -t tmpfs tmpfs \"$DIR\" && mount -o remount,ro \"$DIR\"";
    in_namespace("read_only_mount", mount, refused_read_only);
}

async fn refused_read_only(dir: PathBuf) {
    let error = open(&dir).await.expect_err("cannot be written to");
    let text = error.to_string();
    assert!(text.contains("Read-only file system"), "{text}");
    assert!(text.contains("make it writable"), "{text}");
}

#[tokio::test]
async fn objects_of_every_length_are_stored_byte_for_byte() {
    // Large ones are written past the page cache, in blocks and with a tail; `/dev/shm` may refuse.
    let dirs = [
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory"),
        tempfile::tempdir().expect("a temporary directory"),
    ];
    let (kib, mib) = (1 << 10, 1 << 20);
    let lengths = [
        1,
        64 * kib - 1,
        64 * kib,
        64 * kib + 1,
        68 * kib,
        mib - 1,
        mib,
        mib + 1,
        3 * mib + 4_095,
        5 * mib,
    ];
    for dir in &dirs {
        let directory = open(dir.path()).await.expect("opens");
        for (n, len) in lengths.into_iter().enumerate() {
            let body: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
            let head = bytes::Bytes::from(joined(&object(id(n as u8), b"")));
            let mut payload = tidemill_store::Payload::from(head);
            let mut rest = bytes::Bytes::from(body);
            let mut cut = 1;
            while !rest.is_empty() {
                payload.push(rest.split_to(cut.min(rest.len())));
                cut = cut * 3 % 100_003 + 1;
            }
            let key = format!("k/{n}");
            let whole = joined(&payload);
            let put = directory.put_if_absent(&key, payload).await;
            assert_eq!(put.expect("puts"), PutAnswer::Created);
            let read = directory.get(&key).await.expect("reads");
            assert!(read == whole, "{len} bytes");
        }
    }
}

#[tokio::test]
async fn files_are_lent_within_a_limit_and_outlive_their_names() {
    const LENT_MAX: usize = 512;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let directory = open(dir.path()).await.expect("opens");
    let key = |n: usize| format!("a/object-{n}");
    std::fs::create_dir(dir.path().join("a")).expect("a folder");
    for n in 0..700 {
        std::fs::write(dir.path().join(key(n)), format!("content {n}")).expect("writes");
    }
    let lent: Vec<_> = (0..700).map(|n| directory.open(&key(n))).collect();
    assert_eq!(lent.iter().flatten().count(), LENT_MAX);
    assert!(
        directory.open(&key(LENT_MAX - 1)).is_some(),
        "open already, so it costs nothing"
    );
    // Ordinary reads go on.
    let bytes = directory.get_range(&key(699), 0..7).await.expect("reads");
    assert_eq!(bytes, "content");
    for n in 0..700 {
        directory.delete(&key(n)).await.expect("deletes");
    }
    assert!(directory.open(&key(3)).is_none(), "its name is gone");
    for (n, lent) in lent.iter().enumerate().take(LENT_MAX) {
        let (file, len) = lent.as_ref().expect("within the limit");
        let mut bytes = vec![0; *len as usize];
        std::os::unix::fs::FileExt::read_exact_at(file.file(), &mut bytes, 0).expect("reads");
        assert_eq!(bytes, format!("content {n}").into_bytes());
    }
    drop(lent);
    std::fs::write(dir.path().join(key(3)), "again").expect("writes");
    assert!(directory.open(&key(3)).is_some(), "there is room again");
}
