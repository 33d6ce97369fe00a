//! Commands as people use them in pipes, on topics of any shape.

use std::{process::Stdio, thread};

use tidemill_client::{Client, Options};
use tidemill_runtime::Runtime;
use tidemill_wire::{
    Str,
    messages::{
        DeleteRecordsRequest,
        delete_records::{DeleteRecordsPartition, DeleteRecordsTopic},
    },
};

use crate::harness::{Broker, SOON, Setup, collect, command, eventually, records, run};

fn delete_below(broker: &Broker, topic: &str, offset: i64) {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: Str::from(topic.to_owned()),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset,
            }],
        }],
        timeout_ms: 30_000,
    };
    let threads = tokio::runtime::Runtime::new().expect("threads can be started");
    threads.block_on(async {
        let client = Client::open(&broker.address, Options::default(), Runtime::system());
        let client = client.await.expect("it serves");
        let answer = client.call(&request).await.expect("an answer");
        assert_eq!(answer.topics[0].partitions[0].low_watermark, offset);
    });
}

#[test]
fn an_offset_is_read_from_where_each_partition_has_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).set("num.partitions=2").start();
    let fill = |partition: &str, count| {
        let lines = records(count, partition).join("\n") + "\n";
        let args = ["produce", "tides", "--partition", partition];
        let ended = run(broker.cli(&args), &lines);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    fill("0", 10);
    fill("1", 3);
    let from = |offset: &str| {
        let ended = run(
            broker.cli(&["consume", "tides", "--exit", "--offset", offset]),
            "",
        );
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended
    };
    assert_eq!(from("8").out, "0 8\n0 9\n", "the other one ends before");
    assert_eq!(from("10").out, "", "the end of the longest");
    delete_below(&broker, "tides", 7);
    let read = from("2");
    assert_eq!(read.out.lines().count(), 4, "{read:?}");
    assert!(read.err.contains("`tides-0` begins at 7"), "{read:?}");
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn records_that_are_too_large_together_are_stored_one_after_the_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).start();
    let create = ["topic", "create", "small", "-c", "max.message.bytes=2000"];
    assert_eq!(run(broker.cli(&create), "").code, Some(0));
    let many = records(3_000, "record");
    broker.produce("small", &many);
    assert_eq!(broker.consume("small"), many);
    // Whoever repeats the rest must know where it begins.
    let large = format!("first\nsecond\n{}\nlast\n", "x".repeat(3_000));
    let ended = run(broker.cli(&["produce", "small"]), &large);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for word in [
        "`small-0`",
        "max.message.bytes",
        "2 records were acknowledged",
    ] {
        assert!(ended.err.contains(word), "`{word}`: {ended:?}");
    }
    let stored = broker.consume("small");
    assert_eq!(stored[many.len()..], ["first", "second"]);
    assert_eq!(broker.stop(), Some(0));
}

/// `tidemill consume | head` is no failure, and nobody is told of a broken pipe.
#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).start();
    broker.produce("tides", &records(100_000, "a record"));
    let mut consume = broker.cli(&["consume", "tides", "--exit"]);
    consume.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = consume.spawn().expect("the binary runs");
    let err = collect(child.stderr.take().expect("piped"));
    drop(child.stdout.take());
    let code = child.wait().expect("the binary ends").code();
    thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(code, Some(0));
    assert_eq!(*err.lock().expect("no panic while it is held"), "");
    assert_eq!(broker.stop(), Some(0));
    let mut fsck = command(dir.path());
    fsck.arg("fsck")
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = fsck.spawn().expect("the binary runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "sound");
}

#[test]
fn a_slow_reader_is_told_what_it_has_missed() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).start();
    broker.produce("tides", &records(5, "old"));
    let mut consume = broker.cli(&["consume", "tides", "--offset", "end", "--verbose"]);
    consume.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = consume.spawn().expect("the binary runs");
    let out = collect(child.stdout.take().expect("piped"));
    let err = collect(child.stderr.take().expect("piped"));
    let said = |text: &crate::harness::Output, word: &str| {
        text.lock()
            .expect("no panic while it is held")
            .contains(word)
    };
    // Where the end was when it asked: only what comes later is read.
    let mut before = 5;
    eventually("it reads", SOON, || {
        broker.produce("tides", &records(1, "seen"));
        before += 1;
        std::thread::sleep(std::time::Duration::from_millis(200));
        said(&out, "seen 0")
    });
    let pid = child.id().to_string();
    let signal = |name: &str| {
        let sent = std::process::Command::new("kill")
            .args(["-s", name, &pid])
            .status();
        assert!(sent.expect("there is a kill").success());
    };
    // It sleeps while what it would read next comes and goes.
    signal("STOP");
    broker.produce("tides", &records(3, "missed"));
    broker.produce("tides", &records(1, "kept"));
    delete_below(&broker, "tides", before + 3);
    // An answer of before the stop may be on its way: the second fetch fails then.
    signal("CONT");
    broker.produce("tides", &records(1, "last"));
    eventually("it reads on", SOON, || said(&out, "last 0"));
    let missed = said(&err, &format!("going on at {}", before + 3));
    assert!(missed || said(&out, "missed 2"), "told, or there in time");
    child.kill().expect("our child");
    child.wait().expect("it ends");
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn keys_do_not_lead_out_of_the_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("tidemill-data");
    Setup::new(dir.path()).start().stop();
    std::fs::write(dir.path().join("secret"), "of somebody else").expect("a file");
    let absolute = dir.path().join("secret").display().to_string();
    let outside = data.display().to_string() + "/";
    for key in [
        absolute.as_str(),
        &outside,
        "../secret",
        "../",
        "meta/../root",
        "a//b",
    ] {
        let mut inspect = command(dir.path());
        inspect.args(["inspect", key]);
        let ended = run(inspect, "");
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert_eq!(ended.out, "");
        assert!(ended.err.contains("is no key"), "{ended:?}");
        assert!(ended.err.contains(key), "{ended:?}");
    }
    let mut inspect = command(dir.path());
    inspect.args(["inspect", "meta/nothing"]);
    let ended = run(inspect, "");
    assert!(ended.err.contains("`meta/nothing`"), "{ended:?}");
}
