//! Trouble that needs a mount namespace of its own: read-only directories and full disks. Skipped,
//! with a line that says so, where such a namespace cannot be had (root is needed).

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use tidemill_client::{Client, Options};
use tidemill_runtime::Runtime as Clock;
use tidemill_wire::ErrorCode;

use crate::harness::{Ended, SOON, Setup, eventually, records, run};
use crate::outage::{heartbeat, join};

/// True if private mounts are possible.
fn may_mount() -> bool {
    let script = "mount -t tmpfs -o size=1m none /tmp";
    let tried = Command::new("unshare")
        .args(["-m", "sh", "-ec", script])
        .output();
    let possible = tried.is_ok_and(|tried| tried.status.success());
    if !possible {
        eprintln!("skipped: no private mount namespace here (`unshare -m` and mount need root)");
    }
    possible
}

/// Runs `script` in the namespace of process `pid`.
fn inside(pid: u32, script: &str) -> Ended {
    let mut command = Command::new("nsenter");
    command.args(["-t", &pid.to_string(), "-m", "sh", "-ec", script]);
    run(command, "")
}

#[test]
fn an_unwritable_data_directory_is_an_error_that_names_it() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("tidemill-data");
    std::fs::create_dir(&data).expect("a directory");
    let shown = data.display();
    let mut setup = Setup::new(dir.path());
    setup.data = Some(format!("file:{shown}"));
    setup.namespace = Some(format!(
        "mount --bind {shown} {shown}; mount -o remount,ro,bind {shown}; exec \"$@\""
    ));
    let ended = run(setup.command(), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains(&shown.to_string()), "{ended:?}");
    assert!(ended.err.contains("Read-only file system"), "{ended:?}");
}

#[test]
fn a_full_disk_stops_produce_alone_and_ends_with_space() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).expect("a directory");
    let shown = disk.display();
    let mut setup = Setup::new(dir.path());
    setup.data = Some(format!("file:{shown}/data"));
    let fill = "dd if=/dev/zero of=filler bs=1M count=8 status=none";
    setup.namespace = Some(format!(
        "mount -t tmpfs -o size=16m none {shown}; (cd {shown}; {fill}); exec \"$@\""
    ));
    let mut broker = setup.start();
    let first = records(10, "before");
    broker.produce("tides", &first);
    let threads = tokio::runtime::Runtime::new().expect("threads can be started");
    let client = Client::open(&broker.address, Options::default(), Clock::system());
    let client = threads.block_on(client).expect("it serves");
    let joined = threads.block_on(join(&client));
    let beat = || {
        let beaten = threads.block_on(client.call(&heartbeat(&joined)));
        assert_eq!(beaten.expect("an answer").error_code, ErrorCode::NONE);
    };
    // More than fits: 12 MiB in records of 8 KiB.
    let large: Vec<String> = (0..1536).map(|n| format!("{n:08192}")).collect();
    let mut produce = broker.cli(&["produce", "tides"]);
    produce
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let input = dir.path().join("input");
    std::fs::write(&input, large.join("\n") + "\n").expect("space elsewhere");
    produce.stdin(std::fs::File::open(&input).expect("it is there"));
    let mut produce = produce.spawn().expect("the binary runs");
    eventually("the disk is full", SOON, || {
        beat();
        let free = inside(
            broker.pid(),
            &format!("df -k --output=avail {shown} | tail -1"),
        );
        free.out.trim().parse::<u64>().is_ok_and(|kib| kib < 1024)
    });
    // Longer than the member's session: it beats on, and nobody forgets it.
    for _ in 0..16 {
        std::thread::sleep(Duration::from_millis(500));
        beat();
    }
    assert!(
        broker.status().is_none(),
        "a full disk does not end the broker\n{}",
        broker.err()
    );
    // What needs no space goes on.
    let listed = run(broker.cli(&["topic", "list"]), "");
    assert!(listed.out.contains("tides"), "{listed:?}\n{}", broker.err());
    assert_eq!(broker.admin("/health/live").0, 200);
    let few = run(broker.cli(&["consume", "tides", "--count", "10"]), "");
    assert_eq!(
        few.out.lines().collect::<Vec<_>>(),
        first,
        "{few:?}\n{}",
        broker.err()
    );
    inside(broker.pid(), &format!("rm {shown}/filler"));
    beat();
    let waited = produce.wait().expect("the producer ends");
    let after = records(10, "after");
    broker.produce("tides", &after);
    let all = broker.consume("tides");
    assert_eq!(all[all.len() - 10..], after);
    if waited.success() {
        assert_eq!(all.len(), 20 + large.len(), "what waited is there, once");
    }
    assert_eq!(broker.stop(), Some(0));
}
