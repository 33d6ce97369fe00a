//! What DescribeConfigs shows.

use tidemill_broker::config::{
    ConfigSource, DescribedConfig, describe_broker, describe_default_broker, describe_topic,
};

use crate::{Configs, configs, settings};

fn find(all: &[DescribedConfig], name: &str) -> DescribedConfig {
    all.iter()
        .find(|config| config.name == name)
        .expect("a setting of this name")
        .clone()
}

fn synonyms(config: &DescribedConfig) -> Vec<(&str, Option<&str>, i8)> {
    let synonyms = config.synonyms.iter();
    synonyms
        .map(|s| (s.name, s.value.as_deref(), s.source.code()))
        .collect()
}

fn topic(flags: &[&str], own: &[(&str, &str)], name: &str) -> DescribedConfig {
    let settings = settings(flags).expect("sound");
    let none = Configs::new();
    find(
        &describe_topic(&configs(own), &settings.with(&none, &none)),
        name,
    )
}

#[test]
fn a_topics_default_stands_on_the_brokers() {
    let config = topic(&[], &[], "max.message.bytes");
    assert_eq!(config.value.as_deref(), Some("1048588"));
    assert_eq!(config.source, ConfigSource::Default);
    assert_eq!(
        synonyms(&config),
        [("message.max.bytes", Some("1048588"), 5)]
    );
    assert_eq!(config.kind.code(), 3);
    assert!(!config.read_only && !config.sensitive);

    // Kafka shows none here: the default stands in hours.
    let config = topic(&[], &[], "retention.ms");
    assert_eq!(config.value.as_deref(), Some("604800000"));
    assert_eq!(config.source, ConfigSource::Default);
    assert_eq!(synonyms(&config), []);
}

#[test]
fn a_value_equal_to_the_default_is_still_set() {
    let config = topic(&[], &[("cleanup.policy", "delete")], "cleanup.policy");
    assert_eq!(config.source, ConfigSource::DynamicTopic);
    let expected = [
        ("cleanup.policy", Some("delete"), 1),
        ("log.cleanup.policy", Some("delete"), 5),
    ];
    assert_eq!(synonyms(&config), expected);
    assert_eq!(config.kind.code(), 7);
}

#[test]
fn the_brokers_own_settings_show_through() {
    let config = topic(&["log.retention.hours=2"], &[], "retention.ms");
    assert_eq!(config.value.as_deref(), Some("7200000"));
    assert_eq!(config.source, ConfigSource::StaticBroker);
    let expected = [
        ("log.retention.hours", Some("2"), 4),
        ("log.retention.hours", Some("168"), 5),
    ];
    assert_eq!(synonyms(&config), expected);

    let settings = settings(&["message.max.bytes=1"]).expect("sound");
    let (all, one) = (
        configs(&[("message.max.bytes", "2")]),
        configs(&[("message.max.bytes", "3")]),
    );
    let own = configs(&[("max.message.bytes", "4")]);
    let config = find(
        &describe_topic(&own, &settings.with(&all, &one)),
        "max.message.bytes",
    );
    let sources: Vec<_> = synonyms(&config).into_iter().map(|s| (s.1, s.2)).collect();
    let expected = [
        (Some("4"), 1),
        (Some("3"), 2),
        (Some("2"), 3),
        (Some("1"), 4),
        (Some("1048588"), 5),
    ];
    assert_eq!(sources, expected);
    assert_eq!(config.value.as_deref(), Some("4"));
}

#[test]
fn a_topic_shows_every_setting_with_value_and_documentation() {
    let settings = settings(&[]).expect("sound");
    let none = Configs::new();
    let all = describe_topic(&none, &settings.with(&none, &none));
    assert_eq!(all.len(), 38);
    assert!(
        all.iter()
            .all(|config| config.value.is_some() && !config.documentation.is_empty())
    );
    assert_eq!(find(&all, "tidemill.latency").value.as_deref(), Some("low"));
}

#[test]
fn a_broker_shows_what_is_set_where() {
    let flags = [
        "message.max.bytes=1",
        "num.io.threads=5",
        "ssl.key.password=secret",
    ];
    let settings = settings(&flags).expect("sound");
    let (all, one) = (configs(&[("message.max.bytes", "2")]), Configs::new());
    let shown = describe_broker(&settings.with(&all, &one));

    let size = find(&shown, "message.max.bytes");
    assert_eq!((size.value.as_deref(), size.source.code()), (Some("2"), 3));
    assert!(!size.read_only);
    assert_eq!(synonyms(&size).len(), 3);

    let threads = find(&shown, "num.io.threads");
    assert_eq!(
        (threads.value.as_deref(), threads.source.code()),
        (Some("5"), 4)
    );
    assert!(
        !threads.read_only,
        "without effect, but Kafka lets it be changed"
    );
    assert!(find(&shown, "broker.heartbeat.interval.ms").read_only);

    let secret = find(&shown, "ssl.key.password");
    assert!(secret.sensitive && secret.read_only);
    assert_eq!(secret.value, None);
    assert!(
        secret
            .synonyms
            .iter()
            .all(|synonym| synonym.value.is_none())
    );

    let node = find(&shown, "node.id");
    assert_eq!((node.value.as_deref(), node.source.code()), (Some("1"), 5));
    assert!(node.read_only);
    assert_eq!(
        find(&shown, "tidemill.memory.bytes").value.as_deref(),
        Some("2147483648")
    );
    assert!(
        shown
            .iter()
            .all(|config| config.name != "unstable.api.versions.enable")
    );
}

#[test]
fn the_nameless_broker_shows_what_is_set_for_all() {
    let settings = settings(&["message.max.bytes=1"]).expect("sound");
    let (all, one) = (
        configs(&[("message.max.bytes", "2")]),
        configs(&[("message.max.bytes", "3")]),
    );
    let shown = describe_default_broker(&settings.with(&all, &one));
    assert_eq!(shown.len(), 1);
    assert_eq!(
        (shown[0].value.as_deref(), shown[0].source.code()),
        (Some("2"), 3)
    );
    assert_eq!(synonyms(&shown[0]), [("message.max.bytes", Some("2"), 3)]);
}
