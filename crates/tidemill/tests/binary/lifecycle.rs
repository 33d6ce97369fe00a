//! Start, serve, stop, crash, start again.

use std::{net::TcpListener, time::Duration};

use crate::harness::{SOON, Setup, collect, command, eventually, records, run};

fn keys(dir: &std::path::Path) -> Vec<String> {
    let mut inspect = command(dir);
    inspect.arg("inspect");
    let listed = run(inspect, "");
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let keys = listed
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    keys.filter(|key| key.contains('/') || *key == "root")
        .map(str::to_owned)
        .collect()
}

fn inspected(dir: &std::path::Path, key: &str) -> String {
    let mut inspect = command(dir);
    inspect.args(["inspect", key]);
    let printed = run(inspect, "");
    assert_eq!(printed.code, Some(0), "`{key}`: {printed:?}");
    printed.out
}

#[test]
fn serves_from_an_empty_directory_and_comes_back_after_a_clean_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).start();
    let (first, second) = (records(100, "first"), records(10, "second"));
    broker.produce("tides", &first);
    assert_eq!(broker.consume("tides"), first);
    assert_eq!(broker.admin("/health/live"), (200, "live\n".to_owned()));
    assert_eq!(broker.admin("/health/ready"), (200, "ready\n".to_owned()));
    let (status, metrics) = broker.admin("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("tidemill_ready 1"), "{metrics}");
    assert!(
        metrics.contains("# TYPE tidemill_store_put_requests_total counter"),
        "{metrics}"
    );
    assert_eq!(broker.admin("/nothing").0, 404);
    assert_eq!(broker.stop(), Some(0));
    for key in keys(dir.path()) {
        let text = inspected(dir.path(), &key);
        assert!(
            !text.contains("ClosedMarker"),
            "a clean stop leaves no marker: `{key}`"
        );
    }
    let broker = Setup::new(dir.path()).start();
    broker.produce("tides", &second);
    assert_eq!(broker.consume("tides"), [first, second].concat());
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut all = Vec::new();
    for round in 0..3 {
        let broker = Setup::new(dir.path()).start();
        if round > 0 {
            assert_eq!(broker.consume("tides"), all, "round {round}");
        }
        let more = records(50, &format!("round {round}"));
        broker.produce("tides", &more);
        all.extend(more);
        broker.kill();
    }
    let broker = Setup::new(dir.path()).start();
    assert_eq!(broker.consume("tides"), all);
}

#[test]
fn a_taken_port_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it has one").to_string();
    let mut serve = command(dir.path());
    serve.args(["--listen", &address]);
    let ended = run(serve, "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains(&address) && ended.err.contains("in use"),
        "{ended:?}"
    );
    assert!(
        !dir.path().join("tidemill-data").exists(),
        "nothing was written"
    );
}

#[test]
fn a_taken_admin_port_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it has one").to_string();
    let setup = Setup::new(dir.path()).set(&format!("tidemill.admin.listen={address}"));
    let ended = run(setup.command(), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains(&address), "{ended:?}");
    assert!(ended.err.contains("tidemill.admin.listen"), "{ended:?}");
}

#[test]
fn a_second_broker_on_the_same_directory_is_told_who_holds_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).start();
    let ended = run(Setup::new(dir.path()).command(), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let holder = format!("process {}", broker.pid());
    assert!(ended.err.contains(&holder), "{ended:?}");
    assert!(ended.err.contains("tidemill-data"), "{ended:?}");
    broker.produce("tides", &records(1, "still served"));
}

/// What is printed can be pasted, and the page of metrics is no less open than a listener.
#[test]
fn an_ipv6_address_is_told_as_clients_take_it_and_an_open_admin_page_warns() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut setup = Setup::new(dir.path());
    setup.set = vec!["tidemill.admin.listen=0.0.0.0:0".to_owned()];
    let broker = setup.start();
    broker.tells(|line| {
        line.contains("other machines can reach") && line.contains("tidemill.admin.listen")
    });
    assert_eq!(broker.stop(), Some(0));
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let mut serve = command(dir.path());
    serve.args(["serve", "--listen", "[::1]:0", "--data", "file:six"]);
    serve.args(["--set", "tidemill.admin.listen=127.0.0.1:0"]);
    serve
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null());
    let mut child = serve.spawn().expect("the binary runs");
    let out = collect(child.stdout.take().expect("piped"));
    let said = || out.lock().expect("no panic while it is held").clone();
    eventually("it serves", SOON, || said().contains("metrics  "));
    let said = said();
    let (_, after) = said.split_once("connect to   ").expect("it says where");
    let address = after.split(' ').next().expect("an address");
    assert!(address.starts_with("[::1]:"), "{said}");
    let mut list = command(dir.path());
    list.args(["topic", "list", "--broker", address]);
    let listed = run(list, "");
    child.kill().expect("our child can be killed");
    child.wait().expect("our child ends");
    assert_eq!(listed.code, Some(0), "{listed:?}");
}

#[test]
fn a_listener_beyond_loopback_warns() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut setup = Setup::new(dir.path());
    setup
        .set
        .push("advertised.listeners=PLAINTEXT://localhost:19092".to_owned());
    setup.set.push("listeners=PLAINTEXT://0.0.0.0:0".to_owned());
    let mut serve = setup.command();
    // `--listen` comes first otherwise.
    serve = {
        let mut plain = command(dir.path());
        plain.args(
            serve
                .get_args()
                .filter(|arg| *arg != "--listen" && *arg != "127.0.0.1:0"),
        );
        plain
    };
    serve
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped());
    let mut child = serve.spawn().expect("the binary runs");
    let mut line = String::new();
    let err = child.stderr.take().expect("piped");
    let mut lines = std::io::BufReader::new(err);
    while !line.contains("other machines can reach this listener") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut lines, &mut line).expect("lines come");
        assert!(read > 0, "it ended without the warning");
    }
    child.kill().expect("our child can be killed");
    child.wait().expect("our child ends");
}

#[test]
fn a_broker_whose_data_directory_is_deleted_stops_soon_and_says_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut broker = Setup::new(dir.path()).start();
    broker.produce("tides", &records(10, "lost"));
    std::fs::remove_dir_all(dir.path().join("tidemill-data")).expect("ours to delete");
    broker.signal("TERM");
    // Of the 30 s that a stop may take.
    assert_eq!(broker.ended(Duration::from_secs(10)), Some(1));
    broker.tells(|line| line.contains("was deleted"));
}
