//! Put-if-absent whose outcome is certain in the end (R2).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    backend::{Payload, PutAnswer},
    envelope::{Envelope, PutId},
    error::{StoreError, StoreErrorKind},
    numbered::CreateOutcome,
    pace::race::Race,
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

/// Hedges of one PUT, at most; the budget allows about as many in a burst.
const HEDGES_MAX: usize = 12;

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
    /// - `Full` if there is no space and the store [yields](Store::yielding_when_full).
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
        let mut doubt = Doubt::default();
        loop {
            let round = match write.from {
                Some(from) => self.copy_round(from, &write, &mut doubt).await,
                None if self.shared.puts.hedges(write.body.len()) => {
                    self.raced_round(&write, &mut doubt).await
                }
                None => self.put_round(&write, &mut doubt).await,
            };
            let error = match round {
                Ok(outcome) => {
                    if matches!(outcome, CreateOutcome::Ours) {
                        add(&self.shared.counters.puts, 1);
                    }
                    return Ok(outcome);
                }
                Err(error) => error,
            };
            doubt.may_have_landed |= error.is_unknown();
            let is_final = match error.kind {
                StoreErrorKind::Refused => deadline.is_some(),
                StoreErrorKind::Full => self.yields_when_full,
                StoreErrorKind::Invalid => true,
                StoreErrorKind::NotFound if doubt.source_is_gone => return Err(error),
                _ => false,
            };
            if is_final || !tries.again().await {
                return Err(doubt.settle(error));
            }
        }
    }

    /// One try of a copy.
    async fn copy_round(
        &self,
        from: &str,
        write: &Write<'_>,
        doubt: &mut Doubt,
    ) -> Result<CreateOutcome, StoreError> {
        let gone = match self.shared.copy_try(from, write.key).await {
            Ok(PutAnswer::Created) => return Ok(CreateOutcome::Ours),
            Ok(PutAnswer::Exists) => None,
            // The source is gone, which it may be because an earlier try landed.
            Err(error) if error.kind == StoreErrorKind::NotFound => Some(error),
            Err(error) => return Err(error),
        };
        match (self.look(write, doubt).await, gone) {
            (Look::StillUnknown(seen), Some(gone)) if seen.kind == StoreErrorKind::NotFound => {
                doubt.source_is_gone = true;
                Err(gone)
            }
            (look, _) => self.looked(look, doubt),
        }
    }

    /// One try of a PUT.
    async fn put_round(
        &self,
        write: &Write<'_>,
        doubt: &mut Doubt,
    ) -> Result<CreateOutcome, StoreError> {
        match self.shared.put_once(write.key, write.body.clone()).await? {
            PutAnswer::Created => Ok(CreateOutcome::Ours),
            PutAnswer::Exists => {
                let look = self.look(write, doubt).await;
                self.looked(look, doubt)
            }
        }
    }

    /// One try of a PUT and its hedges, which send the same bytes; the first answer wins. That a
    /// hedge is refused after its twin has succeeded, nobody hears.
    async fn raced_round(
        &self,
        write: &Write<'_>,
        doubt: &mut Doubt,
    ) -> Result<CreateOutcome, StoreError> {
        let key: Arc<str> = write.key.into();
        let send = || {
            let (shared, key, body) = (self.shared.clone(), key.clone(), write.body.clone());
            async move { shared.put_try(&key, body).await }
        };
        let (shared, bytes) = (&self.shared, write.body.len());
        let mut race = Race::start((shared, &shared.puts), bytes, HEDGES_MAX, answered, send);
        loop {
            let ended = race.next().await;
            let mut won_by_hedge = ended.is_hedge;
            let result = match ended.answer {
                Ok(PutAnswer::Created) => Ok(CreateOutcome::Ours),
                // One of the others may have landed: whichever says so first, it or a look.
                Ok(PutAnswer::Exists) => {
                    let look = self.look(write, doubt);
                    tokio::select! {
                        biased;
                        is_hedge = created(&mut race) => {
                            won_by_hedge = is_hedge;
                            Ok(CreateOutcome::Ours)
                        }
                        look = look => self.looked(look, doubt),
                    }
                }
                Err(error) => {
                    doubt.may_have_landed |= error.is_unknown();
                    Err(error)
                }
            };
            if result.is_ok() || race.is_over() {
                race.finish(result.is_ok() && won_by_hedge);
                return result;
            }
        }
    }

    /// What a look at a taken key means.
    fn looked(&self, look: Look, doubt: &mut Doubt) -> Result<CreateOutcome, StoreError> {
        match look {
            Look::Ours => Ok(CreateOutcome::Ours),
            Look::Foreign(bytes) => Ok(CreateOutcome::Foreign(bytes)),
            Look::StillUnknown(seen) => {
                // "Exists" can be the echo of our own try still under way (409).
                doubt.may_have_landed = true;
                self.shared.note_trouble(&seen);
                Err(seen)
            }
        }
    }

    /// Reads who holds a key that the store calls taken.
    async fn look(&self, write: &Write<'_>, doubt: &mut Doubt) -> Look {
        let (key, put_id) = (write.key, write.put_id);
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
            doubt.damaged_reads += 1;
            if doubt.damaged_reads < DAMAGED_READS {
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

/// What is not certain yet of a write.
#[derive(Debug, Default)]
struct Doubt {
    /// A try may have landed: from then on no error may say that nothing was written.
    may_have_landed: bool,
    damaged_reads: u32,
    /// A copy has neither source nor target.
    source_is_gone: bool,
}

impl Doubt {
    fn settle(&self, mut error: StoreError) -> StoreError {
        if self.may_have_landed {
            error.kind = StoreErrorKind::Unknown;
        }
        error
    }
}

/// Waits until one of the race has created the object, for ever if none does; true if a hedge did.
async fn created<S, F>(race: &mut Race<PutAnswer, S>) -> bool
where
    S: Fn() -> F,
    F: Future<Output = Result<PutAnswer, StoreError>> + Send + 'static,
{
    while !race.is_over() {
        let ended = race.next().await;
        if matches!(ended.answer, Ok(PutAnswer::Created)) {
            return ended.is_hedge;
        }
    }
    std::future::pending().await
}

/// The bytes that a PUT moved; `None` if it says nothing of the store's speed.
fn answered(sent: u64, answer: &Result<PutAnswer, StoreError>) -> Option<u64> {
    answer.is_ok().then_some(sent)
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
