//! What the admin endpoint shows of a broker, before and after it serves.

use std::{fmt::Write, sync::Arc};

use parking_lot::RwLock;
use tidemill_broker::Broker;
use tidemill_store::{Store, StoreCounters};

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

fn store(out: &mut String, counters: &StoreCounters) {
    let rows = [
        ("puts", "Objects written.", counters.puts),
        (
            "put_requests",
            "PUT requests, retries included.",
            counters.put_tries,
        ),
        ("get_requests", "GET and HEAD requests.", counters.gets),
        ("list_requests", "LIST requests.", counters.lists),
        ("delete_requests", "DELETE requests.", counters.deletes),
        ("copy_requests", "Server-side copies.", counters.copies),
        (
            "sent_bytes",
            "Bytes of bodies sent, retries included.",
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
        let name = format!("tidemill_store_{name}_total");
        let _ = writeln!(
            out,
            "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}"
        );
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
