//! Definitions against those of Kafka 4.4 (`ecosystem/vectors/ConfigDefs.java`).

use std::collections::BTreeSet;

use tidemill_broker::config::{
    ConfigDef, ConfigType, Role, broker_def, broker_defs, topic_def, topic_defs,
};

const KAFKA: &str = include_str!("kafka-4.4.txt");

/// Settings whose default differs from Kafka's, and why.
const OTHER_DEFAULTS: &[&str] = &[
    "listeners",                      // loopback unless asked for more
    "max.connections",                // Kafka's 2^31-1 is no limit
    "max.decompressed.message.bytes", // Kafka's 2 GiB is no limit
    "node.id",                        // 1 where Kafka has none
    "socket.receive.buffer.bytes",    // the system's: a small one costs a read for each 200 KB
];

fn rows(kind: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let rows = KAFKA
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter(move |row| row[0] == kind)
}

fn type_name(kind: ConfigType) -> &'static str {
    match kind {
        ConfigType::Boolean => "BOOLEAN",
        ConfigType::String => "STRING",
        ConfigType::Int => "INT",
        ConfigType::Short => "SHORT",
        ConfigType::Long => "LONG",
        ConfigType::Double => "DOUBLE",
        ConfigType::List => "LIST",
        ConfigType::Class => "CLASS",
        ConfigType::Password => "PASSWORD",
    }
}

fn compare(row: &[&str], def: &ConfigDef) {
    assert_eq!(type_name(def.kind), row[2], "type of {}", def.name);
    if !OTHER_DEFAULTS.contains(&def.name) {
        assert_eq!(
            def.default.unwrap_or("(none)"),
            row[3],
            "default of {}",
            def.name
        );
    }
}

#[test]
fn every_broker_setting_of_kafka_is_known() {
    let mut count = 0;
    for row in rows("broker") {
        let def = broker_def(row[1]);
        compare(
            &row,
            def.unwrap_or_else(|| panic!("unknown setting {}", row[1])),
        );
        count += 1;
    }
    assert!(count > 350, "{count} settings");
}

#[test]
fn every_topic_setting_of_kafka_is_known_but_its_internal_one() {
    for row in rows("topic") {
        match topic_def(row[1]) {
            Some(def) => compare(&row, def),
            None => assert_eq!(row[1], "internal.segment.bytes"),
        }
    }
    assert_eq!(
        topic_defs().len(),
        rows("topic").count(),
        "ours instead of the internal one"
    );
}

#[test]
fn topics_inherit_from_the_settings_that_kafka_names() {
    for row in rows("synonym") {
        let def = topic_def(row[1]).expect("a topic setting");
        let names: Vec<_> = def.synonyms.iter().map(|synonym| synonym.name).collect();
        assert_eq!(names.join(","), row[2], "{}", row[1]);
        for name in names {
            assert!(broker_def(name).is_some(), "{name}");
        }
    }
}

#[test]
fn names_are_unique_and_defaults_are_values() {
    for defs in [
        topic_defs().iter().collect::<Vec<_>>(),
        broker_defs().collect(),
    ] {
        let names: BTreeSet<_> = defs.iter().map(|def| def.name).collect();
        assert_eq!(names.len(), defs.len());
        for def in defs {
            assert!(def.doc.len() > 10, "{}", def.name);
            assert!(def.doc.ends_with('.'), "{}", def.name);
            if let Some(default) = def.default {
                let value = def.parse(default).expect(def.name).to_string();
                assert_eq!(value, default, "the default of {} is canonical", def.name);
            }
            assert!(def.role == Role::Topic || def.synonyms.is_empty());
        }
    }
    assert!(topic_defs().iter().all(|def| def.default.is_some()));
}

/// What Kafka 4.4's own definitions take, asked one by one: name, value, how it is stored.
const TAKEN: &[(&str, &str, &str)] = &[
    ("cleanup.policy", " delete , compact ", "delete,compact"),
    ("cleanup.policy", "", ""),
    ("cleanup.policy", " ", ""),
    ("retention.ms", " 5 ", "5"),
    ("retention.ms", "+5", "5"),
    ("retention.ms", "-1", "-1"),
    ("retention.ms", "9223372036854775807", "9223372036854775807"),
    ("retention.bytes", "-2", "-2"),
    ("segment.bytes", " 1048576 ", "1048576"),
    ("compression.type", " gzip ", "gzip"),
    ("compression.gzip.level", "-1", "-1"),
    ("preallocate", " True ", "true"),
    ("preallocate", "FALSE", "false"),
    ("min.cleanable.dirty.ratio", ".5", "0.5"),
    ("min.cleanable.dirty.ratio", "1", "1.0"),
    ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
    ("leader.replication.throttled.replicas", "*", "*"),
    (
        "leader.replication.throttled.replicas",
        "0:1, 1:2",
        "0:1,1:2",
    ),
    ("min.insync.replicas", "2", "2"),
    ("max.message.bytes", "0", "0"),
];

/// What they refuse.
const REFUSED: &[(&str, &str)] = &[
    ("cleanup.policy", "Compact"),
    ("cleanup.policy", "delete,"),
    ("cleanup.policy", "none"),
    ("retention.ms", "-2"),
    ("retention.ms", "0x10"),
    ("retention.ms", ""),
    ("retention.ms", "1e3"),
    ("retention.ms", "1.0"),
    ("retention.ms", "9223372036854775808"),
    ("retention.ms", "5L"),
    ("segment.bytes", "10"),
    ("segment.bytes", "1048575"),
    ("segment.bytes", "2147483648"),
    ("compression.type", "ZSTD"),
    ("compression.type", "none"),
    ("compression.type", ""),
    ("compression.gzip.level", "0"),
    ("compression.gzip.level", "10"),
    ("preallocate", "yes"),
    ("preallocate", "1"),
    ("min.cleanable.dirty.ratio", "1.1"),
    ("min.cleanable.dirty.ratio", "Infinity"),
    ("min.cleanable.dirty.ratio", "NaN"),
    ("leader.replication.throttled.replicas", "none"),
    ("message.timestamp.type", "createtime"),
    ("max.compaction.lag.ms", "0"),
    ("min.insync.replicas", "0"),
    ("max.message.bytes", "-1"),
    ("segment.index.bytes", "3"),
    ("max.decompressed.message.bytes", "0"),
];

#[test]
fn values_are_taken_and_refused_as_by_kafka() {
    for (name, value, canonical) in TAKEN {
        let value = topic_def(name).expect("a topic setting").parse(value);
        assert_eq!(value.expect(name).to_string(), *canonical, "{name}");
    }
    for (name, value) in REFUSED {
        let error = topic_def(name).expect("a topic setting").parse(value);
        let text = error.expect_err(name).to_string();
        assert!(
            text.contains(name) && text.contains(&format!("`{value}`")),
            "{text}"
        );
    }
}
