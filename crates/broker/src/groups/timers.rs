//! Which group has something to do next.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Deadlines of groups, monotonic milliseconds. One set a shard.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    set: Mutex<BTreeSet<(i64, Arc<str>)>>,
    /// The earliest deadline moved forward.
    pub earlier: Notify,
}

impl Timers {
    /// Sets the deadline of `group`. A later one than before is left to the earlier firing, which
    /// looks again: heartbeats move deadlines all the time.
    pub fn set(&self, group: &str, scheduled: &mut Option<i64>, deadline_ms: Option<i64>) {
        let Some(deadline_ms) = deadline_ms else {
            return;
        };
        if scheduled.is_some_and(|at| at <= deadline_ms) {
            return;
        }
        let mut set = self.set.lock();
        let name: Arc<str> = Arc::from(group);
        if let Some(before) = scheduled.replace(deadline_ms) {
            set.remove(&(before, name.clone()));
        }
        let is_first = set.first().is_none_or(|(first, _)| deadline_ms < *first);
        set.insert((deadline_ms, name));
        drop(set);
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// The earliest deadline.
    pub fn next_ms(&self) -> Option<i64> {
        self.set.lock().first().map(|(at, _)| *at)
    }

    /// Takes the groups whose deadline has come.
    pub fn due(&self, now_ms: i64) -> Vec<Arc<str>> {
        let mut set = self.set.lock();
        let mut due = Vec::new();
        while set.first().is_some_and(|(at, _)| *at <= now_ms) {
            if let Some((_, name)) = set.pop_first() {
                due.push(name);
            }
        }
        due
    }
}
