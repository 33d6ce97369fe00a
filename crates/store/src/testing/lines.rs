//! What the program logs, for tests of it.

use std::{
    fmt::{Debug, Write},
    sync::Arc,
};

use parking_lot::Mutex;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Keeps the lines of one part of the program, as a subscriber. Cheap to clone.
///
/// What a thread without a subscriber meets first is taken for unwanted by all threads: tests that
/// use it run one after the other, in a program of their own.
#[derive(Clone, Debug)]
pub struct Lines {
    target: &'static str,
    kept: Arc<Mutex<Vec<String>>>,
}

impl Lines {
    /// Lines whose target starts with `target`.
    #[must_use]
    pub fn of(target: &'static str) -> Self {
        let kept = Arc::default();
        Self { target, kept }
    }

    /// What was logged since this was last asked: the fields of each line, `message` among them.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.kept.lock())
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Text takes everything.
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(self.target)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.kept.lock().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
