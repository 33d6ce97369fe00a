//! Flags over environment over file over defaults; unknown names; bad values.

use proptest::prelude::*;
use tidemill_broker::config::{self, ConfigError, Layer, Settings, variable_of};

use crate::{HOST, refused, settings};

fn environment(vars: &[(&str, &str)]) -> Result<Layer, ConfigError> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Layer::environment(vars.iter().map(owned))
}

#[test]
fn flags_win_over_environment_over_file_over_default() {
    let flags = Layer::flags(["num.partitions=5"]).expect("a pair");
    let vars = environment(&[
        ("TIDEMILL_NUM_PARTITIONS", "6"),
        ("TIDEMILL_MESSAGE_MAX_BYTES", " 2000 "),
        ("PATH", "/bin"),
        ("TIDEMILL_TEST_S3", "s3://x"),
    ]);
    let file = "num.partitions = 7\nmessage.max.bytes = 3000\n[fetch]\nmax.bytes = 4096\n";
    let file = Layer::toml(file, "tidemill.toml").expect("sound");
    let layers = [flags, vars.expect("known"), file];
    let settings = Settings::new(&layers, HOST).expect("sound");
    assert_eq!(settings.text("num.partitions"), Some("5"));
    assert_eq!(settings.text("message.max.bytes"), Some("2000"));
    assert_eq!(settings.text("fetch.max.bytes"), Some("4096"));
    assert_eq!(settings.text("node.id"), Some("1"));
    assert_eq!(settings.given("node.id"), None);
}

#[test]
fn the_last_flag_of_a_name_counts() {
    let settings = settings(&["node.id=1", "node.id=2"]).expect("sound");
    assert_eq!(settings.text("node.id"), Some("2"));
}

#[test]
fn a_bad_value_names_key_value_and_source_even_if_overridden() {
    assert_eq!(
        refused(&["num.partitions=many"]),
        "`num.partitions` = `many` from --set: must be a 32 bit whole number"
    );
    let flags = Layer::flags(["num.partitions=5"]).expect("a pair");
    let vars = environment(&[("TIDEMILL_NUM_PARTITIONS", "0")]).expect("known");
    let error = Settings::new(&[flags, vars], HOST)
        .expect_err("bad")
        .to_string();
    let expected = "`num.partitions` = `0` from TIDEMILL_NUM_PARTITIONS: must be between 1 and \
                    10000";
    assert_eq!(error, expected);
    let file = Layer::toml("log.retention.ms = 1.5", "a.toml").expect("toml");
    let error = Settings::new(&[file], HOST).expect_err("bad").to_string();
    let expected = "`log.retention.ms` = `1.5` from a.toml: must be a 64 bit whole number";
    assert_eq!(error, expected);
}

#[test]
fn an_unknown_name_is_an_error_with_a_suggestion() {
    assert_eq!(
        refused(&["message.maxbytes=1"]),
        "`message.maxbytes` from --set: unknown setting, did you mean `message.max.bytes`?"
    );
    assert_eq!(
        refused(&["something.else.entirely=1"]),
        "`something.else.entirely` from --set: unknown setting"
    );
    let error = environment(&[("TIDEMILL_NUM_PARTITION", "1")])
        .expect_err("unknown")
        .to_string();
    assert_eq!(
        error,
        "`TIDEMILL_NUM_PARTITION` from the environment: unknown setting, did you mean \
         `TIDEMILL_NUM_PARTITIONS`?"
    );
    let error = refused(&[&format!("{}=1", "x".repeat(5000))]);
    assert!(error.ends_with("unknown setting"));
}

#[test]
fn our_own_settings_have_a_short_variable_too() {
    for variable in ["TIDEMILL_TIDEMILL_ROLL_BYTES", "TIDEMILL_ROLL_BYTES"] {
        let layer = environment(&[(variable, "1048576")]).expect("known");
        let settings = Settings::new(&[layer], HOST).expect("sound");
        assert_eq!(settings.text("tidemill.roll.bytes"), Some("1048576"));
    }
    let both = [
        ("TIDEMILL_TIDEMILL_DATA", "memory:"),
        ("TIDEMILL_DATA", "memory:"),
    ];
    let error = environment(&both).expect_err("twice").to_string();
    assert!(
        error.contains("tidemill.data") && error.contains("is set by"),
        "{error}"
    );
    assert_eq!(
        variable_of("message.max.bytes"),
        "TIDEMILL_MESSAGE_MAX_BYTES"
    );
}

