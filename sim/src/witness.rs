//! What the traffic to the store must look like, whatever the brokers make of it (R11).
//!
//! A rule that is left out need not show in the data at once: a writer that does not look after it
//! has created a checkpoint harms nobody as long as it alone writes its log. So the rule itself is
//! watched: who deletes has looked.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_log::keys::{self, Named};
use tidemill_store::testing::{Event, Operation, Phase};
use tidemill_wire::ids::WriterId;

/// One broker incarnation, as its requests show it.
#[derive(Debug, Default)]
struct Traffic {
    /// Known from its first WAL object.
    writer: Option<WriterId>,
    /// The highest number of its own checkpoint log that it has created or tried to.
    newest: Option<u64>,
    /// The highest of them that a listing has shown as the log's highest.
    passed: Option<u64>,
    /// A listing has shown a higher number than one that had not passed: that one does not count.
    is_refused: bool,
}

impl Traffic {
    /// The next number follows one that counts, so that one has passed the look.
    fn creates(&mut self, number: u64, key: &str) -> Option<String> {
        let follows = self.newest.filter(|newest| *newest < number);
        let is_blind = follows.is_some() && self.passed != follows;
        self.newest = self.newest.max(Some(number));
        is_blind.then(|| format!("R11: `{key}` follows one after which nobody has looked"))
    }

    /// What is wrong with a deletion, if anything is.
    fn deletes(&self) -> Option<&'static str> {
        match (self.passed, self.is_refused) {
            (None, _) => Some("before a checkpoint of the deleter's own has passed the look"),
            (_, true) => Some("by a writer whose checkpoint has not passed the look"),
            _ => None,
        }
    }
}

/// Watches the requests of all brokers.
#[derive(Debug, Default)]
pub struct Witness {
    checkpoints: BTreeMap<WriterId, BTreeSet<u64>>,
    wal: BTreeMap<WriterId, BTreeSet<u64>>,
    traffic: BTreeMap<u64, Traffic>,
}

impl Witness {
    /// Notes a request's step; says what must not be.
    pub fn note(&mut self, backend: u64, event: &Event) -> Option<String> {
        let traffic = self.traffic.entry(backend).or_default();
        match (event.operation, &event.phase) {
            (Operation::Put | Operation::Copy, Phase::Sent) => {
                match (keys::parse(&event.key), traffic.writer) {
                    // Its own object 0 comes before anything else.
                    (Some(Named::Wal(writer, 0)), None) => traffic.writer = Some(writer),
                    (Some(Named::Checkpoint(writer, number)), Some(own)) if writer == own => {
                        return traffic.creates(number, &event.key);
                    }
                    _ => {}
                }
                None
            }
            (Operation::Put | Operation::Copy, Phase::Written(true)) => {
                if let Some((log, number)) = self.log_of(&event.key) {
                    log.insert(number);
                }
                None
            }
            (Operation::List, Phase::Landed(Ok(()))) => {
                if let Some(writer) = traffic.writer
                    && event.key.starts_with(&keys::ckpt_prefix(writer))
                {
                    let there = self.checkpoints.get(&writer);
                    let highest = there.and_then(BTreeSet::last).copied();
                    if highest == traffic.newest {
                        traffic.passed = highest;
                    }
                    traffic.is_refused |= traffic.newest.is_some()
                        && traffic.newest != traffic.passed
                        && highest > traffic.newest;
                }
                None
            }
            (Operation::Delete, Phase::Sent) => {
                let what = traffic.deletes()?;
                let is_named = keys::parse(&event.key).is_some();
                is_named.then(|| format!("R11: `{}` is deleted {what}", event.key))
            }
            (Operation::Delete, Phase::Landed(Ok(()))) => {
                let (log, number) = self.log_of(&event.key)?;
                let is_newest = log.last() == Some(&number);
                log.remove(&number);
                is_newest
                    .then(|| format!("R11: `{}`, the newest of its log, is deleted", event.key))
            }
            _ => None,
        }
    }

    /// One past the highest number that stands in a writer's WAL.
    pub fn next_wal_number(&self, writer: WriterId) -> u64 {
        let highest = self.wal.get(&writer).and_then(BTreeSet::last);
        highest.map_or(0, |highest| highest + 1)
    }

    /// The lowest number that stands in a writer's WAL.
    pub fn first_wal_number(&self, writer: WriterId) -> u64 {
        let lowest = self.wal.get(&writer).and_then(BTreeSet::first);
        lowest.copied().unwrap_or(0)
    }

    fn log_of(&mut self, key: &str) -> Option<(&mut BTreeSet<u64>, u64)> {
        match keys::parse(key)? {
            Named::Wal(writer, number) => Some((self.wal.entry(writer).or_default(), number)),
            Named::Checkpoint(writer, number) => {
                Some((self.checkpoints.entry(writer).or_default(), number))
            }
            Named::Data(_) => None,
        }
    }
}
