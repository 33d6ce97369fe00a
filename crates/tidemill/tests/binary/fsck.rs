//! `tidemill fsck` and `tidemill inspect` on what brokers really leave.

use std::path::Path;

use crate::{
    harness::{Ended, Setup, command, records, run},
    newer::first_file,
};

fn tidemill(dir: &Path, args: &[&str]) -> Ended {
    let mut command = command(dir);
    command.args(args);
    run(command, "")
}

/// A directory with two topics, of two broker runs.
fn used_directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for round in 0..2 {
        let broker = Setup::new(dir.path()).start();
        broker.produce("tides", &records(50, &format!("round {round}")));
        broker.produce("moons", &records(50, &format!("round {round}")));
        assert_eq!(broker.stop(), Some(0));
    }
    dir
}

#[test]
fn sound_data_are_sound_beside_a_live_broker_too() {
    let dir = used_directory();
    for how in [&["fsck"][..], &["fsck", "--deep"]] {
        let ended = tidemill(dir.path(), how);
        assert_eq!(ended.code, Some(0), "{how:?}: {ended:?}");
        assert!(ended.out.contains("sound"), "{ended:?}");
        assert!(ended.out.contains("2 topics"), "{ended:?}");
    }
    let broker = Setup::new(dir.path()).start();
    broker.produce("tides", &records(50, "live"));
    let ended = tidemill(dir.path(), &["fsck", "--deep", "--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(report["verdict"], "sound", "{report}");
    assert_eq!(report["damage"], serde_json::json!([]), "{report}");
    assert_eq!(broker.stop(), Some(0));
}

/// What it stopped with is somebody's too: each file is checked, or waits for the next broker.
#[test]
fn each_object_that_a_stopped_broker_leaves_is_counted_once() {
    let dir = used_directory();
    let ended = tidemill(dir.path(), &["fsck", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    let number = |name: &str| report[name].as_u64().expect("a number");
    let data = dir.path().join("tidemill-data");
    // `LOCK` is no object.
    let stored = files_below(&data) - 1;
    assert_eq!(number("objects") + number("pending"), stored, "{report}");
    assert!(number("pending") > 0, "the WAL of the last run: {report}");
}

fn files_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let paths = entries.map(|entry| entry.expect("listed").path());
    paths
        .map(|path| if path.is_dir() { files_below(&path) } else { 1 })
        .sum()
}

#[test]
fn a_stranger_among_the_objects_is_garbage() {
    let dir = used_directory();
    std::fs::write(dir.path().join("tidemill-data/notes.txt"), "mine").expect("a file");
    let ended = tidemill(dir.path(), &["fsck"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains("garbage: `notes.txt`"), "{ended:?}");
}

#[test]
fn damage_is_named_by_its_key() {
    let dir = used_directory();
    let data = dir.path().join("tidemill-data");
    let file = first_file(&data.join("meta"));
    let sound = std::fs::read(&file).expect("an entry");
    let mut torn = sound.clone();
    *torn.last_mut().expect("it is not empty") ^= 1;
    std::fs::write(&file, &torn).expect("it can be written");
    let ended = tidemill(dir.path(), &["fsck", "--deep"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.out.contains("damage: `meta/00000000000000000001`"),
        "{ended:?}"
    );
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!(tidemill(dir.path(), &["fsck"]).code, Some(2));
    std::fs::write(&file, &sound).expect("it can be written");
    assert_eq!(tidemill(dir.path(), &["fsck", "--deep"]).code, Some(0));
    std::fs::remove_file(data.join("root")).expect("it is there");
    let ended = tidemill(dir.path(), &["fsck"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.out.contains("damage: `root`"), "{ended:?}");
}

/// Every record byte counts for `--deep`.
#[test]
fn a_flipped_bit_in_any_large_object_is_damage() {
    let dir = used_directory();
    let listed = tidemill(dir.path(), &["inspect"]);
    let data = dir.path().join("tidemill-data");
    let mut flipped = 0;
    for line in listed.out.lines().filter(|line| line.contains("/data/")) {
        let key = line.split_whitespace().nth(1).expect("size and key");
        let (folder, name) = key.rsplit_once('/').expect("a folder");
        let shards = std::fs::read_dir(data.join(folder)).expect("a folder");
        let file = shards.map(|shard| shard.expect("readable").path().join(name));
        let file = file
            .into_iter()
            .find(|file| file.exists())
            .expect("the key's file");
        let sound = std::fs::read(&file).expect("an object");
        let mut torn = sound.clone();
        let at = torn.len() - 1;
        torn[at] ^= 0x10;
        std::fs::write(&file, &torn).expect("it can be written");
        let ended = tidemill(dir.path(), &["fsck", "--deep"]);
        assert_eq!(ended.code, Some(2), "`{key}`: {ended:?}");
        assert!(ended.out.contains(key), "`{key}` is named: {ended:?}");
        std::fs::write(&file, &sound).expect("it can be written");
        flipped += 1;
        if flipped == 2 {
            break;
        }
    }
    assert!(flipped > 0, "a clean stop rolls: {}", listed.out);
    assert_eq!(tidemill(dir.path(), &["fsck", "--deep"]).code, Some(0));
}

#[test]
fn what_cannot_be_checked_is_neither_sound_nor_damaged() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = tidemill(dir.path(), &["fsck"]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
    assert!(
        !dir.path().join("tidemill-data").exists(),
        "nothing is created"
    );
    std::fs::create_dir(dir.path().join("tidemill-data")).expect("a directory");
    let empty = tidemill(dir.path(), &["fsck", "--json"]);
    assert_eq!(empty.code, Some(3), "{empty:?}");
    let report: serde_json::Value = serde_json::from_str(&empty.out).expect("JSON");
    assert_eq!(report["verdict"], "unchecked", "{report}");
    assert_eq!(
        tidemill(dir.path(), &["fsck", "--dep"]).code,
        Some(3),
        "a wrong flag"
    );
}

#[test]
fn every_listed_object_can_be_inspected() {
    let dir = used_directory();
    let listed = tidemill(dir.path(), &["inspect"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let keys: Vec<&str> = listed
        .out
        .lines()
        .filter(|line| line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert!(keys.contains(&"root"), "{listed:?}");
    for key in &keys {
        let printed = tidemill(dir.path(), &["inspect", key]);
        assert_eq!(printed.code, Some(0), "`{key}`: {printed:?}");
        assert!(printed.out.contains("kind: "), "`{key}`: {printed:?}");
    }
    let entry = tidemill(dir.path(), &["inspect", "meta/"]);
    assert!(entry.out.contains("meta/00000000000000000001"), "{entry:?}");
    let nothing = tidemill(dir.path(), &["inspect", "no/such/key"]);
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.err.contains("no/such/key"), "{nothing:?}");
}
