//! Trouble that needs a mount namespace of its own: read-only directories and full disks. Skipped,
//! with a line that says so, where such a namespace cannot be had (root is needed).

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tidemill_client::{Client, Options};
use tidemill_runtime::Runtime as Clock;
use tidemill_wire::ErrorCode;

use crate::harness::{Broker, Ended, SOON, Setup, eventually, records, run};
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

/// A disk of 16 MiB at `shown`, where so many of them are taken by somebody else.
fn small_disk(shown: &str, filled_mib: u32) -> String {
    let fill = format!("dd if=/dev/zero of=filler bs=1M count={filled_mib} status=none");
    format!("mount -t tmpfs -o size=16m none {shown}; (cd {shown}; {fill}); exec \"$@\"")
}

/// The least that is kept free of such a disk: half of its floor, an eighth.
const RESERVE_KIB: u64 = 1024;

fn free_kib(pid: u32, shown: &str) -> u64 {
    let free = inside(pid, &format!("df -k --output=avail {shown} | tail -1"));
    free.out.trim().parse().expect("a number of KiB")
}

/// Waits until the disk is as full as it gets: nothing has changed for longer than what is trimmed
/// lives on. `meanwhile` is called again and again.
fn fills_up(broker: &Broker, shown: &str, mut meanwhile: impl FnMut()) {
    broker.tells(|line| line.contains("free space crossed its floor"));
    let mut since = Instant::now();
    let mut last = 0;
    eventually("the disk stays full", 2 * SOON, || {
        meanwhile();
        std::thread::sleep(Duration::from_millis(200));
        let free = free_kib(broker.pid(), shown);
        assert!(free >= RESERVE_KIB, "{free} KiB are left to make room with");
        if free.abs_diff(last) > 64 {
            (since, last) = (Instant::now(), free);
        }
        since.elapsed() > Duration::from_secs(8)
    });
}

/// A `tidemill produce` of these records that goes on by itself.
fn producing(broker: &Broker, topic: &str, records: &[String]) -> Child {
    let input = broker.dir.join(format!("{topic}.input"));
    std::fs::write(&input, records.join("\n") + "\n").expect("space elsewhere");
    let mut produce = broker.cli(&["produce", topic]);
    produce
        .stdin(std::fs::File::open(&input).expect("it is there"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    produce.spawn().expect("the binary runs")
}

/// Records of 8 KiB.
fn large(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{n:08192}")).collect()
}

#[test]
fn a_full_disk_stops_produce_alone_and_ends_with_space() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).expect("a directory");
    let shown = disk.display().to_string();
    let mut setup = Setup::new(dir.path()).set("num.partitions=1");
    setup.data = Some(format!("file:{shown}/data"));
    setup.namespace = Some(small_disk(&shown, 8));
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
    // More than fits: 12 MiB. It takes longer than the member's session: it beats on, and nobody
    // forgets it.
    let large = large(1536);
    let mut produce = producing(&broker, "tides", &large);
    fills_up(&broker, &shown, beat);
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
    let waits = produce.try_wait().expect("our child can be asked");
    assert!(waits.is_none(), "the producer waits: {waits:?}");
    inside(broker.pid(), &format!("rm {shown}/filler"));
    beat();
    let waited = produce.wait().expect("the producer ends");
    assert!(waited.success(), "what waited is stored\n{}", broker.err());
    let after = records(10, "after");
    broker.produce("tides", &after);
    let all = broker.consume("tides");
    assert!(all == [first, large, after].concat(), "all is there, once");
    assert_eq!(broker.stop(), Some(0));
}

/// Nobody else has put anything there, and nobody but the broker takes anything away.
#[test]
fn a_disk_that_produce_has_filled_heals_when_a_topic_is_deleted() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).expect("a directory");
    let shown = disk.display().to_string();
    let mut setup = Setup::new(dir.path())
        .set("num.partitions=1")
        .set("tidemill.start.timeout.ms=5000");
    setup.data = Some(format!("file:{shown}/data"));
    setup.namespace = Some(small_disk(&shown, 0));
    let broker = setup.start();
    broker.produce("moons", &large(512));
    let tides = large(1408);
    let mut produce = producing(&broker, "tides", &tides);
    fills_up(&broker, &shown, || ());
    let full = free_kib(broker.pid(), &shown);
    let waits = produce.try_wait().expect("our child can be asked");
    assert!(waits.is_none(), "the producer waits: {waits:?}");
    let deleted = run(broker.cli(&["topic", "delete", "moons"]), "");
    assert_eq!(deleted.code, Some(0), "{deleted:?}\n{}", broker.err());
    let waited = produce.wait().expect("the producer ends");
    assert!(waited.success(), "{full} KiB were free\n{}", broker.err());
    assert!(broker.consume("tides") == tides, "all is there, once");

    // Full again, it dies, and its successor serves, deletes and heals.
    let more = large(512);
    let mut rest = producing(&broker, "more", &more);
    fills_up(&broker, &shown, || ());
    let mut keeper = Command::new("nsenter")
        .args(["-t", &broker.pid().to_string(), "-m", "sleep", "600"])
        .spawn()
        .expect("there is a sleep");
    let keeps = keeper.id();
    eventually("the disk has a second user", SOON, || {
        inside(keeps, &format!("test -d {shown}/data")).code == Some(0)
    });
    broker.kill();
    drop((rest.kill(), rest.wait()));
    setup.namespace = Some(format!("exec nsenter -t {keeps} -m \"$@\""));
    let broker = setup.start();
    assert!(broker.consume("tides") == tides, "it serves");
    let kept = broker.consume("more");
    assert!(kept == more[..kept.len()], "in order, without a gap");
    let deleted = run(broker.cli(&["topic", "delete", "tides"]), "");
    assert_eq!(deleted.code, Some(0), "{deleted:?}\n{}", broker.err());
    broker.produce("more", &tides[..512]);
    assert!(broker.consume("more") == [&kept[..], &tides[..512]].concat());
    broker.kill();

    // Somebody else takes the last byte.
    let fill = format!("dd if=/dev/zero of={shown}/filler bs=4k status=none || true");
    inside(keeps, &fill);
    let ended = run(setup.command(), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("make room"), "{ended:?}");
    inside(keeps, &format!("rm {shown}/filler"));
    let broker = setup.start();
    assert!(broker.consume("more") == [&kept[..], &tides[..512]].concat());
    assert_eq!(broker.stop(), Some(0));
    drop((keeper.kill(), keeper.wait()));
}
