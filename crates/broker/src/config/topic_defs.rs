//! The settings of a topic: all of Kafka 4.4's, and ours.

use super::def::{ConfigDef, Role, Synonym};
use super::ours::{CODECS, LATENCY_CLASSES, TIMESTAMP_TYPES};
use super::value::Check;
use super::value::Check::{
    Any, AtLeast, Fraction, ListOf, OneOf, Replicas, Within, WithinOrDefault,
};
use super::value::ConfigType::{self, Boolean, Double, Int, List, Long, String};

const MINUTE_MS: i64 = 60 * 1000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

const fn same(name: &'static str) -> Synonym {
    Synonym { name, factor: 1 }
}

const fn scaled(name: &'static str, factor: i64) -> Synonym {
    Synonym { name, factor }
}

const fn def(
    name: &'static str,
    (kind, default, check): (ConfigType, &'static str, Check),
    synonyms: &'static [Synonym],
    doc: &'static str,
) -> ConfigDef {
    ConfigDef {
        name,
        kind,
        default: Some(default),
        check,
        doc,
        synonyms,
        role: Role::Topic,
    }
}

/// All of them, by name.
pub(super) const TOPIC: &[ConfigDef] = &[
    def(
        "cleanup.policy",
        (List, "delete", ListOf(&["compact", "delete"])),
        &[same("log.cleanup.policy")],
        "How old records go: `delete` drops them by age and size. `compact`, which keeps the \
         last record of each key, is not served yet. Empty keeps everything.",
    ),
    def(
        "compression.gzip.level",
        (Int, "-1", WithinOrDefault(1, 9)),
        &[same("compression.gzip.level")],
        "The level of gzip if `compression.type` is `gzip`; -1 is the codec's own.",
    ),
    def(
        "compression.lz4.level",
        (Int, "9", Within(1, 17)),
        &[same("compression.lz4.level")],
        "The level of LZ4 if `compression.type` is `lz4`. Accepted; one level is used.",
    ),
    def(
        "compression.type",
        (String, "producer", OneOf(CODECS)),
        &[same("compression.type")],
        "How record batches are stored: `producer` keeps each as it came, any other value \
         stores all of them in that codec.",
    ),
    def(
        "compression.zstd.level",
        (Int, "3", Within(-131_072, 22)),
        &[same("compression.zstd.level")],
        "The level of zstd if `compression.type` is `zstd`.",
    ),
    def(
        "delete.retention.ms",
        (Long, "86400000", AtLeast(0)),
        &[same("log.cleaner.delete.retention.ms")],
        "How long the tombstones of a compacted topic are kept.",
    ),
    def(
        "errors.deadletterqueue.group.enable",
        (Boolean, "false", Any),
        &[],
        "Whether share groups may write records they gave up to this topic. Without effect.",
    ),
    def(
        "file.delete.delay.ms",
        (Long, "60000", AtLeast(0)),
        &[same("log.segment.delete.delay.ms")],
        "How long a deleted segment's file stays in Apache Kafka. Without effect.",
    ),
    def(
        "flush.messages",
        (Long, "9223372036854775807", AtLeast(1)),
        &[same("log.flush.interval.messages")],
        "After how many records Apache Kafka syncs its files. Without effect: every \
         acknowledged record is durable.",
    ),
    def(
        "flush.ms",
        (Long, "9223372036854775807", AtLeast(0)),
        &[
            same("log.flush.interval.ms"),
            same("log.flush.scheduler.interval.ms"),
        ],
        "After how long Apache Kafka syncs its files. Without effect: every acknowledged \
         record is durable.",
    ),
    def(
        "follower.replication.throttled.replicas",
        (List, "", Replicas),
        &[],
        "Replicas whose catching up is slowed in Apache Kafka. Without effect.",
    ),
    def(
        "index.interval.bytes",
        (Int, "4096", AtLeast(0)),
        &[same("log.index.interval.bytes")],
        "Bytes between two entries of Apache Kafka's offset index. Without effect.",
    ),
    def(
        "leader.replication.throttled.replicas",
        (List, "", Replicas),
        &[],
        "Replicas whose reading from the leader is slowed in Apache Kafka. Without effect.",
    ),
    def(
        "local.retention.bytes",
        (Long, "-2", AtLeast(-2)),
        &[same("log.local.retention.bytes")],
        "Bytes that Apache Kafka keeps on local disks beside tiered storage. Without effect.",
    ),
    def(
        "local.retention.ms",
        (Long, "-2", AtLeast(-2)),
        &[same("log.local.retention.ms")],
        "How long Apache Kafka keeps records on local disks beside tiered storage. Without \
         effect.",
    ),
    def(
        "max.compaction.lag.ms",
        (Long, "9223372036854775807", AtLeast(1)),
        &[same("log.cleaner.max.compaction.lag.ms")],
        "After how long a record of a compacted topic must have been considered for compaction.",
    ),
    def(
        "max.decompressed.message.bytes",
        (Int, "134217728", Within(1, 2_147_483_639)),
        &[same("max.decompressed.message.bytes")],
        "Most bytes that the records of one batch may have once decompressed.",
    ),
    def(
        "max.message.bytes",
        (Int, "1048588", AtLeast(0)),
        &[same("message.max.bytes")],
        "Most bytes of one record batch as sent, compressed or not.",
    ),
    def(
        "message.timestamp.after.max.ms",
        (Long, "3600000", AtLeast(0)),
        &[same("log.message.timestamp.after.max.ms")],
        "How far a record's timestamp may lie ahead of the broker's clock.",
    ),
    def(
        "message.timestamp.before.max.ms",
        (Long, "9223372036854775807", AtLeast(0)),
        &[same("log.message.timestamp.before.max.ms")],
        "How far a record's timestamp may lie behind the broker's clock.",
    ),
    def(
        "message.timestamp.type",
        (String, "CreateTime", OneOf(TIMESTAMP_TYPES)),
        &[same("log.message.timestamp.type")],
        "Whose clock gives records their timestamps: the producer's, or the broker's at append.",
    ),
    def(
        "min.cleanable.dirty.ratio",
        (Double, "0.5", Fraction),
        &[same("log.cleaner.min.cleanable.ratio")],
        "How much of a compacted topic must be new before it is compacted.",
    ),
    def(
        "min.compaction.lag.ms",
        (Long, "0", AtLeast(0)),
        &[same("log.cleaner.min.compaction.lag.ms")],
        "How long a record of a compacted topic is left alone.",
    ),
    def(
        "min.insync.replicas",
        (Int, "1", AtLeast(1)),
        &[same("min.insync.replicas")],
        "How many replicas must have a record before Apache Kafka acknowledges it. Without \
         effect: the object store replicates.",
    ),
    def(
        "preallocate",
        (Boolean, "false", Any),
        &[same("log.preallocate")],
        "Whether Apache Kafka reserves a new segment's file at once. Without effect.",
    ),
    def(
        "remote.copy.lag.bytes",
        (Long, "-1", AtLeast(-1)),
        &[same("log.remote.copy.lag.bytes")],
        "How far Apache Kafka's tiered storage may lag behind in bytes. Without effect.",
    ),
    def(
        "remote.copy.lag.ms",
        (Long, "0", AtLeast(-1)),
        &[same("log.remote.copy.lag.ms")],
        "How far Apache Kafka's tiered storage may lag behind in time. Without effect.",
    ),
    def(
        "remote.log.copy.disable",
        (Boolean, "false", Any),
        &[],
        "Whether a topic's tiered storage is read-only in Apache Kafka. Without effect.",
    ),
    def(
        "remote.log.delete.on.disable",
        (Boolean, "false", Any),
        &[],
        "Whether switching tiered storage off deletes what it holds. Without effect.",
    ),
    def(
        "remote.storage.enable",
        (Boolean, "false", Any),
        &[],
        "Whether the topic uses Apache Kafka's tiered storage. Only `false` is taken: every \
         topic is on the object store.",
    ),
    def(
        "retention.bytes",
        (Long, "-1", Any),
        &[same("log.retention.bytes")],
        "Bytes of a partition above which its oldest records go; negative is without limit.",
    ),
    def(
        "retention.ms",
        (Long, "604800000", AtLeast(-1)),
        &[
            same("log.retention.ms"),
            scaled("log.retention.minutes", MINUTE_MS),
            scaled("log.retention.hours", HOUR_MS),
        ],
        "Age after which records go; -1 is without limit.",
    ),
    def(
        "segment.bytes",
        (Int, "1073741824", AtLeast(1_048_576)),
        &[same("log.segment.bytes")],
        "Bytes of a partition that are stored, and by retention dropped, as one at most.",
    ),
    def(
        "segment.index.bytes",
        (Int, "10485760", AtLeast(4)),
        &[same("log.index.size.max.bytes")],
        "Size of Apache Kafka's index files. Without effect.",
    ),
    def(
        "segment.jitter.ms",
        (Long, "0", AtLeast(0)),
        &[
            same("log.roll.jitter.ms"),
            scaled("log.roll.jitter.hours", HOUR_MS),
        ],
        "Random part of `segment.ms` in Apache Kafka. Without effect.",
    ),
    def(
        "segment.ms",
        (Long, "604800000", AtLeast(1)),
        &[same("log.roll.ms"), scaled("log.roll.hours", HOUR_MS)],
        "After how long Apache Kafka begins a new segment. Without effect: see \
         `tidemill.roll.interval.ms`.",
    ),
    def(
        "tidemill.latency",
        (String, "balanced", OneOf(LATENCY_CLASSES)),
        &[same("tidemill.latency")],
        "How long a record may wait for company before it is written: `low`, `balanced` or \
         `economy`, from the fastest to the fewest requests to the object store.",
    ),
    def(
        "unclean.leader.election.enable",
        (Boolean, "false", Any),
        &[same("unclean.leader.election.enable")],
        "Whether a replica that lags may lead in Apache Kafka. Without effect: none can.",
    ),
];
