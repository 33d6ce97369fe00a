//! Creating, altering and replacing configurations.

use tidemill_broker::config::{
    AlterError, AlterOp, Alteration, Scope, Settings, alter_broker, alter_topic, broker_def,
    new_topic, replace_broker, replace_topic,
};
use tidemill_wire::ErrorCode;

use crate::{Configs, configs, settings};

fn with_view<T>(run: impl FnOnce(&tidemill_broker::config::View<'_>) -> T) -> T {
    let settings: Settings = settings(&[]).expect("defaults");
    let none = Configs::new();
    run(&settings.with(&none, &none))
}

fn create(pairs: &[(&str, Option<&str>)]) -> Result<Configs, AlterError> {
    with_view(|view| new_topic(pairs.iter().copied(), view))
}

fn change<'a>(name: &'a str, op: AlterOp, value: Option<&'a str>) -> Alteration<'a> {
    Alteration { name, op, value }
}

fn alter(current: &Configs, changes: &[Alteration<'_>]) -> Result<Configs, AlterError> {
    with_view(|view| alter_topic(current, changes, view))
}

#[test]
fn topics_take_what_tools_for_clusters_send() {
    let pairs = [
        ("min.insync.replicas", "2"),
        ("flush.messages", "1"),
        ("flush.ms", "1000"),
        ("unclean.leader.election.enable", "true"),
        ("leader.replication.throttled.replicas", "0:1"),
        ("retention.ms", " 60000 "),
        ("cleanup.policy", " delete "),
    ];
    let stored = create(&pairs.map(|(name, value)| (name, Some(value)))).expect("taken");
    assert_eq!(stored.len(), pairs.len());
    assert_eq!(stored["retention.ms"], "60000");
    assert_eq!(stored["cleanup.policy"], "delete");
    assert_eq!(create(&[("retention.ms", None)]), Ok(Configs::new()));
}

#[test]
fn topics_refuse_what_kafka_refuses_naming_key_and_value() {
    for (name, value) in [
        ("max.compaction.lag.ms", "0"),
        ("cleanup.policy", "Compact"),
        ("segment.bytes", "10"),
        ("compression.type", "ZSTD"),
        ("retention.ms", "-2"),
        // Until compaction is served.
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("remote.storage.enable", "true"),
        ("tidemill.latency", "LOW"),
    ] {
        let error = create(&[(name, Some(value))]).expect_err(name);
        assert_eq!(error.code, ErrorCode::INVALID_CONFIG, "{error}");
        assert!(
            error.message.contains(&format!("`{name}` = `{value}`")),
            "{error}"
        );
    }
    let error = create(&[("retention.msx", Some("1"))]).expect_err("unknown");
    assert_eq!(error.code, ErrorCode::INVALID_CONFIG);
    assert_eq!(
        error.message,
        "`retention.msx`: unknown setting, did you mean `retention.ms`?"
    );
    let error = create(&[
        ("min.compaction.lag.ms", Some("10")),
        ("max.compaction.lag.ms", Some("5")),
    ]);
    assert_eq!(
        error.expect_err("contradiction").code,
        ErrorCode::INVALID_CONFIG
    );
    let error = create(&[("retention.ms", Some("1")), ("retention.ms", Some("2"))]);
    assert_eq!(error.expect_err("twice").code, ErrorCode::INVALID_REQUEST);
}

#[test]
fn setting_to_the_default_counts_as_set_and_deleting_takes_it_back() {
    let none = Configs::new();
    let set = [change("retention.ms", AlterOp::Set, Some("604800000"))];
    let stored = alter(&none, &set).expect("set");
    assert_eq!(stored, configs(&[("retention.ms", "604800000")]));
    let delete = [change("retention.ms", AlterOp::Delete, None)];
    assert_eq!(alter(&stored, &delete), Ok(Configs::new()));
    assert_eq!(alter(&none, &delete), Ok(Configs::new()));
    assert_eq!(
        alter(&none, &[change("unheard.of", AlterOp::Delete, None)]),
        Ok(Configs::new())
    );
}

#[test]
fn lists_grow_from_their_default_and_shrink() {
    let name = "leader.replication.throttled.replicas";
    let none = Configs::new();
    let append = [change(name, AlterOp::Append, Some("0:1,1:2"))];
    let stored = alter(&none, &append).expect("appended");
    assert_eq!(stored[name], "0:1,1:2");
    let again = [change(name, AlterOp::Append, Some("1:2, 2:3"))];
    let stored = alter(&stored, &again).expect("appended");
    assert_eq!(stored[name], "0:1,1:2,2:3");
    let less = [change(name, AlterOp::Subtract, Some("0:1,2:3,9:9"))];
    assert_eq!(alter(&stored, &less).expect("subtracted")[name], "1:2");
    let policy = [change("cleanup.policy", AlterOp::Append, Some("delete"))];
    assert_eq!(
        alter(&none, &policy).expect("appended")["cleanup.policy"],
        "delete"
    );
    let policy = [change("cleanup.policy", AlterOp::Append, Some("compact"))];
    let error = alter(&none, &policy).expect_err("compaction");
    assert_eq!(error.code, ErrorCode::INVALID_CONFIG);
    let policy = [change("cleanup.policy", AlterOp::Subtract, Some("delete"))];
    assert_eq!(
        alter(&none, &policy).expect("subtracted")["cleanup.policy"],
        ""
    );
}

#[test]
fn only_lists_take_append_and_subtract() {
    let none = Configs::new();
    for op in [AlterOp::Append, AlterOp::Subtract] {
        let error = alter(&none, &[change("retention.ms", op, Some("5"))]).expect_err("no list");
        assert_eq!(error.code, ErrorCode::INVALID_CONFIG);
        assert!(error.message.contains("retention.ms"), "{error}");
    }
}

#[test]
fn one_bad_key_changes_nothing() {
    let current = configs(&[("retention.ms", "5")]);
    let changes = [
        change("retention.ms", AlterOp::Set, Some("6")),
        change("segment.bytes", AlterOp::Set, Some("10")),
    ];
    let error = alter(&current, &changes).expect_err("bad");
    assert_eq!(error.code, ErrorCode::INVALID_CONFIG);
    assert_eq!(current, configs(&[("retention.ms", "5")]));
}

#[test]
fn a_key_twice_or_without_value_is_a_bad_request() {
    let none = Configs::new();
    let twice = [
        change("retention.ms", AlterOp::Set, Some("5")),
        change("retention.ms", AlterOp::Delete, None),
    ];
    assert_eq!(
        alter(&none, &twice).expect_err("twice").code,
        ErrorCode::INVALID_REQUEST
    );
    let null = [change("retention.ms", AlterOp::Set, None)];
    assert_eq!(
        alter(&none, &null).expect_err("null").code,
        ErrorCode::INVALID_REQUEST
    );
}

#[test]
fn replacing_drops_what_is_not_named() {
    let replaced = with_view(|view| replace_topic([("retention.ms", Some("7"))], view));
    assert_eq!(replaced, Ok(configs(&[("retention.ms", "7")])));
    let null = with_view(|view| replace_topic([("retention.ms", None)], view));
    assert_eq!(null.expect_err("null").code, ErrorCode::INVALID_REQUEST);
    assert_eq!(
        with_view(|view| replace_topic([], view)),
        Ok(Configs::new())
    );
}

#[test]
fn operations_have_kafkas_codes() {
    let ops = [
        AlterOp::Set,
        AlterOp::Delete,
        AlterOp::Append,
        AlterOp::Subtract,
    ];
    for (op, code) in ops.into_iter().zip(0..) {
        assert_eq!(AlterOp::from_code(code), Some(op));
    }
    assert_eq!(AlterOp::from_code(4), None);
    assert_eq!(AlterOp::from_code(-1), None);
}

#[test]
fn brokers_take_live_settings_only() {
    let none = Configs::new();
    let broker = |changes: &[Alteration<'_>]| {
        with_view(|view| alter_broker(Scope::Any, &none, changes, view))
    };
    let set = |name, value| change(name, AlterOp::Set, Some(value));
    let stored = broker(&[set("message.max.bytes", " 2000 ")]).expect("live");
    assert_eq!(stored, configs(&[("message.max.bytes", "2000")]));
    for (name, value) in [
        ("listeners", "127.0.0.1:1"),
        ("node.id", "3"),
        ("broker.heartbeat.interval.ms", "3"),
        ("num.io.threads", "x"),
        ("sasl.kerberos.min.time.before.relogin", "3"),
        ("message.maxbytes", "3"),
        ("message.max.bytes", "x"),
        ("log.cleanup.policy", "compact"),
    ] {
        let error = broker(&[set(name, value)]).expect_err(name);
        assert_eq!(error.code, ErrorCode::INVALID_REQUEST, "{error}");
        assert!(error.message.contains(name), "{error}");
    }
    let delete = [change("message.max.bytes", AlterOp::Delete, None)];
    let gone = with_view(|view| alter_broker(Scope::Any, &stored, &delete, view));
    assert_eq!(gone, Ok(Configs::new()));
    assert_eq!(
        replace_broker(Scope::Any, [("message.max.bytes", Some("9"))]),
        Ok(configs(&[("message.max.bytes", "9")]))
    );
    let error = replace_broker(Scope::Any, [("message.max.bytes", None)]).expect_err("null");
    assert_eq!(error.code, ErrorCode::INVALID_REQUEST);
}

/// A setting without meaning is altered as in Kafka: for one broker, or for all, and kept.
#[test]
fn settings_without_meaning_are_taken_where_kafka_takes_them() {
    let set = |scope, name| {
        let value = match name {
            "listeners" => "127.0.0.1:1",
            "log.cleanup.policy" => "delete",
            _ => broker_def(name).and_then(|def| def.default).unwrap_or("1"),
        };
        let change = [change(name, AlterOp::Set, Some(value))];
        with_view(|view| alter_broker(scope, &Configs::new(), &change, view).is_ok())
    };
    let rows = include_str!("kafka44-dynamic.txt").lines();
    for row in rows.filter(|row| !row.starts_with('#')) {
        let (name, scope) = row.split_once(' ').expect("name and scope");
        // What is taken at start here; and secrets without use are not stored.
        let ours = match name {
            "listeners" | "listener.security.protocol.map" | "max.connections" => "listener",
            "producer.id.expiration.ms" | "sasl.jaas.config" => "listener",
            _ => scope,
        };
        let taken = (set(Scope::One, name), set(Scope::Any, name));
        let wanted = (ours != "listener", ours == "any");
        assert_eq!(taken, wanted, "{row}");
    }
    let error = with_view(|view| {
        let change = [change("nonsense", AlterOp::Set, Some("1"))];
        alter_broker(Scope::One, &Configs::new(), &change, view)
    });
    let error = error.expect_err("known to nobody");
    assert_eq!(error.code, ErrorCode::INVALID_REQUEST);
}
