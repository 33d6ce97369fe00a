//! Counters and histograms, rendered as Prometheus text.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
};

use parking_lot::Mutex;
use tidemill_log::Stages as LogStages;
use tidemill_runtime::Histogram;
use tidemill_wire::{ApiKey, ErrorCode};

use crate::api::Context;

/// One slot per API key number; Kafka's highest known key is below.
const KEYS: usize = 128;
#[derive(Debug, Default)]
struct PerApi {
    requests: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    latency: Histogram,
}

/// Name, help and value of a counter by API.
type Counter = (&'static str, &'static str, fn(&PerApi) -> &AtomicU64);

/// What the broker counts. Never reset.
#[derive(Debug)]
pub struct Metrics {
    apis: Vec<PerApi>,
    /// By (key, code); errors are rare enough for a lock.
    errors: Mutex<BTreeMap<(ApiKey, ErrorCode), u64>>,
    produced_bytes: AtomicU64,
    produced_records: AtomicU64,
    fetched_bytes: AtomicU64,
    connections: AtomicI64,
    connections_total: AtomicU64,
    stages: Stages,
}

/// Where the broker spends a record's time, the log's part apart ([`LogStages`]).
#[derive(Debug, Default)]
pub(crate) struct Stages {
    /// A Produce request's first bytes to its last.
    pub receive: Histogram,
    /// A whole Produce request to its batches checked, numbered and queued.
    pub validate: Histogram,
    /// A partition moved on to the waiting Fetch running.
    pub wake: Histogram,
    /// A response ready to its last byte taken by the socket.
    pub send: Histogram,
    /// A partition moved on to the first byte of the waiting Fetch's response taken by the socket.
    pub first_byte: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            apis: (0..KEYS).map(|_| PerApi::default()).collect(),
            errors: Mutex::default(),
            produced_bytes: AtomicU64::new(0),
            produced_records: AtomicU64::new(0),
            fetched_bytes: AtomicU64::new(0),
            connections: AtomicI64::new(0),
            connections_total: AtomicU64::new(0),
            stages: Stages::default(),
        }
    }
}

impl Metrics {
    fn api(&self, key: ApiKey) -> &PerApi {
        // Keys are small positive numbers; one beyond the table would count in its last slot.
        let index = usize::try_from(key.code())
            .unwrap_or(KEYS - 1)
            .min(KEYS - 1);
        &self.apis[index]
    }

    /// A request of `bytes` has come.
    pub(crate) fn request(&self, key: ApiKey, bytes: usize) {
        let api = self.api(key);
        api.requests.fetch_add(1, Ordering::Relaxed);
        api.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A request has been answered with `bytes`.
    pub(crate) fn answered(&self, context: &Context, bytes: usize) {
        let api = self.api(context.key);
        api.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
        let now = context.broker.runtime().clock.monotonic();
        api.latency
            .observe(now.saturating_duration_since(context.received));
    }

    /// An error is answered.
    pub(crate) fn error(&self, key: ApiKey, code: ErrorCode) {
        *self.errors.lock().entry((key, code)).or_default() += 1;
    }

    /// A batch was acknowledged.
    pub(crate) fn produced(&self, records: u64, bytes: u64) {
        self.produced_records.fetch_add(records, Ordering::Relaxed);
        self.produced_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Record bytes were handed to a consumer.
    pub(crate) fn fetched(&self, bytes: u64) {
        self.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a connection while the guard lives.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.connections_total.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection has ended.
    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Where time is spent.
    pub(crate) const fn stages(&self) -> &Stages {
        &self.stages
    }

    /// Open connections.
    #[must_use]
    pub fn connections(&self) -> i64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Prometheus text format; `log` has the stages between queue and commit.
    pub fn render(&self, log: &LogStages, out: &mut String) {
        let used: Vec<(ApiKey, &PerApi)> = ApiKey::ALL
            .iter()
            .map(|key| (*key, self.api(*key)))
            .filter(|(_, api)| api.requests.load(Ordering::Relaxed) > 0)
            .collect();
        let counters: [Counter; 3] = [
            ("tidemill_requests_total", "Requests by API.", |api| {
                &api.requests
            }),
            (
                "tidemill_request_bytes_total",
                "Bytes of requests by API.",
                |api| &api.bytes_in,
            ),
            (
                "tidemill_response_bytes_total",
                "Bytes of responses by API.",
                |api| &api.bytes_out,
            ),
        ];
        for (name, help, value) in counters {
            head(name, help, "counter", out);
            for (key, api) in &used {
                let value = value(api).load(Ordering::Relaxed);
                let _ = writeln!(out, "{name}{{api=\"{key}\"}} {value}");
            }
        }
        let name = "tidemill_request_duration_seconds";
        head(
            name,
            "From the whole request to its answer, by API.",
            "histogram",
            out,
        );
        for (key, api) in &used {
            api.latency.render(name, &format!("api=\"{key}\""), out);
        }
        self.render_stages(log, out);
        self.render_errors(out);
        self.render_totals(out);
    }

    fn render_stages(&self, log: &LogStages, out: &mut String) {
        let name = "tidemill_stage_duration_seconds";
        let help = "Where the time from produce to consume goes, by stage (docs/latency.md).";
        head(name, help, "histogram", out);
        let stages = [
            ("receive", &self.stages.receive),
            ("validate", &self.stages.validate),
            ("queue", &log.queue),
            ("put", &log.put),
            ("order", &log.order),
            ("commit", &log.commit),
            ("wake", &self.stages.wake),
            ("send", &self.stages.send),
        ];
        for (stage, histogram) in stages {
            histogram.render(name, &format!("stage=\"{stage}\""), out);
        }
        let name = "tidemill_commit_to_first_byte_seconds";
        let help = "From a commit to the first byte of the waiting Fetch's answer.";
        head(name, help, "histogram", out);
        self.stages.first_byte.render(name, "", out);
    }

    fn render_errors(&self, out: &mut String) {
        let name = "tidemill_request_errors_total";
        head(
            name,
            "Errors answered, by API and Kafka error.",
            "counter",
            out,
        );
        for ((key, code), count) in &*self.errors.lock() {
            let error = code.name().unwrap_or("UNKNOWN");
            let _ = writeln!(out, "{name}{{api=\"{key}\",error=\"{error}\"}} {count}");
        }
    }

    fn render_totals(&self, out: &mut String) {
        let totals = [
            (
                "tidemill_produced_records_total",
                "Records acknowledged.",
                &self.produced_records,
            ),
            (
                "tidemill_produced_bytes_total",
                "Record bytes acknowledged.",
                &self.produced_bytes,
            ),
            (
                "tidemill_fetched_bytes_total",
                "Record bytes sent.",
                &self.fetched_bytes,
            ),
            (
                "tidemill_connections_total",
                "Connections accepted.",
                &self.connections_total,
            ),
        ];
        for (name, help, value) in totals {
            head(name, help, "counter", out);
            let _ = writeln!(out, "{name} {}", value.load(Ordering::Relaxed));
        }
        head("tidemill_connections", "Open connections.", "gauge", out);
        let _ = writeln!(out, "tidemill_connections {}", self.connections());
    }
}

/// One gauge in Prometheus text format.
pub(crate) fn gauge(name: &str, help: &str, value: u64, out: &mut String) {
    head(name, help, "gauge", out);
    let _ = writeln!(out, "{name} {value}");
}

fn head(name: &str, help: &str, kind: &str, out: &mut String) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
