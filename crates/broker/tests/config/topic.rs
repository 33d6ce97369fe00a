//! A topic's settings in force.

use tidemill_broker::config::{CleanupPolicy, TopicConfig};
use tidemill_log::Latency;
use tidemill_wire::batch::{BatchBuilder, Compression, NewRecord, TimestampType, validate};

use crate::{Configs, broker, configs};

fn topic(flags: &[&str], own: &[(&str, &str)]) -> TopicConfig {
    let none = Configs::new();
    broker(flags)
        .expect("sound settings")
        .topic(&configs(own), &none, &none)
}

#[test]
fn defaults_are_kafkas() {
    let config = topic(&[], &[]);
    assert_eq!(
        config.cleanup,
        CleanupPolicy {
            delete: true,
            compact: false
        }
    );
    assert_eq!(config.compression, None);
    assert_eq!(config.retention_ms, 604_800_000);
    assert_eq!(config.retention_bytes, -1);
    assert_eq!(config.max_message_bytes, 1_048_588);
    assert_eq!(config.segment_bytes, 1 << 30);
    let options = config.validate_options();
    assert_eq!(options.timestamp_type, TimestampType::CreateTime);
    assert_eq!(options.timestamp_after_max_ms, 3_600_000);
    assert_eq!(options.timestamp_before_max_ms, i64::MAX);
    assert_eq!(options.max_inflated_bytes, 128 << 20);
    assert!(!options.key_required);
    assert_eq!(config.latency, Latency::Low);
}

#[test]
fn a_topics_own_settings_win() {
    let flags = ["message.max.bytes=5000", "log.retention.ms=1000"];
    assert_eq!(topic(&flags, &[]).max_message_bytes, 5000);
    let own = [
        ("max.message.bytes", "6000"),
        ("tidemill.latency", "economy"),
    ];
    let config = topic(&flags, &own);
    assert_eq!(config.max_message_bytes, 6000);
    assert_eq!(config.retention_ms, 1000);
    assert_eq!(config.latency, Latency::Economy);
    let own = [
        ("message.timestamp.type", "LogAppendTime"),
        ("cleanup.policy", "compact"),
    ];
    let config = topic(&[], &own);
    assert_eq!(config.timestamp_type, TimestampType::LogAppendTime);
    assert!(config.validate_options().key_required);
}

#[test]
fn dynamic_broker_settings_stand_between() {
    let config = broker(&["message.max.bytes=5000"]).expect("sound");
    let all = configs(&[("message.max.bytes", "6000"), ("log.retention.ms", "1")]);
    let one = configs(&[("message.max.bytes", "7000")]);
    let none = Configs::new();
    let size = |all: &Configs, one: &Configs| config.topic(&none, all, one).max_message_bytes;
    assert_eq!(size(&none, &none), 5000);
    assert_eq!(size(&all, &none), 6000);
    assert_eq!(size(&all, &one), 7000);
    assert_eq!(config.topic(&none, &all, &one).retention_ms, 1);
}

#[test]
fn retention_is_inherited_in_any_unit() {
    let ms = |flags: &[&str]| topic(flags, &[]).retention_ms;
    assert_eq!(ms(&["log.retention.hours=2"]), 7_200_000);
    assert_eq!(
        ms(&["log.retention.minutes=3", "log.retention.hours=2"]),
        180_000
    );
    assert_eq!(ms(&["log.retention.ms=4", "log.retention.minutes=3"]), 4);
    assert_eq!(ms(&["log.retention.hours=-1"]), -1);
    assert_eq!(
        ms(&["log.retention.hours=2147483647"]),
        2_147_483_647 * 3_600_000
    );
}

#[test]
fn codecs_have_their_levels() {
    let codec = |own: &[(&str, &str)]| {
        let config = topic(&[], own);
        (config.compression, config.compression_level)
    };
    assert_eq!(
        codec(&[("compression.type", "gzip")]),
        (Some(Compression::Gzip), None)
    );
    let gzip = [
        ("compression.type", "gzip"),
        ("compression.gzip.level", "9"),
    ];
    assert_eq!(codec(&gzip), (Some(Compression::Gzip), Some(9)));
    let zstd = [
        ("compression.type", "zstd"),
        ("compression.zstd.level", "-1"),
    ];
    assert_eq!(codec(&zstd), (Some(Compression::Zstd), Some(-1)));
    assert_eq!(
        codec(&[("compression.type", "uncompressed")]),
        (Some(Compression::None), None)
    );
    assert_eq!(codec(&[("compression.type", "producer")]), (None, None));
}

#[test]
fn batches_are_stored_in_the_topics_codec() {
    let mut builder = BatchBuilder::new(Compression::Lz4);
    builder
        .push(&NewRecord::key_value(b"k", &[7; 5000]))
        .expect("fits");
    let config = topic(&[], &[]);
    let sent = validate(builder.build().expect("fits"), &config.validate_options());
    let sent = sent.expect("valid");
    assert_eq!(config.stored(sent.clone()), Ok(sent.clone()), "as it came");
    let stored = topic(&[], &[("compression.type", "zstd")])
        .stored(sent.clone())
        .expect("fits");
    assert_eq!(
        stored.header.attributes.compression(),
        Some(Compression::Zstd)
    );
    let own = [
        ("compression.type", "uncompressed"),
        ("max.message.bytes", "5000"),
    ];
    let error = topic(&[], &own).stored(sent).expect_err("too large");
    assert_eq!(error.kafka_code(), 10);
}

#[test]
fn internal_topics_may_be_compacted() {
    let config = broker(&[]).expect("sound");
    let mut own = configs(&[("cleanup.policy", " compact"), ("retention.ms", " 5 ")]);
    config
        .check_topic_configs("__consumer_offsets", &mut own)
        .expect("internal");
    assert_eq!(
        own,
        configs(&[("cleanup.policy", "compact"), ("retention.ms", "5")])
    );
    config
        .check_topic_configs("orders", &mut own)
        .expect_err("not yet");
}

#[test]
fn only_delete_drops_by_age_and_size() {
    let own = [("retention.ms", "5"), ("retention.bytes", "6")];
    let partition = topic(&[], &own).partition();
    assert_eq!((partition.retention_ms, partition.retention_bytes), (5, 6));
    for policy in ["", "compact"] {
        let own = [
            ("retention.ms", "5"),
            ("retention.bytes", "6"),
            ("cleanup.policy", policy),
        ];
        let partition = topic(&[], &own).partition();
        assert_eq!(
            (partition.retention_ms, partition.retention_bytes),
            (-1, -1)
        );
    }
    let own = [
        ("retention.bytes", "-9"),
        ("cleanup.policy", "compact,delete"),
    ];
    assert_eq!(topic(&[], &own).partition().retention_bytes, -1);
}

#[test]
fn stored_values_that_are_not_understood_count_as_not_set() {
    let own = [("retention.ms", "new syntax"), ("from.the.future", "1")];
    assert_eq!(topic(&[], &own).retention_ms, 604_800_000);
    let config = broker(&["message.max.bytes=5000"]).expect("sound");
    let bad = configs(&[("message.max.bytes", "?"), ("num.partitions", "9")]);
    let none = Configs::new();
    assert_eq!(config.topic(&none, &bad, &bad).max_message_bytes, 5000);
}
