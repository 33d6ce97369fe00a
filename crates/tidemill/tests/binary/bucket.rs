//! On a bucket: start errors, outages, and a second broker.

use std::{
    io::ErrorKind,
    net::{TcpListener, TcpStream},
    process::Stdio,
    time::{Duration, Instant},
};

use tidemill_store::testing::S3Action;
use tidemill_store::testing::S3Rule;

use crate::harness::{
    Broker, Bucket, SOON, Setup, eventually, free_address, http_get, records, run,
};

#[test]
fn a_newcomer_takes_over_and_the_first_ends_with_code_3() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let setup = bucket.setup(dir.path());
    let mut first = setup.start();
    let before = records(20, "before");
    first.produce("tides", &before);
    let second = setup.start();
    second.tells(|line| line.contains("out of service from now on"));
    assert_eq!(second.consume("tides"), before);
    // The first notices by itself, or at the latest when it is to write.
    let mut stale = first.cli(&["produce", "tides"]);
    stale.stdout(Stdio::null()).stderr(Stdio::null());
    let stale = run(stale, "written to the first\n");
    assert_ne!(
        stale.code,
        Some(0),
        "a sealed broker acknowledges nothing: {stale:?}"
    );
    assert_eq!(first.ended(SOON), Some(3), "{}", first.err());
    first.tells(|line| line.contains("must not be restarted"));
    let after = records(5, "after");
    second.produce("tides", &after);
    assert_eq!(second.consume("tides"), [before, after].concat());
    assert_eq!(second.stop(), Some(0));
}

#[test]
fn an_idle_broker_notices_too_that_it_was_superseded() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let setup = bucket.setup(dir.path());
    let mut first = setup.start();
    let second = setup.start();
    assert_eq!(first.ended(SOON), Some(3), "{}", first.err());
    assert_eq!(second.stop(), Some(0));
}

#[test]
fn a_missing_bucket_ends_the_start_with_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let mut setup = bucket.setup(dir.path());
    setup.data = Some("s3://nowhere/here".to_owned());
    let ended = run(setup.command(), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("NoSuchBucket"), "{ended:?}");
    assert!(ended.err.contains("s3://nowhere/here"), "{ended:?}");
}

#[test]
fn a_wrong_key_ends_the_start_with_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let mut setup = bucket.setup(dir.path());
    setup
        .environment
        .insert("AWS_ACCESS_KEY_ID".to_owned(), "stranger".to_owned());
    let ended = run(setup.command(), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("InvalidAccessKeyId"), "{ended:?}");
}

#[test]
fn a_bucket_that_holds_something_else_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let memory = bucket.server.bucket("tides").expect("it exists");
    let put = tidemill_store::Backend::put_if_absent(
        &memory,
        "here/holiday.jpg",
        tidemill_store::Payload::from(bytes::Bytes::from_static(b"sunny")),
    );
    bucket.threads.block_on(put).expect("memory takes it");
    let ended = run(bucket.setup(dir.path()).command(), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("holds something else"), "{ended:?}");
    assert!(ended.err.contains("holiday.jpg"), "{ended:?}");
}

#[test]
fn a_store_that_is_down_at_start_is_waited_for_with_lines_and_a_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let mut setup = bucket
        .setup(dir.path())
        .set("tidemill.start.timeout.ms=7000");
    // Nobody listens on port 9 of this machine.
    let down = "http://127.0.0.1:9".to_owned();
    setup
        .environment
        .insert("AWS_ENDPOINT_URL".to_owned(), down);
    let began = Instant::now();
    let ended = run(setup.command(), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        began.elapsed() >= Duration::from_secs(6),
        "it waits: {ended:?}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(25),
        "it gives up: {:?}",
        began.elapsed()
    );
    assert!(ended.err.contains("within 7000 ms"), "{ended:?}");
    let lines = ended
        .err
        .lines()
        .filter(|line| line.contains("waiting"))
        .count();
    assert!((1..=3).contains(&lines), "a line every 5 s: {ended:?}");
}

