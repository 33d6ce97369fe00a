//! An ordered map whose copies share what did not change.

use std::{borrow::Borrow, collections::BTreeSet, sync::Arc};

/// A chunk is copied when one of its entries changes while an older map shares it: small enough for
/// that to be cheap, large enough for 10,000 topics to need few hundreds of them.
const CHUNK_MAX: usize = 96;

type Chunk<K, V> = Arc<Vec<(K, V)>>;

/// An ordered map. Cloning it costs one reference count; a change to a shared one copies the list
/// of chunks (one reference count each) and one chunk.
#[derive(Clone, Debug)]
pub struct SharedMap<K, V> {
    /// No chunk is empty; ascending.
    chunks: Arc<Vec<Chunk<K, V>>>,
    len: usize,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self {
            chunks: Arc::default(),
            len: 0,
        }
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The chunk that holds `key`, or would.
    fn chunk_of<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.chunks
            .partition_point(|chunk| {
                chunk
                    .first()
                    .is_some_and(|(first, _)| first.borrow() <= key)
            })
            .saturating_sub(1)
    }

    /// The value at `key`.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        chunk.get(at).map(|(_, value)| value)
    }

    /// Sets the value at `key`.
    pub fn insert(&mut self, key: K, value: V) {
        let index = self.chunk_of(&key);
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(index) else {
            chunks.push(Arc::new(vec![(key, value)]));
            self.len += 1;
            return;
        };
        let entries = Arc::make_mut(chunk);
        match entries.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(at) => entries[at].1 = value,
            Err(at) => {
                entries.insert(at, (key, value));
                self.len += 1;
                if entries.len() > CHUNK_MAX {
                    let upper = entries.split_off(CHUNK_MAX / 2);
                    chunks.insert(index + 1, Arc::new(upper));
                }
            }
        }
    }

    /// Removes the value at `key` and returns it.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.get(key)?;
        let index = self.chunk_of(key);
        let chunks = Arc::make_mut(&mut self.chunks);
        let entries = Arc::make_mut(chunks.get_mut(index)?);
        let at = entries
            .binary_search_by(|(k, _)| k.borrow().cmp(key))
            .ok()?;
        let (_, value) = entries.remove(at);
        if entries.is_empty() {
            chunks.remove(index);
        }
        self.len -= 1;
        Some(value)
    }

    /// Entries in order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .map(|(key, value)| (key, value))
    }

    /// Entries of `newer` that may not be in this map, or not with that value. Costs what changed,
    /// and one look at every chunk.
    pub fn additions<'a>(&self, newer: &'a Self) -> impl Iterator<Item = (&'a K, &'a V)> {
        let known: BTreeSet<_> = self.chunks.iter().map(Arc::as_ptr).collect();
        newer
            .chunks
            .iter()
            .filter(move |chunk| !known.contains(&Arc::as_ptr(chunk)))
            .flat_map(|chunk| chunk.iter())
            .map(|(key, value)| (key, value))
    }
}
