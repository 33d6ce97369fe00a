//! What a load measured.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::{probe::Usage, report::Row};

/// Longest latency told apart, in microseconds: ten minutes. Longer ones count as this.
const LATENCY_MAX_US: u64 = 600_000_000;
/// Digits that are exact at every magnitude.
const DIGITS: u8 = 3;
const GB: f64 = 1e9;
const MB: f64 = 1e6;

/// A distribution of latencies, in microseconds.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_US, DIGITS);
        Self(histogram.expect("the bounds are constants that the library allows"))
    }
}

impl Latency {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(us.max(1));
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Self) {
        // Cannot fail: both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `quantile` (0 to 1) of all do not exceed, in milliseconds.
    #[must_use]
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The longest, in milliseconds.
    #[must_use]
    pub fn max_ms(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    /// Adds the usual quantiles to a row, their names prefixed.
    #[must_use]
    pub fn describe(&self, prefix: &str, row: Row) -> Row {
        if self.count() == 0 {
            return row;
        }
        row.measure(&format!("{prefix}mean_ms"), self.0.mean() / 1e3)
            .measure(&format!("{prefix}p50_ms"), self.quantile_ms(0.5))
            .measure(&format!("{prefix}p95_ms"), self.quantile_ms(0.95))
            .measure(&format!("{prefix}p99_ms"), self.quantile_ms(0.99))
            .measure(&format!("{prefix}p99.9_ms"), self.quantile_ms(0.999))
            .measure(&format!("{prefix}max_ms"), self.max_ms())
    }
}

/// What a load measured.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Records acknowledged or read.
    pub records: u64,
    /// Bytes of their batches as they went over the wire.
    pub bytes: u64,
    /// Requests answered.
    pub requests: u64,
    /// Latency of each request, from its intended time in an open loop.
    pub latency: Latency,
    /// From the first request to the last answer.
    pub elapsed: Duration,
}

impl Outcome {
    /// Adds another's counts; the longer time of both.
    pub fn merge(&mut self, other: &Self) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.requests += other.requests;
        self.latency.merge(&other.latency);
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    /// Megabytes (10^6) a second.
    #[must_use]
    pub fn mb_per_second(&self) -> f64 {
        self.bytes as f64 / MB / self.elapsed.as_secs_f64()
    }

    /// Adds rates, latencies and the broker's usage per gigabyte (10^9) to a row.
    #[must_use]
    pub fn describe(&self, usage: &Usage, row: Row) -> Row {
        let gb = self.bytes as f64 / GB;
        let per_gb = |count: Option<u64>| count.map(|count| count as f64 / gb);
        let row = row
            .measure("MB/s", self.mb_per_second())
            .measure(
                "records/s",
                self.records as f64 / self.elapsed.as_secs_f64(),
            )
            .maybe("cpu_s/GB", usage.cpu.map(|cpu| cpu.as_secs_f64() / gb))
            .maybe("rss_MB", usage.rss_bytes.map(|rss| rss as f64 / MB))
            .maybe("puts/GB", per_gb(usage.puts))
            .maybe("gets/GB", per_gb(usage.gets))
            .maybe("sent_B/B", per_gb(usage.sent_bytes).map(|sent| sent / GB))
            .maybe(
                "read_B/B",
                per_gb(usage.received_bytes).map(|read| read / GB),
            );
        self.latency
            .describe("", row)
            .count("records", self.records)
            .count("bytes", self.bytes)
            .measure("seconds", self.elapsed.as_secs_f64())
    }
}
