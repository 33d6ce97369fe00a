//! Settings that are wrong, wherever they stand, are named before anything is done.

use std::process::Command;

use crate::harness::{Setup, command, run};

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
    let ended = run(setup.command(), "");
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("ftp://somewhere"), "{ended:?}");
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
        ended.out.contains("num.partitions = \"5\""),
        "{}",
        ended.out
    );
    assert!(
        ended.out.contains("message.max.bytes = \"88888\""),
        "{}",
        ended.out
    );
}
