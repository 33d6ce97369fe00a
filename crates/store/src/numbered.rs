//! Numbered logs: objects `<prefix>/<number>` created by put-if-absent.

use std::{ops::Range, time::Duration};

use bytes::Bytes;

use crate::{
    backend::Payload,
    envelope::PutId,
    error::{StoreError, StoreErrorKind},
    store::Store,
};

/// How a create of a number ended, for certain.
#[derive(Clone, Debug)]
pub enum CreateOutcome {
    /// The number holds our bytes: this try or an earlier one with the same put id created it.
    Ours,
    /// Somebody else's object holds the number; its bytes.
    Foreign(Bytes),
}

/// Digits of a number in a key, so that listings are in numeric order.
const DIGITS: usize = 20;

/// A numbered log below a prefix. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NumberedLog {
    store: Store,
    /// The folder, with its slash.
    folder: String,
}

impl NumberedLog {
    /// The log at `prefix` (no slash at the end), such as `meta`.
    #[must_use]
    pub fn new(store: Store, prefix: impl Into<String>) -> Self {
        let mut folder = prefix.into();
        folder.push('/');
        Self { store, folder }
    }

    /// The store it lies in.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The log's prefix, without slash at the end.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.folder.strip_suffix('/').unwrap_or(&self.folder)
    }

    /// The key of number `n`.
    #[must_use]
    pub fn key(&self, n: u64) -> String {
        format!("{}{n:0DIGITS$}", self.folder)
    }

    /// The number of a key of this log; `None` for any other key.
    #[must_use]
    pub fn number_of(&self, key: &str) -> Option<u64> {
        let digits = key.strip_prefix(&self.folder)?;
        if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        digits.parse().ok()
    }

    /// Creates number `n`; see [`Store::create`].
    ///
    /// # Errors
    /// As [`Store::create`].
    pub async fn create(
        &self,
        n: u64,
        body: Payload,
        put_id: PutId,
        deadline: Option<Duration>,
    ) -> Result<CreateOutcome, StoreError> {
        self.store
            .create(&self.key(n), body, put_id, deadline)
            .await
    }

    /// Reads number `n`; `None` if there is no such object.
    ///
    /// # Errors
    /// The last error once the read deadline has run out.
    pub async fn read(&self, n: u64) -> Result<Option<Bytes>, StoreError> {
        found(self.store.get(&self.key(n)).await)
    }

    /// Reads the first `len` bytes of number `n`, fewer if the object is shorter; `None` if there
    /// is no such object.
    ///
    /// # Errors
    /// The last error once the read deadline has run out.
    pub async fn read_prefix(&self, n: u64, len: u64) -> Result<Option<Bytes>, StoreError> {
        let key = self.key(n);
        match self.store.get_range(&key, 0..len).await {
            // The range ends beyond the object: it is shorter than `len`, so all of it is wanted.
            Err(error) if error.kind == StoreErrorKind::Invalid => {
                found(self.store.get(&key).await)
            }
            other => found(other),
        }
    }

    /// Reads `range` of number `n`; `None` if there is no such object.
    ///
    /// # Errors
    /// The last error once the read deadline has run out; `Invalid` for a range beyond the object.
    pub async fn read_range(&self, n: u64, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        found(self.store.get_range(&self.key(n), range).await)
    }

    /// Numbers at or above `n` with their sizes in bytes, ascending. Other keys are passed over.
    ///
    /// # Errors
    /// The last error once the read deadline has run out.
    pub async fn list_from(&self, n: u64) -> Result<Vec<(u64, u64)>, StoreError> {
        let after = n.checked_sub(1).map(|before| self.key(before));
        let found = self
            .store
            .list_after(&self.folder, after.as_deref())
            .await?;
        Ok(found
            .into_iter()
            .filter_map(|meta| Some((self.number_of(&meta.key)?, meta.size)))
            .collect())
    }

    /// The highest number, by listing (R11: never by probing).
    ///
    /// # Errors
    /// The last error once the read deadline has run out.
    pub async fn head_by_listing(&self) -> Result<Option<u64>, StoreError> {
        Ok(self.list_from(0).await?.last().map(|(n, _)| *n))
    }

    /// Deletes number `n`; one that does not exist is success.
    ///
    /// # Errors
    /// The last error once the read deadline has run out.
    pub async fn delete(&self, n: u64) -> Result<(), StoreError> {
        self.store.delete(&self.key(n)).await
    }
}

fn found(result: Result<Bytes, StoreError>) -> Result<Option<Bytes>, StoreError> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
