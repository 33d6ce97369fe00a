//! A topic's settings, typed, as the produce path and the log use them.

use std::collections::BTreeMap;

use tidemill_cluster::image::Configs;
use tidemill_log::{Latency, PartitionConfig};
use tidemill_wire::batch::{
    Compression, RecompressError, RecompressOptions, TimestampType, ValidBatch, ValidateOptions,
    recompress,
};

use super::broker::latency;
use super::def::{ConfigDef, broker_def, topic_def, topic_defs};
use super::settings::View;
use super::value::Value;

/// How old records go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// By age and size.
    pub delete: bool,
    /// By key.
    pub compact: bool,
}

/// A topic's settings in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfig {
    /// `cleanup.policy`.
    pub cleanup: CleanupPolicy,
    /// `compression.type`; none keeps each batch as it came (`producer`).
    pub compression: Option<Compression>,
    /// The level of that codec; none is its own default.
    pub compression_level: Option<i32>,
    /// `retention.ms`, -1 for no limit.
    pub retention_ms: i64,
    /// `retention.bytes`, -1 for no limit.
    pub retention_bytes: i64,
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `max.message.bytes`.
    pub max_message_bytes: u64,
    /// `max.decompressed.message.bytes`.
    pub max_inflated_bytes: u64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`.
    pub max_compaction_lag_ms: i64,
    /// `tidemill.latency`.
    pub latency: Latency,
}

impl TopicConfig {
    /// The settings of a topic with these of its own, over the broker's.
    ///
    /// Values were checked before they were stored; one that is refused all the same (a newer
    /// broker wrote it) counts as not set.
    #[must_use]
    pub fn new(own: &Configs, view: &View<'_>) -> Self {
        let values: BTreeMap<&str, Value> = topic_defs()
            .iter()
            .filter_map(|def| Some((def.name, in_force(def, own, view)?)))
            .collect();
        let get = Typed(&values);
        let codec = get.text("compression.type");
        let (compression, compression_level) = match codec.as_str() {
            "gzip" => (Some(Compression::Gzip), get.level("compression.gzip.level")),
            "zstd" => (Some(Compression::Zstd), get.level("compression.zstd.level")),
            "lz4" => (Some(Compression::Lz4), None),
            "snappy" => (Some(Compression::Snappy), None),
            "uncompressed" => (Some(Compression::None), None),
            _ => (None, None),
        };
        Self {
            cleanup: get.cleanup(),
            compression,
            compression_level,
            retention_ms: get.number("retention.ms").max(-1),
            retention_bytes: get.number("retention.bytes").max(-1),
            segment_bytes: get.size("segment.bytes"),
            max_message_bytes: get.size("max.message.bytes"),
            max_inflated_bytes: get.size("max.decompressed.message.bytes"),
            timestamp_type: match get.text("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_before_max_ms: get.number("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: get.number("message.timestamp.after.max.ms"),
            delete_retention_ms: get.number("delete.retention.ms"),
            min_compaction_lag_ms: get.number("min.compaction.lag.ms"),
            max_compaction_lag_ms: get.number("max.compaction.lag.ms"),
            latency: latency(&get.text("tidemill.latency")),
        }
    }

    /// What a produced batch is checked against; the time is the caller's to set, and whether
    /// its request knows zstd.
    #[must_use]
    pub fn validate_options(&self) -> ValidateOptions {
        ValidateOptions {
            max_message_bytes: self.max_message_bytes,
            timestamp_type: self.timestamp_type,
            timestamp_before_max_ms: self.timestamp_before_max_ms,
            timestamp_after_max_ms: self.timestamp_after_max_ms,
            key_required: self.cleanup.compact,
            max_inflated_bytes: self.max_inflated_bytes,
            ..ValidateOptions::default()
        }
    }

    /// A valid batch as it is stored: in the topic's codec, or as it came (`producer`).
    ///
    /// # Errors
    /// It is larger than `max.message.bytes` in that codec, or the codec fails.
    pub fn stored(&self, batch: ValidBatch) -> Result<ValidBatch, RecompressError> {
        let Some(codec) = self.compression else {
            return Ok(batch);
        };
        let options = RecompressOptions {
            codec,
            level: self.compression_level,
            max_inflated_bytes: self.max_inflated_bytes,
            max_message_bytes: self.max_message_bytes,
        };
        recompress(batch, &options)
    }

    /// What the log needs of it. Only `delete` drops records by age and size.
    #[must_use]
    pub fn partition(&self) -> PartitionConfig {
        if !self.cleanup.delete {
            return PartitionConfig {
                retention_ms: -1,
                retention_bytes: -1,
            };
        }
        PartitionConfig {
            retention_ms: self.retention_ms,
            retention_bytes: self.retention_bytes,
        }
    }
}

/// The value in force of one of a topic's settings.
pub(super) fn in_force(def: &ConfigDef, own: &Configs, view: &View<'_>) -> Option<Value> {
    let own = own.get(def.name).and_then(|text| def.parse(text).ok());
    own.or_else(|| inherited(def, view))
}

/// The value of a setting that the topic does not have itself.
pub(super) fn inherited(def: &ConfigDef, view: &View<'_>) -> Option<Value> {
    let of_broker = def.synonyms.iter().find_map(|synonym| {
        let text = view.text(broker_def(synonym.name)?)?;
        if synonym.factor == 1 {
            return def.parse(text).ok();
        }
        let number: i64 = text.parse().ok()?;
        let scaled = if number < 0 {
            -1
        } else {
            number.saturating_mul(synonym.factor)
        };
        Some(Value::Number(scaled))
    });
    of_broker.or_else(|| def.parse(def.default?).ok())
}

/// Values by type. Every definition has a default of its type (a test says so), so what is
/// missing or of another type is a misspelt name here.
struct Typed<'a>(&'a BTreeMap<&'a str, Value>);

impl Typed<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        debug_assert!(topic_def(name).is_some(), "`{name}` is no topic setting");
        self.0.get(name)
    }

    fn number(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(Value::Number(number)) => *number,
            other => unreachable!("`{name}` is {other:?}, not a number"),
        }
    }

    /// A number whose definition does not allow negative ones.
    fn size(&self, name: &str) -> u64 {
        u64::try_from(self.number(name)).unwrap_or(0)
    }

    fn level(&self, name: &str) -> Option<i32> {
        // gzip's -1 is "the codec's own", zstd's is a level.
        let level = i32::try_from(self.number(name)).ok();
        level.filter(|level| *level != -1 || name != "compression.gzip.level")
    }

    fn text(&self, name: &str) -> String {
        self.get(name).map(Value::to_string).unwrap_or_default()
    }

    fn cleanup(&self) -> CleanupPolicy {
        let policies = self.text("cleanup.policy");
        let has = |policy| policies.split(',').any(|word| word == policy);
        CleanupPolicy {
            delete: has("delete"),
            compact: has("compact"),
        }
    }
}
