//! Where a broker spent the time, read from its histograms.

use std::collections::BTreeMap;

use crate::{probe::Sample, report::Row};

/// The stages in the order of a record's way; each is a histogram of the broker.
const STAGES: [&str; 8] = [
    "receive", "validate", "queue", "put", "order", "commit", "wake", "send",
];
const DURATION: &str = "tidemill_stage_duration_seconds";
const FIRST_BYTE: &str = "tidemill_commit_to_first_byte_seconds";

/// What one stage took between two samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// How often.
    pub count: u64,
    /// On average, milliseconds.
    pub mean_ms: f64,
    /// Half took at most this, milliseconds, interpolated within a bucket.
    pub p50_ms: f64,
    /// 99 % did.
    pub p99_ms: f64,
}

impl Stage {
    /// As a row of results.
    #[must_use]
    pub fn row(&self, scenario: &str) -> Row {
        Row::new(scenario)
            .text("stage", self.name)
            .count("count", self.count)
            .measure("mean_ms", self.mean_ms)
            .measure("p50_ms", self.p50_ms)
            .measure("p99_ms", self.p99_ms)
    }
}

/// The stages between two samples of a broker's metrics; those that saw nothing are left out.
#[must_use]
pub fn stages(before: &Sample, after: &Sample) -> Vec<Stage> {
    let named = STAGES.iter().map(|name| {
        let labels = format!("stage=\"{name}\"");
        stage(name, DURATION, &labels, before, after)
    });
    let first_byte = stage("commit to first byte", FIRST_BYTE, "", before, after);
    named.chain([first_byte]).flatten().collect()
}

/// WAL objects that a broker has put since its start, the one that begins its log included.
#[must_use]
pub fn wal_objects(sample: &Sample) -> u64 {
    let landed = format!("{DURATION}_count{{stage=\"put\"}}");
    1 + sample.metrics.get(&landed).copied().unwrap_or(0.0) as u64
}

fn stage(
    name: &'static str,
    metric: &str,
    labels: &str,
    before: &Sample,
    after: &Sample,
) -> Option<Stage> {
    let grown = |key: &str| {
        let earlier = before.metrics.get(key).copied().unwrap_or(0.0);
        Some(after.metrics.get(key)? - earlier)
    };
    let of = |kind: &str| match labels {
        "" => format!("{metric}_{kind}"),
        labels => format!("{metric}_{kind}{{{labels}}}"),
    };
    let count = grown(&of("count")).filter(|count| *count > 0.0)?;
    let mean_ms = grown(&of("sum"))? / count * 1e3;
    let buckets = buckets(metric, labels, &after.metrics);
    let counted: Vec<(f64, f64)> = buckets
        .into_iter()
        .filter_map(|(bound, key)| Some((bound, grown(&key)?)))
        .collect();
    Some(Stage {
        name,
        count: count as u64,
        mean_ms,
        p50_ms: quantile_ms(&counted, count * 0.5),
        p99_ms: quantile_ms(&counted, count * 0.99),
    })
}

/// Upper bounds in seconds with the names of their samples, ascending.
fn buckets(metric: &str, labels: &str, metrics: &BTreeMap<String, f64>) -> Vec<(f64, String)> {
    let comma = if labels.is_empty() { "" } else { "," };
    let prefix = format!("{metric}_bucket{{{labels}{comma}le=\"");
    let found = metrics.range(prefix.clone()..);
    let mut buckets: Vec<_> = found
        .take_while(|(name, _)| name.starts_with(&prefix))
        .filter_map(|(name, _)| {
            let bound = name[prefix.len()..].trim_end_matches("\"}");
            let bound = match bound {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().ok()?,
            };
            Some((bound, name.clone()))
        })
        .collect();
    buckets.sort_by(|left, right| left.0.total_cmp(&right.0));
    buckets
}

/// Where `rank` of cumulative counts lies; straight lines within a bucket, as Prometheus does.
fn quantile_ms(counted: &[(f64, f64)], rank: f64) -> f64 {
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, count) in counted {
        if *count >= rank {
            if bound.is_infinite() || *count <= below {
                return low * 1e3;
            }
            let share = (rank - below) / (count - below);
            return (low + (bound - low) * share) * 1e3;
        }
        (low, below) = (*bound, *count);
    }
    low * 1e3
}
