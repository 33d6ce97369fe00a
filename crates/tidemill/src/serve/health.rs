//! What the admin endpoint shows of a broker, before and after it serves.

use std::{fmt::Write, sync::Arc};

use parking_lot::RwLock;
use tidemill_broker::Broker;
use tidemill_store::{Estimate, HedgeCounters, Store, StoreCounters};

use crate::admin::Admin;

/// The broker as its admin endpoint sees it.
pub struct Health {
    store: Store,
    broker: RwLock<Option<Arc<Broker>>>,
}

impl Health {
    /// A broker that is starting.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            broker: RwLock::new(None),
        }
    }

    /// The broker serves from now on.
    pub fn serves(&self, broker: Arc<Broker>) {
        *self.broker.write() = Some(broker);
    }
}

impl Admin for Health {
    fn metrics(&self) -> String {
        let mut out = String::new();
        let broker = self.broker.read().clone();
        if let Some(broker) = &broker {
            let log = broker.log();
            broker.metrics().render(log.stages(), &mut out);
            gauge(
                &mut out,
                "tidemill_log_pending_bytes",
                "Appended, not durable.",
                log.pending_bytes(),
            );
            gauge(
                &mut out,
                "tidemill_log_unrolled_bytes",
                "Durable in the WAL alone.",
                log.unrolled_bytes(),
            );
            gauge(
                &mut out,
                "tidemill_log_left_out_partitions",
                "Partitions whose part of the WAL is damaged: all of it is kept from there on.",
                log.left_out(),
            );
            counter(
                &mut out,
                "tidemill_log_checkpoints_total",
                "Checkpoints published, of rounds and of merges.",
                log.checkpoints(),
            );
            gauge(
                &mut out,
                "tidemill_partitions",
                "Partitions led.",
                log.partitions().len() as u64,
            );
            gauge(
                &mut out,
                "tidemill_fenced",
                "1 once another broker has taken over.",
                u64::from(log.is_fenced()),
            );
        }
        store(&mut out, &self.store.counters());
        pace(&mut out, &self.store);
        gauge(
            &mut out,
            "tidemill_ready",
            "1 while clients are served.",
            u64::from(self.ready().is_ok()),
        );
        out
    }

    fn ready(&self) -> Result<(), String> {
        match &*self.broker.read() {
            None => Err("starting".to_owned()),
            Some(broker) if broker.log().is_fenced() => Err("superseded".to_owned()),
            Some(broker) if broker.is_draining() => Err("stopping".to_owned()),
            Some(_) => Ok(()),
        }
    }
}

fn gauge(out: &mut String, name: &str, help: &str, value: u64) {
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}"
    );
}

fn counter(out: &mut String, name: &str, help: &str, value: u64) {
    let _ = writeln!(
        out,
        "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}"
    );
}

fn store(out: &mut String, counters: &StoreCounters) {
    let rows = [
        ("puts", "Objects written.", counters.puts),
        (
            "put_requests",
            "PUT requests, retries and hedges included.",
            counters.put_tries,
        ),
        (
            "get_requests",
            "GET and HEAD requests, hedges included.",
            counters.gets,
        ),
        ("list_requests", "LIST requests.", counters.lists),
        ("delete_requests", "DELETE requests.", counters.deletes),
        ("copy_requests", "Server-side copies.", counters.copies),
        (
            "sent_bytes",
            "Bytes of bodies sent, retries and hedges included.",
            counters.bytes_up,
        ),
        (
            "received_bytes",
            "Bytes of bodies received.",
            counters.bytes_down,
        ),
        (
            "retries",
            "Requests sent again after a failure.",
            counters.retries,
        ),
    ];
    for (name, help, value) in rows {
        counter(out, &format!("tidemill_store_{name}_total"), help, value);
    }
    let name = "tidemill_store_errors_total";
    let _ = writeln!(
        out,
        "# HELP {name} Failed requests by kind.\n# TYPE {name} counter"
    );
    let kinds = [
        ("not_found", counters.errors_not_found),
        ("refused", counters.errors_refused),
        ("unavailable", counters.errors_unavailable),
        ("unknown", counters.errors_unknown),
        ("corrupt", counters.errors_corrupt),
        ("full", counters.errors_full),
        ("invalid", counters.errors_invalid),
    ];
    for (kind, value) in kinds {
        let _ = writeln!(out, "{name}{{kind=\"{kind}\"}} {value}");
    }
}

fn pace(out: &mut String, store: &Store) {
    let kinds = [
        ("put", store.put_estimate(), store.put_hedges()),
        ("get", store.get_estimate(), store.get_hedges()),
    ];
    let name = "tidemill_store_hedges_total";
    let _ = writeln!(
        out,
        "# HELP {name} Slow requests sent a second time, answered so, and not sent.\n\
         # TYPE {name} counter"
    );
    for (request, _, hedges) in &kinds {
        for (outcome, value) in outcomes(hedges) {
            let labels = format!("{{request=\"{request}\",outcome=\"{outcome}\"}}");
            let _ = writeln!(out, "{name}{labels} {value}");
        }
    }
    let name = "tidemill_store_base_seconds";
    let _ = writeln!(
        out,
        "# HELP {name} Measured time of a request without its body's transfer.\n\
         # TYPE {name} gauge"
    );
    for (request, estimate, _) in kinds
        .iter()
        .filter(|(_, estimate, _)| estimate.measured > 0)
    {
        for (quantile, value) in quantiles(estimate) {
            let labels = format!("{{request=\"{request}\",quantile=\"{quantile}\"}}");
            let _ = writeln!(out, "{name}{labels} {}", value.as_secs_f64());
        }
    }
    let name = "tidemill_store_stream_bytes_per_second";
    let _ = writeln!(
        out,
        "# HELP {name} Measured rate of one stream.\n# TYPE {name} gauge"
    );
    for (request, estimate, _) in &kinds {
        if let Some(rate) = estimate.bytes_per_second {
            let _ = writeln!(out, "{name}{{request=\"{request}\"}} {rate:.0}");
        }
    }
}

fn outcomes(hedges: &HedgeCounters) -> [(&'static str, u64); 4] {
    [
        ("sent", hedges.sent),
        ("won", hedges.won),
        ("over_budget", hedges.over_budget),
        ("store_slow", hedges.store_slow),
    ]
}

fn quantiles(estimate: &Estimate) -> [(&'static str, std::time::Duration); 4] {
    [
        ("0.5", estimate.p50),
        ("0.75", estimate.p75),
        ("0.9", estimate.p90),
        ("0.95", estimate.p95),
    ]
}
