//! Stored bytes that have changed: what a fetch, a start and fsck say.

use std::path::{Path, PathBuf};

use tidemill_client::{Client, Options};
use tidemill_runtime::Runtime;
use tidemill_store::Envelope;
use tidemill_wire::{
    ErrorCode, Str,
    codec::Records,
    messages::fetch::{FetchPartition, FetchRequest, FetchTopic},
};

use crate::harness::{Broker, Ended, Setup, command, records, run};

/// The newest version that names topics.
const FETCH: i16 = 12;

fn fsck(dir: &Path) -> Ended {
    let mut command = command(dir);
    command.args(["fsck", "--deep"]);
    run(command, "")
}

/// The file of a key, which lies in a folder that shards its own.
fn file_of(data: &Path, key: &str) -> PathBuf {
    let (folder, name) = key.rsplit_once('/').expect("a folder");
    let mut shards = std::fs::read_dir(data.join(folder)).expect("a folder");
    shards
        .find_map(|shard| {
            let file = shard.expect("readable").path().join(name);
            file.exists().then_some(file)
        })
        .expect("the key's file")
}

fn keys(dir: &Path, kind: &str) -> Vec<String> {
    let mut command = command(dir);
    command.arg("inspect");
    let listed = run(command, "");
    let keys = listed.out.lines().filter(|line| line.contains(kind));
    keys.filter_map(|line| line.split_whitespace().nth(1).map(str::to_owned))
        .collect()
}

/// Flips a bit of the record `needle`, wherever it is stored below `data`; the keys of the objects.
fn flip(dir: &Path, kind: &str, needle: &[u8]) -> Vec<String> {
    let data = dir.join("tidemill-data");
    let mut flipped = Vec::new();
    for key in keys(dir, kind) {
        let file = file_of(&data, &key);
        let mut bytes = std::fs::read(&file).expect("an object");
        let found = bytes.windows(needle.len()).position(|at| at == needle);
        if let Some(at) = found {
            bytes[at] ^= 1;
            std::fs::write(&file, &bytes).expect("it can be written");
            flipped.push(key);
        }
    }
    flipped
}

/// Error and bytes of the first partition of each topic, by one request.
fn fetch(broker: &Broker, topics: &[&str]) -> Vec<(ErrorCode, usize)> {
    let threads = tokio::runtime::Runtime::new().expect("threads can be started");
    let topic = |name: &&str| FetchTopic {
        topic: Str::from((*name).to_owned()),
        partitions: vec![FetchPartition {
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        }],
        ..FetchTopic::default()
    };
    let request = FetchRequest {
        max_wait_ms: 100,
        min_bytes: 1,
        session_epoch: -1,
        topics: topics.iter().map(topic).collect(),
        ..FetchRequest::default()
    };
    threads.block_on(async {
        let client = Client::open(&broker.address, Options::default(), Runtime::system());
        let client = client.await.expect("it serves");
        let answer = client.call_up_to(FETCH, &request).await.expect("an answer");
        assert_eq!(answer.error_code, ErrorCode::NONE);
        let parts = answer.responses.iter().map(|topic| &topic.partitions[0]);
        let seen = parts.map(|part| {
            let bytes = part.records.as_ref().expect("never null (K80)");
            (part.error_code, Records::len(bytes))
        });
        seen.collect()
    })
}

