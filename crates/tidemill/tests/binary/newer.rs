//! Objects of a newer format: the broker stops and says what to upgrade.

use std::path::{Path, PathBuf};

use tidemill_store::Envelope;

use crate::harness::{SOON, Setup, eventually, records, run};

/// The file of the first key below `folder`.
pub fn first_file(folder: &Path) -> PathBuf {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    entries.sort();
    let first = entries.into_iter().next().expect("it is not empty");
    if first.is_dir() {
        first_file(&first)
    } else {
        first
    }
}

/// Writes the object anew with a version that nobody knows, its checksums right.
fn make_newer(file: &Path) {
    let bytes = bytes::Bytes::from(std::fs::read(file).expect("an object"));
    let (mut envelope, length, whole) = Envelope::decode_header(&bytes).expect("a header");
    envelope.version = 200;
    let bodies = Envelope::LEN + length as usize;
    let head = envelope.encode(&bytes[Envelope::LEN..bodies], whole - bodies as u64);
    std::fs::write(file, [&head, &bytes[bodies..]].concat()).expect("it can be written");
}

/// `fsck` cannot check it.
fn is_told_by_fsck(dir: &Path) {
    for how in [&["fsck"][..], &["fsck", "--deep"]] {
        let mut fsck = crate::harness::command(dir);
        fsck.args(how);
        let ended = run(fsck, "");
        assert_eq!(ended.code, Some(3), "it cannot be checked: {ended:?}");
        assert!(ended.out.contains("upgrade"), "{ended:?}");
    }
}

/// `find` names the object among those of a broker that was killed.
fn stops_at(find: impl Fn(&Path) -> PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path()).set("tidemill.roll.interval.ms=1000");
    let broker = setup.start();
    broker.produce("tides", &records(5, "record"));
    let data = dir.path().join("tidemill-data");
    eventually("it rolls", SOON, || folder(&data, "ckpt").is_some());
    broker.produce("tides", &records(5, "not rolled"));
    broker.kill();
    make_newer(&find(&data));
    let ended = run(Setup::new(dir.path()).command(), "");
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.err.contains("upgrade"), "{ended:?}");
    is_told_by_fsck(dir.path());
}

/// The folder of this name below a writer's, if there is one.
fn folder(data: &Path, name: &str) -> Option<PathBuf> {
    let writers = std::fs::read_dir(data).expect("a folder");
    let folders = writers.map(|entry| entry.expect("it can be read").path().join(name));
    folders.into_iter().find(|folder| folder.is_dir())
}

/// The last object below a folder.
fn last_file(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    match paths.max().expect("it is not empty") {
        folder if folder.is_dir() => last_file(&folder),
        file => file,
    }
}

#[test]
fn a_newer_root() {
    stops_at(|data| data.join("root"));
}

#[test]
fn a_newer_metadata_entry() {
    stops_at(|data| first_file(&data.join("meta")));
}

#[test]
fn a_newer_checkpoint() {
    stops_at(|data| last_file(&folder(data, "ckpt").expect("it has rolled")));
}

#[test]
fn a_newer_wal_object() {
    stops_at(|data| last_file(&folder(data, "wal").expect("it has written")));
}

/// What a start does not read: its version is said by the checkpoint that lists it.
#[test]
fn a_newer_data_object() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).start();
    broker.produce("tides", &records(5, "record"));
    assert_eq!(broker.stop(), Some(0));
    let data = dir.path().join("tidemill-data");
    make_newer(&first_file(&folder(&data, "data").expect("it has rolled")));
    is_told_by_fsck(dir.path());
}
