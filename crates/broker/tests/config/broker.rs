//! The broker's typed settings: listeners, ids, memory.

use std::time::Duration;

use tidemill_broker::config::{BrokerConfig, Host, Settings};
use tidemill_broker::net::NetLimits;
use tidemill_log::Latency;
use tidemill_store::LocalSync;
use tidemill_wire::ids::NodeId;

use crate::{broker, refused};

fn addresses(flags: &[&str]) -> Vec<(String, String)> {
    let config = broker(flags).expect("sound settings");
    let pairs = config.listeners.iter().map(|(listener, told)| {
        (
            listener.bind_address(),
            format!("{}://{}:{}", told.name, told.host, told.port),
        )
    });
    pairs.collect()
}

fn pair(bind: &str, told: &str) -> (String, String) {
    (bind.to_owned(), told.to_owned())
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let config = BrokerConfig::default();
    assert_eq!(config.node_id, NodeId(1));
    assert_eq!(config.data_location, "file:./tidemill-data");
    let listener = pair("127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092");
    assert_eq!(addresses(&[]), [listener]);
    let admin = config.admin_listen.map(|address| address.to_string());
    assert_eq!(admin.as_deref(), Some("127.0.0.1:9644"));
    assert_eq!(config.local_sync, LocalSync::Always);
    assert_eq!(config.roll_bytes, 256 << 20);
    assert_eq!(config.roll_interval, Duration::from_secs(600));
    assert_eq!(config.shutdown_timeout, Duration::from_secs(30));
    assert_eq!(config.start_timeout, Duration::from_secs(60));
    assert_eq!(config.groups.initial_rebalance_delay_ms, 3000);
    assert_eq!(
        config.groups.offsets_retention,
        Duration::from_secs(7 * 24 * 3600)
    );
    assert!(config.auto_create_topics);
    assert_eq!(config.send_buffer_bytes, Some(100 << 10));
    assert_eq!(config.receive_buffer_bytes, None, "the system's own");
    let limits = NetLimits::from(&config);
    assert_eq!(limits.request_max_bytes, 100 << 20);
    assert_eq!(limits.idle_max, Duration::from_secs(600));
    assert_eq!(config.exposed().count(), 0);
}

#[test]
fn memory_is_a_quarter_of_the_hosts_and_at_most_four_gibibytes() {
    let with = |gib: u64, flags: &[&str]| {
        let flags = tidemill_broker::config::Layer::flags(flags.iter().copied()).expect("pairs");
        let settings = Settings::new(
            &[flags],
            Host {
                memory_bytes: gib << 30,
            },
        );
        BrokerConfig::new(settings.expect("sound")).expect("sound")
    };
    assert_eq!(with(8, &[]).memory_bytes, 2 << 30);
    assert_eq!(with(64, &[]).memory_bytes, 4 << 30);
    assert_eq!(with(0, &[]).memory_bytes, 16 << 20);
    let set = with(8, &["tidemill.memory.bytes=1073741824"]);
    assert_eq!(set.memory_bytes, 1 << 30);
    assert_eq!(set.pending_bytes, 1 << 27);
    // What is older is a read of the disk away.
    assert_eq!(set.tail_cache_bytes, 384 << 20);
    assert_eq!(set.block_cache_bytes, 128 << 20);
    assert_eq!(set.log_limits().pending_bytes_max, 1 << 27);
    let bucket = with(8, &["tidemill.data=s3://b"]);
    assert_eq!(bucket.tail_cache_bytes, 7 << 27);
    assert_eq!(bucket.block_cache_bytes, 1 << 29);
    assert_eq!(bucket.request_memory_bytes, 1 << 27);
    let rolls = bucket.memory_bytes / 8;
    let shares =
        bucket.tail_cache_bytes + bucket.block_cache_bytes + bucket.request_memory_bytes as u64;
    let all = shares + bucket.pending_bytes + rolls;
    assert_eq!(all, bucket.memory_bytes, "all together");
    let requests = with(8, &["queued.max.request.bytes=1000000"]);
    assert_eq!(requests.request_memory_bytes, 1_000_000);
    assert_eq!(NetLimits::from(&requests).request_memory_bytes, 1_000_000);
    let roll = with(64, &[]).log_limits().roll;
    assert_eq!(
        (roll.segment_bytes_max, roll.set_bytes_max),
        (64 << 20, 128 << 20)
    );
    let roll = with(2, &[]).log_limits().roll;
    assert_eq!(
        (roll.segment_bytes_max, roll.set_bytes_max),
        (16 << 20, 16 << 20)
    );
    // Below this a segment would be no longer than what is worth one.
    let roll = with(0, &[]).log_limits().roll;
    assert_eq!(
        (roll.segment_bytes_max, roll.set_bytes_max),
        (8 << 20, 8 << 20)
    );
    let own = with(8, &["tidemill.pending.bytes=2097152"]);
    assert_eq!(own.pending_bytes, 2 << 20);
}

#[test]
fn the_latency_class_follows_the_store() {
    let class = |flags: &[&str]| broker(flags).expect("sound").latency;
    assert_eq!(class(&[]), Latency::Low);
    assert_eq!(class(&["tidemill.data=memory:"]), Latency::Low);
    for bucket in ["s3://b/p", "gs://b", "az://c/p"] {
        assert_eq!(
            class(&[&format!("tidemill.data={bucket}")]),
            Latency::Balanced
        );
    }
    assert_eq!(
        class(&["tidemill.data=s3://b", "tidemill.latency=economy"]),
        Latency::Economy
    );
    assert!(refused(&["tidemill.latency=fast"]).contains("low, balanced, economy"));
}

