//! Settings that are wrong, wherever they stand, are named before anything is done.

use std::process::Command;

use tidemill_client::{Client, Options};
use tidemill_runtime::Runtime;
use tidemill_wire::{
    Str,
    messages::{
        describe_cluster::DescribeClusterRequest, find_coordinator::FindCoordinatorRequest,
    },
};

use crate::harness::{Setup, command, records, run};

/// Exit code 2 and all of `names` on standard error, nothing created.
fn refused(serve: Command, dir: &std::path::Path, names: &[&str]) {
    let ended = run(serve, "");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for name in names {
        assert!(ended.err.contains(name), "`{name}` is not named: {ended:?}");
    }
    assert!(!dir.join("tidemill-data").exists(), "nothing was written");
}

#[test]
fn an_unknown_setting() {
    let dir = tempfile::tempdir().expect("a directory");
    let serve = Setup::new(dir.path()).set("num.partition=3").command();
    refused(serve, dir.path(), &["num.partition", "--set"]);
}

#[test]
fn a_bad_value() {
    let dir = tempfile::tempdir().expect("a directory");
    let serve = Setup::new(dir.path()).set("num.partitions=many").command();
    refused(serve, dir.path(), &["num.partitions", "many"]);
}

#[test]
fn an_unknown_key_in_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = "\"message.max.bytes\" = 1000000\n\"no.such.thing\" = 1\n";
    std::fs::write(dir.path().join("tidemill.toml"), text).expect("a file");
    let serve = Setup::new(dir.path()).command();
    refused(serve, dir.path(), &["no.such.thing", "tidemill.toml"]);
}

#[test]
fn a_file_that_is_no_toml_or_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut missing = command(dir.path());
    missing.args(["serve", "--config", "nowhere.toml"]);
    refused(missing, dir.path(), &["nowhere.toml"]);
    std::fs::write(dir.path().join("tidemill.toml"), "= = =\n").expect("a file");
    refused(
        Setup::new(dir.path()).command(),
        dir.path(),
        &["tidemill.toml"],
    );
}

#[test]
fn a_bad_variable() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut setup = Setup::new(dir.path());
    setup
        .environment
        .insert("TIDEMILL_NUM_PARTITIONS".to_owned(), "zero".to_owned());
    refused(
        setup.command(),
        dir.path(),
        &["TIDEMILL_NUM_PARTITIONS", "zero"],
    );
    let mut setup = Setup::new(dir.path());
    setup
        .environment
        .insert("TIDEMILL_NO_SUCH_THING".to_owned(), "1".to_owned());
    refused(setup.command(), dir.path(), &["TIDEMILL_NO_SUCH_THING"]);
}

#[test]
fn an_unknown_flag() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut serve = command(dir.path());
    serve.arg("--listne");
    refused(serve, dir.path(), &["--listne"]);
}

#[test]
fn data_that_names_no_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut setup = Setup::new(dir.path());
    setup.data = Some("ftp://somewhere".to_owned());
    refused(
        setup.command(),
        dir.path(),
        &["ftp://somewhere", "file:DIR"],
    );
}

#[test]
fn flag_over_variable_over_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = "\"num.partitions\" = 3\n\"message.max.bytes\" = 77777\n";
    std::fs::write(dir.path().join("tidemill.toml"), text).expect("a file");
    let mut serve = Setup::new(dir.path()).set("num.partitions=5").command();
    serve
        .env("TIDEMILL_NUM_PARTITIONS", "4")
        .env("TIDEMILL_MESSAGE_MAX_BYTES", "88888");
    serve.arg("--print-config");
    let ended = run(serve, "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended
            .out
            .contains("# source: --set\n\"num.partitions\" = \"5\"\n"),
        "{}",
        ended.out
    );
    assert!(
        ended
            .out
            .contains("# source: TIDEMILL_MESSAGE_MAX_BYTES\n\"message.max.bytes\" = \"88888\"\n"),
        "{}",
        ended.out
    );
}

