//! Commands used wrongly: an exit code that is not 0, and words that say what is wrong with what.

use std::time::Duration;

use crate::harness::{Broker, SOON, Setup, records, run};

/// Wrong at the broker or in what was asked of it, and wrong on the command line.
const FAILED: i32 = 1;
const USAGE: i32 = 2;

fn refused(broker: &Broker, args: &[&str], code: i32, words: &[&str]) {
    let ended = run(broker.cli(args), "a line\n");
    assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
    assert_eq!(ended.out, "", "{args:?}");
    for word in words {
        assert!(
            ended.err.contains(word),
            "{args:?} without `{word}`: {ended:?}"
        );
    }
    assert!(!ended.err.contains("panicked"), "{args:?}: {ended:?}");
}

#[test]
fn commands_say_what_is_wrong() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Setup::new(dir.path()).set("num.partitions=2").start();
    broker.produce("tides", &records(4, "record"));
    let long = "x".repeat(250);
    let failing: &[(&[&str], &[&str])] = &[
        (
            &["topic", "create", "tides"],
            &["`tides`", "exists already"],
        ),
        (&["topic", "create", "a/b"], &["`a/b`", "characters"]),
        (&["topic", "create", ""], &["empty"]),
        (&["topic", "create", &long], &["249"]),
        (&["topic", "create", "b", "-p", "0"], &["`b`", "below 1"]),
        (&["topic", "create", "b", "-p", "2147483647"], &["10000"]),
        (
            &["topic", "create", "b", "-c", "word"],
            &["`word`", "KEY=VALUE"],
        ),
        (
            &["topic", "create", "b", "-c", "retention.mss=1"],
            &["retention.mss", "retention.ms"],
        ),
        (
            &["topic", "create", "b", "-c", "retention.ms=soon"],
            &["retention.ms", "soon"],
        ),
        (
            &["topic", "create", "b", "-c", "cleanup.policy=compact"],
            &["not served yet"],
        ),
        (&["topic", "describe", "nope"], &["`nope`", "UNKNOWN_TOPIC"]),
        (
            &["topic", "alter", "tides", "-c", "no.such=1"],
            &["no.such"],
        ),
        (
            &["topic", "alter", "nope", "-c", "retention.ms=1"],
            &["nope"],
        ),
        (&["topic", "grow", "tides", "1"], &["2 partitions already"]),
        (&["topic", "grow", "nope", "3"], &["nope"]),
        (&["topic", "delete", "nope"], &["nope"]),
        (&["produce", "tides", "--partition", "7"], &["tides-7"]),
        (&["produce", "no spaces"], &["no spaces", "INVALID_TOPIC"]),
        (&["consume", "nope", "--exit"], &["`nope`"]),
        (
            &["consume", "tides", "--exit", "--partition", "9"],
            &["no such partition"],
        ),
        (
            &["consume", "tides", "--exit", "--offset", "soon"],
            &["`soon`", "beginning"],
        ),
        (
            &["consume", "tides", "--exit", "--offset", "99"],
            &["tides-0", "99"],
        ),
        (&["consume", "tides", "--offset", "99"], &["tides-0", "99"]),
        (
            &["consume", "tides", "--exit", "--offset", "@-5"],
            &["`-5`", "Unix milliseconds"],
        ),
        (&["group", "describe", "nope"], &["nope"]),
        (&["group", "delete", "nope"], &["nope"]),
        (&["inspect", "no/such/key"], &["no/such/key"]),
    ];
    for (args, words) in failing {
        if args[0] == "inspect" {
            let mut command = crate::harness::command(dir.path());
            command.args(*args);
            let ended = run(command, "");
            assert_eq!(ended.code, Some(FAILED), "{ended:?}");
            continue;
        }
        refused(&broker, args, FAILED, words);
    }
    let wrong: &[(&[&str], &[&str])] = &[
        (&["topic"], &["subcommand"]),
        (&["topic", "frob"], &["frob"]),
        (&["topic", "create"], &["<NAME>"]),
        (&["topic", "create", "b", "-p", "many"], &["many"]),
        (&["topic", "alter", "tides"], &["--config"]),
        (&["topic", "grow", "tides"], &["<PARTITIONS>"]),
        (&["produce"], &["<TOPIC>"]),
        (
            &["produce", "tides", "--compression", "zip"],
            &["zip", "zstd"],
        ),
        (&["consume", "tides", "--count", "-1"], &["-1"]),
        (&["consume", "tides", "--timeout", "0"], &["--timeout"]),
        (&["group", "frob"], &["frob"]),
    ];
    for (args, words) in wrong {
        refused(&broker, args, USAGE, words);
    }
    assert_eq!(broker.consume("tides").len(), 4, "and nothing was done");
    let listed = run(broker.cli(&["topic", "list"]), "");
    assert_eq!(listed.out, "tides\t2\n", "{listed:?}");
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn a_broker_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    for address in [
        "127.0.0.1:9",
        "nonsense",
        ":0",
        "127.0.0.1",
        "127.0.0.1:99999",
    ] {
        let mut command = crate::harness::command(dir.path());
        command.args(["topic", "list", "--broker", address]);
        let began = std::time::Instant::now();
        let ended = run(command, "");
        assert_eq!(ended.code, Some(FAILED), "{ended:?}");
        assert!(ended.err.contains(address), "{ended:?}");
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
}

/// A peer that accepts and says nothing is given up on.
#[test]
fn a_peer_that_says_nothing_is_given_up_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound").to_string();
    let mut command = crate::harness::command(dir.path());
    command.args(["topic", "list", "--timeout", "1", "--broker", &address]);
    let began = std::time::Instant::now();
    let ended = run(command, "");
    assert_eq!(ended.code, Some(FAILED), "{ended:?}");
    assert!(ended.err.contains("no answer"), "{ended:?}");
    assert!(began.elapsed() >= Duration::from_secs(1));
}
