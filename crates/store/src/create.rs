//! Put-if-absent whose outcome is certain in the end (R2).

use std::time::Duration;

use bytes::Bytes;

use crate::{
    backend::{Payload, PutAnswer},
    envelope::{Envelope, PutId},
    error::{StoreError, StoreErrorKind},
    numbered::CreateOutcome,
    stats::add,
    store::{Store, Tries},
};

/// What a look at a taken key has shown.
enum Look {
    Ours,
    Foreign(Bytes),
    /// Nothing there, torn, or unreadable: the same bytes are sent again.
    StillUnknown(StoreError),
}

/// Reads of a whole foreign object whose directory's checksum is wrong before it is handed over as
/// it is: by then the damage is in the object, and its decoder names it.
const DAMAGED_READS: u32 = 8;

impl Store {
    /// Creates `key` with `body`, whose first bytes hold `put_id` ([`Envelope`]), with the same
    /// bytes again until the outcome is certain (R2). A `deadline` of `None` waits for ever and
    /// waits out refusals too (R4); with one, a refusal is returned at once.
    ///
    /// # Errors
    /// - `Refused` if the store refuses and no earlier try of this call can have landed.
    /// - `Invalid` if the key cannot be one.
    /// - At the deadline the last error, of kind `Unknown` if any try may have landed.
    pub async fn create(
        &self,
        key: &str,
        body: Payload,
        put_id: PutId,
        deadline: Option<Duration>,
    ) -> Result<CreateOutcome, StoreError> {
        debug_assert!(
            starts_with_id(&body, put_id),
            "the body of `{key}` lacks its put id"
        );
        let write = Write {
            from: None,
            key,
            body,
            put_id,
        };
        self.write(write, deadline).await
    }

    /// Creates a data object under a name that nobody else uses.
    ///
    /// # Errors
    /// As [`Store::create`], and `Invalid` if somebody else's object has the name.
    pub async fn put_unique(
        &self,
        key: &str,
        body: Payload,
        put_id: PutId,
        deadline: Option<Duration>,
    ) -> Result<(), StoreError> {
        match self.create(key, body, put_id, deadline).await? {
            CreateOutcome::Ours => Ok(()),
            CreateOutcome::Foreign(_) => {
                let message = "another write has taken a name that should be unique";
                Err(StoreError::new(
                    StoreErrorKind::Invalid,
                    "put",
                    key,
                    message,
                ))
            }
        }
    }

    /// Copies `from`, which carries `put_id`, to `to` on the store's side unless `to` exists.
    /// [`CreateOutcome::Ours`] means that `to` is a copy of `from`.
    ///
    /// # Errors
    /// As [`Store::create`], and `NotFound` if there is neither `from` nor a copy of it.
    pub async fn copy_if_absent(
        &self,
        from: &str,
        to: &str,
        put_id: PutId,
        deadline: Option<Duration>,
    ) -> Result<CreateOutcome, StoreError> {
        let write = Write {
            from: Some(from),
            key: to,
            body: Payload::new(),
            put_id,
        };
        self.write(write, deadline).await
    }

    async fn write(
        &self,
        write: Write<'_>,
        deadline: Option<Duration>,
    ) -> Result<CreateOutcome, StoreError> {
        let mut tries = Tries::new(&self.shared, deadline);
        // True once a try may have landed: from then on no error may say that nothing was written.
        let mut may_have_landed = false;
        let mut damaged_reads = 0;
        loop {
            let answer = match write.from {
                Some(from) => self.shared.copy_try(from, write.key).await,
                None => self.shared.put_try(write.key, write.body.clone()).await,
            };
            let copied_from_nothing = write.from.is_some()
                && matches!(&answer, Err(error) if error.kind == StoreErrorKind::NotFound);
            let error = match answer {
                Ok(PutAnswer::Created) => {
                    add(&self.shared.counters.puts, 1);
                    return Ok(CreateOutcome::Ours);
                }
                Err(error) if !copied_from_nothing => error,
                // Taken, or the source is gone, which it may be because an earlier try landed.
                taken_or_gone => {
                    match self.look(write.key, write.put_id, &mut damaged_reads).await {
                        Look::Ours => {
                            add(&self.shared.counters.puts, 1);
                            return Ok(CreateOutcome::Ours);
                        }
                        Look::Foreign(bytes) => return Ok(CreateOutcome::Foreign(bytes)),
                        Look::StillUnknown(seen) => {
                            if let Err(gone) = taken_or_gone
                                && seen.kind == StoreErrorKind::NotFound
                            {
                                return Err(gone);
                            }
                            // "Exists" can be the echo of our own try still under way (409).
                            may_have_landed = true;
                            self.shared.note_trouble(&seen);
                            seen
                        }
                    }
                }
            };
            may_have_landed |= error.is_unknown();
            let is_final = match error.kind {
                StoreErrorKind::Refused => deadline.is_some(),
                StoreErrorKind::Invalid => true,
                _ => false,
            };
            if is_final || !tries.again().await {
                return Err(settle(error, may_have_landed));
            }
        }
    }

    /// Reads who holds a key that the store calls taken.
    async fn look(&self, key: &str, put_id: PutId, damaged_reads: &mut u32) -> Look {
        let header = match self
            .shared
            .get_try(key, Some(0..Envelope::LEN as u64))
            .await
        {
            Ok(header) => header,
            // Also an object shorter than a header: torn.
            Err(error) => return Look::StillUnknown(error),
        };
        let Some(holder) = Envelope::checked_put_id(&header) else {
            return Look::StillUnknown(torn(key, "its header is torn or not ours"));
        };
        if holder == put_id {
            return Look::Ours;
        }
        let bytes = match self.shared.get_try(key, None).await {
            Ok(bytes) => bytes,
            Err(error) => return Look::StillUnknown(error),
        };
        if Envelope::checked_put_id(&bytes) != Some(holder) {
            return Look::StillUnknown(torn(key, "two reads of it differ"));
        }
        if !Envelope::is_whole(&bytes) {
            *damaged_reads += 1;
            if *damaged_reads < DAMAGED_READS {
                return Look::StillUnknown(torn(key, "it is shorter than it says, or damaged"));
            }
        }
        Look::Foreign(bytes)
    }
}

struct Write<'a> {
    /// The source of a copy; `None` for a PUT.
    from: Option<&'a str>,
    key: &'a str,
    body: Payload,
    put_id: PutId,
}

fn torn(key: &str, what: &str) -> StoreError {
    let message = format!("the key is taken, but {what}");
    StoreError::new(StoreErrorKind::Corrupt, "get", key, message)
}

fn settle(mut error: StoreError, may_have_landed: bool) -> StoreError {
    if may_have_landed {
        error.kind = StoreErrorKind::Unknown;
    }
    error
}

/// True if the header at the front of `body`, whatever slices it spans, carries `put_id`.
fn starts_with_id(body: &Payload, put_id: PutId) -> bool {
    let front: Vec<u8> = body
        .slices()
        .iter()
        .flatten()
        .copied()
        .take(Envelope::LEN)
        .collect();
    Envelope::checked_put_id(&front) == Some(put_id)
}