#[test]
fn variables_do_not_collide() {
    let mut all: Vec<_> = config::names()
        .flat_map(|name| {
            let short = name.strip_prefix("tidemill.").map(variable_of);
            short.into_iter().chain([variable_of(name)])
        })
        .collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn files_hold_tables_quoted_keys_and_lists() {
    let text = "\"log.dirs\" = \"/a\"\n\
                listeners = [\"A://127.0.0.1:1\", \"B://127.0.0.1:2\"]\n\
                auto.create.topics.enable = false\n\
                [tidemill]\nlatency = \"low\"\nroll.bytes = 1048576\n";
    let layer = Layer::toml(text, "a.toml").expect("sound");
    let settings = Settings::new(&[layer], HOST).expect("sound");
    assert_eq!(
        settings.text("listeners"),
        Some("A://127.0.0.1:1,B://127.0.0.1:2")
    );
    assert_eq!(settings.text("auto.create.topics.enable"), Some("false"));
    assert_eq!(settings.text("tidemill.latency"), Some("low"));
    assert_eq!(settings.text("tidemill.roll.bytes"), Some("1048576"));
}

#[test]
fn broken_files_are_named() {
    let error = Layer::toml("a = = b", "conf/a.toml")
        .expect_err("no toml")
        .to_string();
    assert!(error.starts_with("`conf/a.toml`: "), "{error}");
    let error = Layer::toml("node.id = 2020-01-01", "a.toml")
        .expect_err("a date")
        .to_string();
    assert!(error.contains("`node.id` from a.toml"), "{error}");
    let error = Layer::toml("\"node.id\" = 1\nnode.id = 1", "a.toml").expect_err("twice");
    assert!(error.to_string().contains("is set twice"), "{error}");
}

#[test]
fn arguments_must_be_pairs() {
    for arg in ["node.id", "=1", ""] {
        let error = Layer::flags([arg]).expect_err("no pair").to_string();
        assert!(error.contains("key=value"), "{error}");
    }
    let settings = settings(&["broker.rack=a=b"]).expect("sound");
    assert_eq!(settings.text("broker.rack"), Some("a=b"));
}

#[test]
fn kafkas_settings_without_meaning_are_accepted_and_told() {
    let flags = [
        "num.io.threads=8",
        "offsets.topic.replication.factor=3",
        "node.id=4",
    ];
    let settings = settings(&flags).expect("accepted");
    let told: Vec<_> = settings.without_effect().collect();
    let expected = [
        ("num.io.threads", "--set"),
        ("offsets.topic.replication.factor", "--set"),
    ];
    assert_eq!(told, expected);
    assert!(refused(&["num.io.threads=many"]).contains("`num.io.threads` = `many`"));
}

#[test]
fn a_secret_is_not_in_an_error() {
    let settings = settings(&["ssl.key.password=hunter2"]).expect("accepted");
    let told: Vec<_> = settings.without_effect().map(|(name, _)| name).collect();
    assert_eq!(told, ["ssl.key.password"]);
}

proptest! {
    #[test]
    fn any_text_ends_in_settings_or_an_error(text in "[a-z.=+\\-0-9\", \\[\\]\n]{0,80}") {
        config::fuzz(text.as_bytes());
    }

    #[test]
    fn any_bytes_end_in_settings_or_an_error(
        data in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        config::fuzz(&data);
    }

    #[test]
    fn likely_values_end_in_settings_or_an_error(
        name in 0_usize..38,
        value in "[-+]?[0-9]{1,20}|true|FALSE|delete ?, ?compact|\\*|0:1|[0-9]*\\.[0-9]{1,3}",
        op in "=|\\+=|-=",
    ) {
        let name = config::topic_defs()[name].name;
        config::fuzz(format!("{name}{op}{value}").as_bytes());
        config::fuzz(value.as_bytes());
    }
}