#[test]
fn k93_listening_everywhere_needs_an_address_for_clients() {
    for all in ["0.0.0.0:9092", "[::]:9092", ":9092", "PLAINTEXT://:9092"] {
        let error = refused(&[&format!("listeners={all}")]);
        assert!(error.contains("`advertised.listeners` must say"), "{error}");
        assert!(
            error.contains("PLAINTEXT://broker.example.org:9092"),
            "{error}"
        );
    }
    let told = "advertised.listeners=PLAINTEXT://kafka.example.org:19092";
    assert_eq!(
        addresses(&["listeners=:9092", told]),
        [pair("0.0.0.0:9092", "PLAINTEXT://kafka.example.org:19092")]
    );
    assert_eq!(
        broker(&["listeners=:9092", told])
            .expect("sound")
            .exposed()
            .count(),
        1
    );
}

#[test]
fn clients_are_never_told_a_wildcard() {
    for told in ["0.0.0.0:9092", "[::]:9092", ":9092"] {
        let told = format!("advertised.listeners={told}");
        let error = refused(&["listeners=0.0.0.0:9092", &told]);
        assert!(error.contains("clients cannot connect to"), "{error}");
    }
    let error = refused(&["advertised.listeners=PLAINTEXT://a:0"]);
    assert!(error.contains("port 0"), "{error}");
    let error = refused(&["advertised.listeners=OTHER://a:1"]);
    assert!(error.contains("no listener `OTHER`"), "{error}");
}

#[test]
fn k57_localhost_is_told_as_an_address() {
    assert_eq!(
        addresses(&["listeners=localhost:9092"]),
        [pair("localhost:9092", "PLAINTEXT://127.0.0.1:9092")]
    );
    assert_eq!(
        addresses(&["listeners=[::1]:9092"]),
        [pair("[::1]:9092", "PLAINTEXT://::1:9092")]
    );
    assert_eq!(
        addresses(&["listeners=127.0.0.1:0"]),
        [pair("127.0.0.1:0", "PLAINTEXT://127.0.0.1:0")]
    );
}

#[test]
fn listeners_have_names_of_their_own_and_one_protocol() {
    let map = "listener.security.protocol.map=INTERNAL:PLAINTEXT,external:plaintext";
    let listeners = "listeners=internal://127.0.0.1:9092,EXTERNAL://127.0.0.1:9093";
    assert_eq!(
        addresses(&[map, listeners]),
        [
            pair("127.0.0.1:9092", "INTERNAL://127.0.0.1:9092"),
            pair("127.0.0.1:9093", "EXTERNAL://127.0.0.1:9093"),
        ]
    );
    for protocol in ["SSL", "SASL_PLAINTEXT", "SASL_SSL"] {
        let error = refused(&[&format!("listeners={protocol}://127.0.0.1:9092")]);
        let expected = format!("{protocol} is not served yet, only PLAINTEXT is");
        assert!(error.contains(&expected), "{error}");
    }
    let error = refused(&["listeners=CONTROLLER://127.0.0.1:9093"]);
    assert!(error.contains("listener.security.protocol.map"), "{error}");
    let error = refused(&["listener.security.protocol.map=A:TLS"]);
    assert!(error.contains("unknown protocol `TLS`"), "{error}");
}

#[test]
fn misspelt_listeners_are_refused() {
    for bad in [
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:x",
        "::1:9092",
        "[::1:9092",
        "[x]:9092",
        "://a:1",
        "A B://a:1",
        "http://a/b:1",
        "",
        "a:1,a:1",
        "PLAINTEXT://a:1,PLAINTEXT://b:2",
    ] {
        let error = refused(&[&format!("listeners={bad}")]);
        assert!(error.starts_with("`listeners` = "), "{error}");
        assert!(error.contains("from --set"), "{error}");
    }
}

#[test]
fn the_older_name_of_the_node_id_is_taken() {
    assert_eq!(broker(&["broker.id=7"]).expect("sound").node_id, NodeId(7));
    assert_eq!(
        broker(&["broker.id=7", "node.id=7"])
            .expect("sound")
            .node_id,
        NodeId(7)
    );
    let error = refused(&["broker.id=7", "node.id=8"]);
    assert!(error.contains("contradicts `node.id` = `8`"), "{error}");
}

#[test]
fn spans_may_be_without_end_and_never_overflow() {
    let long = broker(&["connections.max.idle.ms=-1"])
        .expect("sound")
        .idle_max;
    assert!(long > Duration::from_secs(10 * 365 * 24 * 3600));
    let longest = "tidemill.roll.interval.ms=9223372036854775807";
    assert_eq!(broker(&[longest]).expect("sound").roll_interval, long);
}

#[test]
fn the_admin_address_may_be_off_but_not_wrong() {
    assert_eq!(
        broker(&["tidemill.admin.listen="])
            .expect("sound")
            .admin_listen,
        None
    );
    let error = refused(&["tidemill.admin.listen=nowhere"]);
    assert!(
        error.contains("`tidemill.admin.listen` = `nowhere` from --set"),
        "{error}"
    );
    let port = broker(&["tidemill.admin.listen=localhost:0"])
        .expect("sound")
        .admin_listen;
    assert_eq!(port.map(|address| address.port()), Some(0));
}

#[test]
fn session_timeouts_must_leave_room() {
    let error = refused(&[
        "group.min.session.timeout.ms=9",
        "group.max.session.timeout.ms=8",
    ]);
    assert!(
        error.contains("exceeds `group.max.session.timeout.ms` = `8`"),
        "{error}"
    );
}