#[test]
fn a_corrupt_object_fails_its_partition_alone_and_fsck_names_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path()).set("num.partitions=1");
    let broker = setup.start();
    broker.produce("tides", &records(50, "low water"));
    broker.produce("moons", &records(50, "half moon"));
    assert_eq!(broker.stop(), Some(0), "a clean stop rolls");
    let flipped = flip(dir.path(), "/data/", b"low water 7");
    assert_eq!(flipped.len(), 1, "{flipped:?}");
    let ended = fsck(dir.path());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.out.contains(&flipped[0]), "{ended:?}");

    let broker = setup.start();
    let seen = fetch(&broker, &["tides", "moons"]);
    assert_eq!(seen[0], (ErrorCode::CORRUPT_MESSAGE, 0));
    assert_eq!(seen[1].0, ErrorCode::NONE);
    assert!(seen[1].1 > 0, "its neighbour is served");
    broker.tells(|line| line.contains(&flipped[0]));
    let ended = run(broker.cli(&["consume", "tides", "--exit"]), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("CORRUPT_MESSAGE"), "{ended:?}");
    // Nothing bad is remembered: once the bytes are right again, they are served.
    assert_eq!(flip(dir.path(), "/data/", b"mow water 7"), flipped);
    assert_eq!(broker.consume("tides"), records(50, "low water"));
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn a_corrupt_object_in_a_replay_stops_the_start_and_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path());
    let broker = setup.start();
    broker.produce("tides", &records(50, "low water"));
    broker.kill();
    let data = dir.path().join("tidemill-data");
    let key = keys(dir.path(), "/wal/");
    let key = key.iter().max_by_key(|key| {
        let length = std::fs::metadata(file_of(&data, key));
        length.expect("a file").len()
    });
    let key = key.expect("what was produced is in the WAL");
    let file = file_of(&data, key);
    let sound = std::fs::read(&file).expect("an object");
    // In the directory: that is what a replay reads.
    let mut torn = sound.clone();
    torn[Envelope::LEN + 1] ^= 1;
    std::fs::write(&file, &torn).expect("it can be written");
    let ended = run(setup.command(), "");
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.err.contains(key), "the key is named: {ended:?}");
    let checked = fsck(dir.path());
    assert_eq!(checked.code, Some(2), "{checked:?}");
    assert!(checked.out.contains(key), "{checked:?}");
    std::fs::write(&file, &sound).expect("it can be written");
    let broker = setup.start();
    assert_eq!(broker.consume("tides"), records(50, "low water"));
    assert_eq!(broker.stop(), Some(0));
}

/// What docs/operations.md says under "A damaged last object".
#[test]
fn a_corrupt_last_object_can_be_put_back_or_moved_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path()).set("num.partitions=1");
    let broker = setup.start();
    broker.produce("tides", &records(50, "low water"));
    broker.produce("tides", &records(50, "high water"));
    broker.kill();
    let data = dir.path().join("tidemill-data");
    let flipped = flip(dir.path(), "/wal/", b"high water 49");
    assert_eq!(flipped.len(), 1, "{flipped:?}");
    for _ in 0..2 {
        let ended = run(setup.command(), "");
        assert_eq!(ended.code, Some(4), "{ended:?}");
        let named = ended.err.contains(&flipped[0]);
        assert!(named, "the key is named: {ended:?}");
        let way_out = ended.err.contains("A damaged last object");
        assert!(way_out, "and the way out: {ended:?}");
    }
    assert_eq!(fsck(dir.path()).code, Some(2));
    // Put back: nothing is lost.
    assert_eq!(flip(dir.path(), "/wal/", b"iigh water 49"), flipped);
    let broker = setup.start();
    let all = [records(50, "low water"), records(50, "high water")].concat();
    assert_eq!(broker.consume("tides"), all);
    broker.produce("tides", &records(50, "slack water"));
    broker.kill();

    // Moved away: what it holds is lost, and all else is sound.
    let flipped = flip(dir.path(), "/wal/", b"slack water 49");
    assert_eq!(flipped.len(), 1, "{flipped:?}");
    assert_eq!(run(setup.command(), "").code, Some(4));
    let aside = data.join("lost+found");
    std::fs::create_dir_all(&aside).expect("it can be made");
    let file = file_of(&data, &flipped[0]);
    std::fs::rename(file, aside.join(flipped[0].replace('/', "_"))).expect("it can be moved");
    let broker = setup.start();
    let left = broker.consume("tides");
    assert!(left.starts_with(&all) && left.len() < 150, "{}", left.len());
    broker.produce("tides", &records(50, "spring tide"));
    assert_eq!(broker.consume("tides").len(), left.len() + 50);
    assert_eq!(broker.stop(), Some(0));
    let ended = fsck(dir.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