/// What is printed is a configuration file: with the same settings, and none more.
#[test]
fn the_printed_settings_can_be_read_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let print = |setup: Setup, args: &[&str]| {
        let mut serve = setup.command();
        serve.args(args).arg("--print-config");
        let ended = run(serve, "");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out
    };
    let setup = Setup::new(dir.path())
        .set("broker.rack=a \"rack\" \\ and\ttab")
        .set("log.dir.failure.timeout.ms=5")
        .set("log.retention.ms=77");
    let first = print(setup, &[]);
    let file = dir.path().join("printed.toml");
    std::fs::write(&file, &first).expect("a file");
    let shown = file.display().to_string();
    let second = print(Setup::new(dir.path()), &["--config", &shown]);
    let values = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("# source: "));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(values(&first), values(&second));
    let set = second.matches(&format!("# source: {shown}")).count();
    assert_eq!(set, 3, "the others are defaults still");
    let table: toml::Table = second.parse().expect("it is TOML");
    let told = |name: &str| table.get(name).and_then(toml::Value::as_str);
    assert_eq!(told("broker.rack"), Some("a \"rack\" \\ and\ttab"));
    assert_eq!(told("log.retention.ms"), Some("77"));
    assert!(
        second.contains("\n# \"num.partitions\" = \"1\"\n"),
        "{second}"
    );
}

/// K93: clients could not come back to a wildcard, so it is refused before anything is done, and
/// the words say what is missing.
#[test]
fn k93_a_wildcard_needs_an_address_for_clients() {
    for address in ["0.0.0.0:0", "[::]:0", ":0"] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut serve = command(dir.path());
        serve.args(["serve", "--listen", address]);
        refused(serve, dir.path(), &["advertised.listeners"]);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut serve = command(dir.path());
    let set = "advertised.listeners=PLAINTEXT://0.0.0.0:9092";
    serve.args(["serve", "--listen", "0.0.0.0:0", "--set", set]);
    refused(serve, dir.path(), &["advertised.listeners"]);
}

/// And with one, that is what every client is told.
#[test]
fn k93_the_advertised_address_is_what_clients_are_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut broker = Setup::new(dir.path())
        .set("advertised.listeners=PLAINTEXT://tides.example:19092")
        .start();
    let listening = broker.out();
    let (_, listening) = listening
        .split_once("(listening on ")
        .expect("it says where it listens");
    broker.address = listening.split(')').next().expect("an address").to_owned();
    let threads = tokio::runtime::Runtime::new().expect("threads can be started");
    threads.block_on(async {
        let client = Client::open(&broker.address, Options::default(), Runtime::system());
        let client = client.await.expect("it serves");
        let wanted = ("tides.example", 19092);
        let metadata = client.metadata(None).await.expect("an answer");
        let told = &metadata.brokers[0];
        assert_eq!((&*told.host, told.port), wanted);
        let request = FindCoordinatorRequest {
            coordinator_keys: vec![Str::from("g".to_owned())],
            ..FindCoordinatorRequest::default()
        };
        let found = client.call(&request).await.expect("an answer");
        let told = &found.coordinators[0];
        assert_eq!((&*told.host, told.port), wanted);
        let request = DescribeClusterRequest::default();
        let cluster = client.call(&request).await.expect("an answer");
        let told = &cluster.brokers[0];
        assert_eq!((&*told.host, told.port), wanted);
    });
}

#[test]
fn a_setting_without_meaning_is_accepted_and_named_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path())
        .set("num.io.threads=4")
        .set("offsets.topic.replication.factor=3")
        .set("leader.replication.throttled.rate=1000")
        .start();
    broker.produce("tides", &records(1, "served"));
    for name in [
        "num.io.threads",
        "offsets.topic.replication.factor",
        "leader.replication.throttled.rate",
    ] {
        let names = |line: &str| line.contains("WARN") && line.contains(name);
        broker.tells(names);
        let told = broker.err().lines().filter(|line| names(line)).count();
        assert_eq!(told, 1, "{name}: {}", broker.err());
    }
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn help_names_every_command_and_each_has_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let help = |args: &[&str]| {
        let mut command = command(dir.path());
        command.args(args).arg("--help");
        let ended = run(command, "");
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        ended.out
    };
    let all = help(&[]);
    for option in ["--listen", "--data", "--set", "--config", "--print-config"] {
        assert!(all.contains(option), "{option}: {all}");
    }
    for name in [
        "serve", "topic", "produce", "consume", "group", "inspect", "fsck",
    ] {
        assert!(all.contains(&format!("\n  {name} ")), "{name}: {all}");
        let own = help(&[name]);
        assert!(
            own.contains(&format!("{name} ")) && own.contains("Usage:"),
            "{own}"
        );
    }
}
