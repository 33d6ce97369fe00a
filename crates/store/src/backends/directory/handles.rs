//! Files kept open for range reads.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::fs::ReadFile;

/// Open files; far below the usual limit of 1,024.
const MAX_OPEN: usize = 256;
/// Files open for reading, those included that nothing but an answer under way keeps open: more are
/// not lent, so that slow readers of deleted objects take no descriptors from connections.
pub(crate) const MAX_LENT: usize = 2 * MAX_OPEN;

#[derive(Debug, Default)]
struct State {
    tick: u64,
    /// Counts removals, so that a handle opened before one is not kept after it.
    removals: u64,
    files: BTreeMap<String, (Arc<dyn ReadFile>, u64, u64)>,
}

/// The least recently used file is closed first.
#[derive(Debug, Default)]
pub(crate) struct Handles(Mutex<State>);

/// What [`Handles::removals`] returned before the file was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before(u64);

impl Handles {
    /// An open file and its length.
    pub(crate) fn get(&self, key: &str) -> Option<(Arc<dyn ReadFile>, u64)> {
        let mut state = self.0.lock();
        state.tick += 1;
        let tick = state.tick;
        let (file, len, used) = state.files.get_mut(key)?;
        *used = tick;
        Some((file.clone(), *len))
    }

    /// To be asked before opening a file that is to be kept.
    pub(crate) fn before(&self) -> Before {
        Before(self.0.lock().removals)
    }

    /// Keeps a file, unless any was removed since `before`: it may have been this one.
    pub(crate) fn keep(&self, before: Before, key: &str, file: Arc<dyn ReadFile>, len: u64) {
        let mut state = self.0.lock();
        if state.removals != before.0 {
            return;
        }
        if state.files.len() >= MAX_OPEN
            && let Some(oldest) = state
                .files
                .iter()
                .min_by_key(|(_, (_, _, used))| *used)
                .map(|(key, _)| key.clone())
        {
            state.files.remove(&oldest);
        }
        let tick = state.tick;
        state.files.insert(key.to_owned(), (file, len, tick));
    }

    /// Closes a file whose name is gone, so that its space is freed.
    pub(crate) fn remove(&self, key: &str) {
        let mut state = self.0.lock();
        state.removals += 1;
        state.files.remove(key);
    }
}
