//! Distributions of durations, cheap enough for every request.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the buckets in microseconds: fine where a broker's own work lies (below a
/// millisecond) and where a store's answers do (5 to 100 ms).
pub const BOUNDS_US: [u64; 24] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 7_500, 10_000, 15_000, 20_000, 25_000, 35_000,
    50_000, 75_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// A distribution of durations with fixed buckets. Never reset; counted without a lock.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        self.observe_many(duration, 1);
    }

    /// Counts `count` things that all took this long.
    pub fn observe_many(&self, duration: Duration, count: u64) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < ns.div_ceil(1_000));
        self.buckets[bucket].fetch_add(count, Ordering::Relaxed);
        let sum_ns = ns.saturating_mul(count);
        self.sum_ns.fetch_add(sum_ns, Ordering::Relaxed);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        let buckets = self.buckets.iter();
        buckets.map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Appends the samples in Prometheus' text format; `labels` may be empty.
    pub fn render(&self, name: &str, labels: &str, out: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut total = 0;
        let bounds = BOUNDS_US.iter().map(|bound| seconds(bound * 1_000));
        let bounds = bounds.chain(["+Inf".to_owned()]);
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            total += bucket.load(Ordering::Relaxed);
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}"
            );
        }
        let sum = seconds(self.sum_ns.load(Ordering::Relaxed));
        let of = |kind: &str| match labels {
            "" => format!("{name}_{kind}"),
            labels => format!("{name}_{kind}{{{labels}}}"),
        };
        let _ = writeln!(out, "{} {sum}\n{} {total}", of("sum"), of("count"));
    }
}

/// Nanoseconds as decimal seconds, without zeros at the end.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
