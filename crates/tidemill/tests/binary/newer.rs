//! Objects of a newer format: the broker stops and says what to upgrade.

use std::path::{Path, PathBuf};

use tidemill_store::Envelope;

use crate::harness::{Setup, records, run};

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

fn stops_at(folder: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).start();
    broker.produce("tides", &records(5, "record"));
    broker.kill();
    let data = dir.path().join("tidemill-data");
    let place = data.join(folder);
    let file = if place.is_dir() {
        first_file(&place)
    } else {
        place
    };
    make_newer(&file);
    let ended = run(Setup::new(dir.path()).command(), "");
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.err.contains("upgrade"), "{ended:?}");
    let mut fsck = crate::harness::command(dir.path());
    fsck.arg("fsck");
    let ended = run(fsck, "");
    assert_eq!(ended.code, Some(3), "it cannot be checked: {ended:?}");
    assert!(ended.out.contains("upgrade"), "{ended:?}");
}

#[test]
fn a_newer_root() {
    stops_at("root");
}

#[test]
fn a_newer_metadata_entry() {
    stops_at("meta");
}