#[test]
fn a_store_that_comes_back_during_the_start_is_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    bucket
        .server
        .script(S3Rule::all(S3Action::Status(503, "SlowDown")));
    let mut broker = bucket.setup(dir.path()).spawn();
    std::thread::sleep(Duration::from_secs(2));
    assert!(broker.status().is_none(), "it waits: {}", broker.err());
    bucket.server.clear_script();
    eventually("it starts", SOON, || broker.out().contains("metrics  "));
    assert_eq!(broker.stop(), Some(0));
}

/// A broker whose store does not let it start; where Kafka and the admin endpoint are to be.
fn starts_later(setup: Setup) -> (Broker, String, String) {
    let (kafka, admin) = (free_address(), free_address());
    let mut setup = setup.set("tidemill.start.timeout.ms=60000");
    setup.set.retain(|pair| !pair.contains("admin.listen"));
    let mut setup = setup.set(&format!("tidemill.admin.listen={admin}"));
    setup.listen.clone_from(&kafka);
    (setup.spawn(), kafka, admin)
}

/// For 11 s: clients are refused at once, probes are told that it starts, and lines say why.
fn it_waits(broker: &mut Broker, kafka: &str, admin: &str) {
    let began = Instant::now();
    eventually("the admin endpoint listens", SOON, || {
        TcpStream::connect(admin).is_ok()
    });
    let mut looks = 0;
    while began.elapsed() < Duration::from_secs(11) {
        let refused = TcpStream::connect(kafka).map_err(|error| error.kind());
        assert!(
            matches!(refused, Err(ErrorKind::ConnectionRefused)),
            "a client would wait for an answer: {refused:?}"
        );
        assert_eq!(
            http_get(admin, "/health/ready"),
            (503, "starting\n".to_owned())
        );
        assert_eq!(http_get(admin, "/health/live"), (200, "live\n".to_owned()));
        let (status, metrics) = http_get(admin, "/metrics");
        assert_eq!(status, 200);
        assert!(metrics.contains("tidemill_ready 0"), "{metrics}");
        looks += 1;
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(looks >= 5, "{looks} looks");
    assert!(broker.status().is_none(), "it waits: {}", broker.err());
    let said = broker.err();
    let lines = said.lines().filter(|line| line.contains("waiting"));
    assert!((1..=3).contains(&lines.count()), "a line every 5 s: {said}");
}

fn it_serves(mut broker: Broker, kafka: &str, admin: &str) {
    eventually("it starts", SOON, || {
        assert!(broker.status().is_none(), "{}", broker.err());
        broker.out().contains("metrics  ")
    });
    broker.address = broker.said("connect to");
    assert_eq!(broker.address, kafka);
    assert_eq!(
        http_get(admin, "/health/ready"),
        (200, "ready\n".to_owned())
    );
    let some = records(20, "some");
    broker.produce("tides", &some);
    assert_eq!(broker.consume("tides"), some);
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn nobody_is_served_while_a_start_waits_for_a_store_that_refuses() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    bucket
        .server
        .script(S3Rule::all(S3Action::Status(503, "SlowDown")));
    let (mut broker, kafka, admin) = starts_later(bucket.setup(dir.path()));
    it_waits(&mut broker, &kafka, &admin);
    bucket.server.clear_script();
    it_serves(broker, &kafka, &admin);
}

#[test]
fn nobody_is_served_while_a_start_waits_for_a_store_that_is_silent() {
    let dir = tempfile::tempdir().expect("a directory");
    // Connections are taken by the system and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it is bound");
    let mut setup = Bucket::new().setup(dir.path());
    let endpoint = format!("http://{address}");
    setup
        .environment
        .insert("AWS_ENDPOINT_URL".to_owned(), endpoint);
    let (mut broker, kafka, admin) = starts_later(setup);
    it_waits(&mut broker, &kafka, &admin);
    drop(silent);
    let _bucket = Bucket::at(Some(address));
    it_serves(broker, &kafka, &admin);
}

#[test]
fn an_outage_lets_produce_wait_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let mut broker = bucket.setup(dir.path()).start();
    let (before, during) = (records(20, "before"), records(20, "during"));
    broker.produce("tides", &before);
    bucket
        .server
        .script(S3Rule::all(S3Action::Status(503, "SlowDown")));
    let mut produce = broker.cli(&["produce", "tides"]);
    let input = dir.path().join("input");
    std::fs::write(&input, during.join("\n") + "\n").expect("a file");
    produce.stdin(std::fs::File::open(&input).expect("it is there"));
    let mut produce = produce
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary runs");
    std::thread::sleep(Duration::from_secs(1));
    // What is cached is served as long as a proof of leadership may be old (R7).
    let cached = run(broker.cli(&["consume", "tides", "--count", "20"]), "");
    assert_eq!(cached.out.lines().collect::<Vec<_>>(), before, "{cached:?}");
    std::thread::sleep(Duration::from_secs(4));
    assert!(
        produce.try_wait().expect("ours").is_none(),
        "it waits: {}",
        broker.err()
    );
    assert!(
        broker.status().is_none(),
        "nothing from the store ends the process"
    );
    assert_eq!(broker.admin("/health/live").0, 200);
    bucket.server.clear_script();
    assert!(
        produce.wait().expect("it ends").success(),
        "{}",
        broker.err()
    );
    assert_eq!(broker.consume("tides"), [before, during].concat());
    assert_eq!(broker.stop(), Some(0));
}

