//! The broker settings that have a meaning here: Kafka's under Kafka's names, and ours.

use super::def::{ConfigDef, Role};
use super::value::Check::{
    self, Any, AtLeast, Fraction, ListOf, NotEmpty, OneOf, PositiveOrUnlimited, Within,
    WithinOrDefault,
};
use super::value::ConfigType::{self, Boolean, Double, Int, List, Long, String};

/// Values of `compression.type`.
pub(super) const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];
/// Values of `message.timestamp.type`.
pub(super) const TIMESTAMP_TYPES: &[&str] = &["CreateTime", "LogAppendTime"];
/// Values of `tidemill.latency`.
pub(super) const LATENCY_CLASSES: &[&str] = &["low", "balanced", "economy"];

type Shape = (ConfigType, Option<&'static str>, Check);

const fn def(name: &'static str, role: Role, shape: Shape, doc: &'static str) -> ConfigDef {
    let (kind, default, check) = shape;
    ConfigDef {
        name,
        kind,
        default,
        check,
        doc,
        synonyms: &[],
        role,
    }
}

/// A setting fixed at start.
const fn fixed(name: &'static str, shape: Shape, doc: &'static str) -> ConfigDef {
    def(name, Role::Fixed, shape, doc)
}

/// A setting that may be changed while the broker runs.
const fn live(name: &'static str, shape: Shape, doc: &'static str) -> ConfigDef {
    def(name, Role::Live, shape, doc)
}

const TOPIC_DEFAULT: &str = "The default of the topic setting of the same meaning.";

/// A live setting whose only use is to be a topic setting's default.
const fn default_of_topics(name: &'static str, shape: Shape) -> ConfigDef {
    live(name, shape, TOPIC_DEFAULT)
}

/// All of them, by name within each group.
pub(super) const OURS: &[ConfigDef] = &[
    // Who it is and where it listens.
    fixed(
        "advertised.listeners",
        (List, None, Any),
        "Addresses that clients are told, `NAME://host:port` for each listener. Needed when \
         one listens on all addresses.",
    ),
    fixed(
        "broker.id",
        (Int, Some("-1"), Any),
        "The older name of `node.id`; -1 leaves it to that.",
    ),
    fixed(
        "broker.rack",
        (String, None, Any),
        "The rack or zone that clients are told.",
    ),
    fixed(
        "cluster.id",
        (String, None, NotEmpty),
        "If set, the cluster's id must be this; the store's own decides what it is.",
    ),
    fixed(
        "listener.security.protocol.map",
        (
            String,
            Some("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"),
            Any,
        ),
        "The protocol of each listener name, `NAME:PROTOCOL`. Only PLAINTEXT is served yet.",
    ),
    fixed(
        "listeners",
        (List, Some("PLAINTEXT://127.0.0.1:9092"), Any),
        "Addresses to listen on, `NAME://host:port`. Port 0 takes a free one.",
    ),
    fixed(
        "node.id",
        (Int, Some("1"), AtLeast(0)),
        "The broker's id, as clients see it.",
    ),
    // Connections.
    fixed(
        "connections.max.idle.ms",
        (Long, Some("600000"), PositiveOrUnlimited),
        "After how long a connection without traffic is closed; -1 is never.",
    ),
    fixed(
        "max.connections",
        (Int, Some("20000"), AtLeast(1)),
        "Connections at once; further ones wait to be accepted.",
    ),
    fixed(
        "socket.receive.buffer.bytes",
        (Int, Some("-1"), PositiveOrUnlimited),
        "Bytes the system keeps of a connection's requests before they are read (SO_RCVBUF); -1 \
         leaves it to the system, which gives a busy one more.",
    ),
    fixed(
        "socket.send.buffer.bytes",
        (Int, Some("102400"), PositiveOrUnlimited),
        "Bytes the system takes of a connection's responses before they are read (SO_SNDBUF); -1 \
         leaves it to the system.",
    ),
    fixed(
        "queued.max.request.bytes",
        (Long, Some("-1"), AtLeast(-1)),
        "Memory for requests of more than 64 KiB as they come and until they are answered; one \
         may go beyond it. -1 is a sixteenth of `tidemill.memory.bytes`.",
    ),
    fixed(
        "socket.request.max.bytes",
        (Int, Some("104857600"), AtLeast(1)),
        "Longest request; a longer one closes its connection.",
    ),
    // Requests.
    fixed(
        "fetch.max.bytes",
        (Int, Some("57671680"), AtLeast(1024)),
        "Most bytes of a Fetch response, whatever the client asks for.",
    ),
    fixed(
        "max.incremental.fetch.session.cache.slots",
        (Int, Some("1000"), AtLeast(0)),
        "Fetch sessions kept at once.",
    ),
    fixed(
        "max.request.partition.size.limit",
        (Int, Some("2000"), AtLeast(1)),
        "Most partitions in one DescribeTopicPartitions response.",
    ),
    // Topics.
    fixed(
        "auto.create.topics.enable",
        (Boolean, Some("true"), Any),
        "Whether asking for a topic that does not exist creates it.",
    ),
    fixed(
        "default.replication.factor",
        (Int, Some("1"), Within(1, 32_767)),
        "The replication factor that topics report when none is asked for.",
    ),
    fixed(
        "delete.topic.enable",
        (Boolean, Some("true"), Any),
        "Whether topics can be deleted.",
    ),
    fixed(
        "log.retention.check.interval.ms",
        (Long, Some("300000"), AtLeast(1)),
        "How often retention looks for what may go.",
    ),
    fixed(
        "num.partitions",
        (Int, Some("1"), Within(1, 10_000)),
        "Partitions of a topic when none are asked for.",
    ),
    // Defaults of topic settings.
    default_of_topics(
        "compression.gzip.level",
        (Int, Some("-1"), WithinOrDefault(1, 9)),
    ),
    default_of_topics("compression.lz4.level", (Int, Some("9"), Within(1, 17))),
    default_of_topics(
        "compression.type",
        (String, Some("producer"), OneOf(CODECS)),
    ),
    default_of_topics(
        "compression.zstd.level",
        (Int, Some("3"), Within(-131_072, 22)),
    ),
    default_of_topics(
        "log.cleaner.delete.retention.ms",
        (Long, Some("86400000"), AtLeast(0)),
    ),
    default_of_topics(
        "log.cleaner.max.compaction.lag.ms",
        (Long, Some("9223372036854775807"), AtLeast(1)),
    ),
    default_of_topics(
        "log.cleaner.min.cleanable.ratio",
        (Double, Some("0.5"), Fraction),
    ),
    default_of_topics(
        "log.cleaner.min.compaction.lag.ms",
        (Long, Some("0"), AtLeast(0)),
    ),
    default_of_topics(
        "log.cleanup.policy",
        (List, Some("delete"), ListOf(&["delete"])),
    ),
    default_of_topics(
        "log.message.timestamp.after.max.ms",
        (Long, Some("3600000"), AtLeast(0)),
    ),
    default_of_topics(
        "log.message.timestamp.before.max.ms",
        (Long, Some("9223372036854775807"), AtLeast(0)),
    ),
    default_of_topics(
        "log.message.timestamp.type",
        (String, Some("CreateTime"), OneOf(TIMESTAMP_TYPES)),
    ),
    default_of_topics("log.retention.bytes", (Long, Some("-1"), Any)),
    fixed(
        "log.retention.hours",
        (Int, Some("168"), PositiveOrUnlimited),
        "The default of `retention.ms` in hours, if it is not set in minutes or milliseconds.",
    ),
    fixed(
        "log.retention.minutes",
        (Int, None, PositiveOrUnlimited),
        "The default of `retention.ms` in minutes, if it is not set in milliseconds.",
    ),
    default_of_topics("log.retention.ms", (Long, None, PositiveOrUnlimited)),
    default_of_topics(
        "log.segment.bytes",
        (Int, Some("1073741824"), AtLeast(1_048_576)),
    ),
    default_of_topics(
        "max.decompressed.message.bytes",
        (Int, Some("134217728"), Within(1, 2_147_483_639)),
    ),
    default_of_topics("message.max.bytes", (Int, Some("1048588"), AtLeast(0))),
    live(
        "tidemill.latency",
        (String, None, OneOf(LATENCY_CLASSES)),
        "How long a record may wait for company before it is written; topics may have their \
         own. The default is `low` on a local directory and `balanced` on a bucket.",
    ),
    // Groups and producers.
    fixed(
        "group.initial.rebalance.delay.ms",
        (Int, Some("3000"), AtLeast(0)),
        "How long the first rebalance of an empty group waits for more members.",
    ),
    fixed(
        "group.max.session.timeout.ms",
        (Int, Some("1800000"), AtLeast(1)),
        "Longest session timeout that a member may ask for.",
    ),
    fixed(
        "group.max.size",
        (Int, Some("2147483647"), AtLeast(1)),
        "Most members of a group.",
    ),
    fixed(
        "group.min.session.timeout.ms",
        (Int, Some("6000"), AtLeast(1)),
        "Shortest session timeout that a member may ask for.",
    ),
    fixed(
        "offset.metadata.max.bytes",
        (Int, Some("4096"), AtLeast(0)),
        "Longest text that may go with a committed offset.",
    ),
    fixed(
        "offsets.retention.check.interval.ms",
        (Long, Some("600000"), AtLeast(1)),
        "How often committed offsets are looked through for expired ones.",
    ),
    fixed(
        "offsets.retention.minutes",
        (Int, Some("10080"), AtLeast(1)),
        "How long the offsets of an empty group are kept.",
    ),
    fixed(
        "offsets.topic.num.partitions",
        (Int, Some("50"), Within(1, 10_000)),
        "Partitions of `__consumer_offsets` when it is created.",
    ),
    fixed(
        "producer.id.expiration.ms",
        (Int, Some("86400000"), AtLeast(1)),
        "After how long without writes a partition forgets an idempotent producer.",
    ),
    // The store and the process.
    fixed(
        "local.sync",
        (String, Some("always"), OneOf(&["always", "os"])),
        "For a local directory: `always` syncs before it acknowledges, `os` leaves it to the \
         system and may lose acknowledged records when the machine fails.",
    ),
    fixed(
        "tidemill.admin.listen",
        (String, Some("127.0.0.1:9644"), Any),
        "Where `/metrics` and `/health` are served; empty is nowhere.",
    ),
    fixed(
        "tidemill.cache.block.bytes",
        (Long, None, AtLeast(0)),
        "Memory for blocks of stored objects that were read. The default is a quarter of \
         `tidemill.memory.bytes`, on a local directory at most 128 MiB.",
    ),
    fixed(
        "tidemill.cache.tail.bytes",
        (Long, None, AtLeast(0)),
        "Memory for the newest records of all partitions. The default is 7/16 of \
         `tidemill.memory.bytes`, on a local directory at most 384 MiB.",
    ),
    fixed(
        "tidemill.data",
        (String, Some("file:./tidemill-data"), NotEmpty),
        "Where the data is: `file:DIR`, `memory:`, `s3://`, `gs://` or `az://` with bucket and \
         prefix.",
    ),
    fixed(
        "tidemill.local.free.bytes.min",
        (Long, Some("67108864"), AtLeast(0)),
        "Free space of a local directory's disk below which produce waits, at most an eighth of \
         the disk; what is pending or not yet rolled needs space of its own above it.",
    ),
    fixed(
        "tidemill.memory.bytes",
        (Long, None, AtLeast(1 << 24)),
        "Memory for all caches and buffers together. The default is a quarter of what the \
         process may use, at most 4 GiB.",
    ),
    fixed(
        "tidemill.pending.bytes",
        (Long, None, AtLeast(1 << 20)),
        "Appended and not yet durable bytes above which producing connections wait. The default \
         is an eighth of `tidemill.memory.bytes`.",
    ),
    fixed(
        "tidemill.roll.bytes",
        (Long, Some("268435456"), AtLeast(1 << 20)),
        "Bytes of write-ahead log after which it is rolled into data objects.",
    ),
    fixed(
        "tidemill.roll.interval.ms",
        (Long, Some("600000"), AtLeast(1000)),
        "Age of the oldest write-ahead log entry after which it is rolled into data objects.",
    ),
    fixed(
        "tidemill.shutdown.timeout.ms",
        (Long, Some("30000"), AtLeast(0)),
        "How long a stop may take to write what is pending.",
    ),
    fixed(
        "tidemill.start.timeout.ms",
        (Long, Some("60000"), AtLeast(0)),
        "How long a start waits for a store that does not answer.",
    ),
];