/// What would end a start ends nothing later: keys are renewed and buckets restored meanwhile.
#[test]
fn refusals_after_the_start_are_waited_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let mut broker = bucket.setup(dir.path()).start();
    let mut all = Vec::new();
    for (status, code) in [
        (403, "AccessDenied"),
        (403, "InvalidAccessKeyId"),
        (404, "NoSuchBucket"),
    ] {
        let refused = S3Rule::all(S3Action::Status(status, code));
        bucket.server.script(refused);
        let record = records(1, code);
        let input = dir.path().join("input");
        std::fs::write(&input, format!("{}\n", record[0])).expect("a file");
        let mut produce = broker.cli(&["produce", "tides"]);
        produce.stdin(std::fs::File::open(&input).expect("it is there"));
        let mut produce = produce.spawn().expect("the binary runs");
        std::thread::sleep(Duration::from_secs(3));
        let waits = produce.try_wait().expect("ours").is_none();
        assert!(waits, "{code}: {}", broker.err());
        assert!(broker.status().is_none(), "{code}: {}", broker.err());
        bucket.server.clear_script();
        let ended = produce.wait().expect("it ends");
        assert!(ended.success(), "{code}: {}", broker.err());
        all.extend(record);
    }
    assert_eq!(broker.consume("tides"), all);
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn a_stop_while_the_store_is_down_keeps_its_limit_and_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let setup = bucket
        .setup(dir.path())
        .set("tidemill.shutdown.timeout.ms=3000");
    let mut broker = setup.start();
    let before = records(20, "before");
    broker.produce("tides", &before);
    bucket
        .server
        .script(S3Rule::all(S3Action::Status(503, "SlowDown")));
    let mut produce = broker.cli(&["produce", "tides"]);
    let input = dir.path().join("input");
    std::fs::write(&input, "during\n").expect("a file");
    produce.stdin(std::fs::File::open(&input).expect("it is there"));
    produce.stdout(Stdio::null()).stderr(Stdio::piped());
    let produce = produce.spawn().expect("the binary runs");
    std::thread::sleep(Duration::from_secs(1));
    broker.signal("TERM");
    let began = Instant::now();
    let code = broker.ended(SOON);
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert!(
        code.is_some_and(|code| code != 0),
        "{code:?} {}",
        broker.err()
    );
    let answered = produce.wait_with_output().expect("it ends");
    assert!(!answered.status.success(), "nothing was acknowledged");
    let said = String::from_utf8_lossy(&answered.stderr).into_owned();
    assert!(
        said.contains("REQUEST_TIMED_OUT"),
        "who waits is told: {said}"
    );
    bucket.server.clear_script();
    let again = bucket.setup(dir.path()).start();
    assert_eq!(again.consume("tides")[..20], before);
}

#[test]
fn fsck_and_inspect_work_on_a_bucket() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Bucket::new();
    let setup: Setup = bucket.setup(dir.path());
    let broker = setup.start();
    broker.produce("tides", &records(20, "record"));
    for args in [&["fsck", "--deep"][..], &["inspect"], &["inspect", "root"]] {
        let mut command = crate::harness::command(dir.path());
        command
            .args(args)
            .args(["--data", "s3://tides/here"])
            .envs(&setup.environment);
        let ended = run(command, "");
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
    }
}
