//! A backend with retry, deadlines and counters.

use std::{future::Future, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use tidemill_runtime::{Instant, Runtime};

use crate::{
    backend::{Backend, ObjectMeta, Payload, PutAnswer},
    backends::directory::fs::Space,
    error::{StoreError, StoreErrorKind},
    pace::{
        Estimate, HedgeCounters, HedgeOptions, Pace,
        race::{Late, Race},
    },
    stats::{Counters, Spell, StoreCounters, add},
};

/// Limits of retry. All named, all settable.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// One request's deadline.
    pub request_timeout: Duration,
    /// First pause between tries; doubles up to `backoff_max`, with jitter.
    pub backoff_min: Duration,
    /// Longest pause between tries.
    pub backoff_max: Duration,
    /// Total time after which a *read* or listing gives up. Puts on the WAL never give up (R4).
    pub read_deadline: Duration,
    /// Slow requests are sent a second time.
    pub hedge: HedgeOptions,
}

impl Default for StoreOptions {
    /// 30 s a request, pauses from 20 ms to 2 s, reads give up after 60 s.
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(30),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(2),
            read_deadline: Duration::from_secs(60),
            hedge: HedgeOptions::default(),
        }
    }
}

/// Bytes assumed of an object that is read whole, whose size is not known: a large WAL object.
const WHOLE_BYTES: u64 = 4 << 20;

/// Keys asked for in one listing; the most that S3 gives.
pub const LIST_PAGE: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) runtime: Runtime,
    pub(crate) options: StoreOptions,
    pub(crate) counters: Counters,
    name: String,
    spell: Spell,
    pub(crate) puts: Arc<Pace>,
    gets: Arc<Pace>,
    pub(crate) late: Late,
}

/// A store as the log uses it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    /// `None`: reads never give up.
    read_deadline: Option<Duration>,
    /// Writes that find no space are given up at once.
    pub(crate) yields_when_full: bool,
}

/// The tries of one logical request: pauses between them, and when to give up.
pub(crate) struct Tries<'a> {
    shared: &'a Shared,
    until: Option<Instant>,
    pause: Duration,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(shared: &'a Shared, deadline: Option<Duration>) -> Self {
        let until = deadline.map(|deadline| shared.runtime.clock.monotonic() + deadline);
        Self {
            shared,
            until,
            pause: shared.options.backoff_min,
        }
    }

    /// Waits before the next try; false if the deadline comes first.
    pub(crate) async fn again(&mut self) -> bool {
        let clock = &self.shared.runtime.clock;
        // Between half and all of the pause, so that many waiters do not come back at once.
        let half = self.pause / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        let jitter = Duration::from_nanos(self.shared.runtime.entropy.below(nanos));
        let next = clock.monotonic() + half + jitter;
        if self.until.is_some_and(|until| next >= until) {
            return false;
        }
        clock.sleep_until(next).await;
        self.pause = (self.pause * 2).min(self.shared.options.backoff_max);
        add(&self.shared.counters.retries, 1);
        true
    }
}

/// True if asking again gives the same answer.
fn is_final(error: &StoreError) -> bool {
    matches!(
        error.kind,
        StoreErrorKind::NotFound | StoreErrorKind::Invalid
    )
}

/// The bytes that a GET moved; `None` if it says nothing of the store's speed.
fn received(_expected: u64, answer: &Result<Bytes, StoreError>) -> Option<u64> {
    match answer {
        Ok(bytes) => Some(bytes.len() as u64),
        Err(error) => is_final(error).then_some(0),
    }
}

impl Shared {
    /// One request with its time-out. A request that ran into it may still be carried out.
    async fn request<T>(
        &self,
        operation: &'static str,
        key: &str,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let timeout = self.options.request_timeout;
        let result = self
            .runtime
            .clock
            .timeout(timeout, request)
            .await
            .unwrap_or_else(|_| {
                let message = format!("no answer within {} ms", timeout.as_millis());
                Err(StoreError::new(
                    StoreErrorKind::Unknown,
                    operation,
                    key,
                    message,
                ))
            });
        if let Err(error) = &result {
            self.counters.count_error(error.kind);
        }
        self.note(&result);
        result
    }

    fn note<T>(&self, result: &Result<T, StoreError>) {
        let now = self.runtime.clock.monotonic();
        match result {
            // Nothing is wrong with a store that says so.
            Err(error) if is_final(error) => {}
            Err(error) => self.spell.failed(now, &self.name, error),
            Ok(_) => self.spell.succeeded(now, &self.name),
        }
    }

    /// An answer that makes no sense is trouble too.
    pub(crate) fn note_trouble(&self, error: &StoreError) {
        self.counters.count_error(error.kind);
        self.spell
            .failed(self.runtime.clock.monotonic(), &self.name, error);
    }

    /// One PUT request: the only place that sends one.
    pub(crate) async fn put_try(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        add(&self.counters.put_tries, 1);
        add(&self.counters.bytes_up, body.len());
        self.request("put", key, self.backend.put_if_absent(key, body))
            .await
    }

    /// A first try has ended. What follows from it is calculated in a task of its own: no answer
    /// waits for that.
    pub(crate) fn measured(&self, pace: &Arc<Pace>, bytes: u64, took: Duration) {
        if pace.measured(bytes, took) {
            let pace = Arc::clone(pace);
            let calculate = async move { pace.calculate() };
            self.runtime.tasks.spawn("store-pace", calculate);
        }
    }

    /// A PUT that is not hedged, measured.
    pub(crate) async fn put_once(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        let bytes = body.len();
        let start = self.runtime.clock.monotonic();
        let answer = self.put_try(key, body).await;
        if answer.is_ok() {
            let took = self.runtime.clock.monotonic() - start;
            self.measured(&self.puts, bytes, took);
        }
        answer
    }

    pub(crate) async fn copy_try(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        add(&self.counters.copies, 1);
        self.request("copy", to, self.backend.copy_if_absent(from, to))
            .await
    }

    /// One GET, hedged at most once; `None` reads the whole object.
    pub(crate) async fn get_try(
        self: &Arc<Self>,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<Bytes, StoreError> {
        let expected = match &range {
            Some(range) => range.end.saturating_sub(range.start),
            None => WHOLE_BYTES,
        };
        if !self.gets.hedges(expected) {
            let start = self.runtime.clock.monotonic();
            let answer = self.get_once(key, range).await;
            if let Some(bytes) = received(expected, &answer) {
                let took = self.runtime.clock.monotonic() - start;
                self.measured(&self.gets, bytes, took);
            }
            return answer;
        }
        let key: Arc<str> = key.into();
        let send = || {
            let (shared, key, range) = (self.clone(), key.clone(), range.clone());
            async move { shared.get_once(&key, range).await }
        };
        let mut race = Race::start((self, &self.gets), expected, 1, received, send);
        loop {
            let ended = race.next().await;
            let answers = match &ended.answer {
                Ok(_) => true,
                Err(error) => is_final(error),
            };
            if answers || race.is_over() {
                race.finish(answers && ended.is_hedge);
                return ended.answer;
            }
        }
    }

    /// One GET request: the only place that sends one.
    async fn get_once(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, StoreError> {
        add(&self.counters.gets, 1);
        let wanted = range
            .as_ref()
            .map(|range| range.end.saturating_sub(range.start));
        let result = match range {
            Some(range) => {
                self.request("get", key, self.backend.get_range(key, range))
                    .await
            }
            None => self.request("get", key, self.backend.get(key)).await,
        };
        let bytes = result?;
        add(&self.counters.bytes_down, bytes.len() as u64);
        if let Some(wanted) = wanted
            && wanted != bytes.len() as u64
        {
            let message = format!("{} bytes instead of {wanted}", bytes.len());
            let error = StoreError::new(StoreErrorKind::Corrupt, "get", key, message);
            self.note_trouble(&error);
            return Err(error);
        }
        Ok(bytes)
    }

    /// One page, checked for order.
    pub(crate) async fn list_try(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        add(&self.counters.lists, 1);
        let request = self.backend.list(prefix, start_after, limit);
        let page = self.request("list", prefix, request).await?;
        let ascending = page.windows(2).all(|pair| pair[0].key < pair[1].key);
        let in_prefix = page.iter().all(|meta| meta.key.starts_with(prefix));
        let after = start_after
            .is_none_or(|after| page.first().is_none_or(|first| first.key.as_str() > after));
        if ascending && in_prefix && after && page.len() <= limit {
            return Ok(page);
        }
        let message = "the listing is not in order";
        let error = StoreError::new(StoreErrorKind::Corrupt, "list", prefix, message);
        self.note_trouble(&error);
        Err(error)
    }
}

impl Store {
    /// Wraps `backend`.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, runtime: Runtime, options: StoreOptions) -> Self {
        let read_deadline = Some(options.read_deadline);
        let pace = || Pace::new(options.hedge, backend.is_local());
        let (puts, gets) = (pace(), pace());
        let shared = Shared {
            name: backend.describe(),
            backend,
            runtime,
            options,
            counters: Counters::default(),
            spell: Spell::default(),
            puts: Arc::new(puts),
            gets: Arc::new(gets),
            late: Late::default(),
        };
        Self {
            shared: Arc::new(shared),
            read_deadline,
            yields_when_full: false,
        }
    }

    /// The same store, whose reads, listings and deletes never give up: for recovery (K66).
    #[must_use]
    pub fn patient(&self) -> Self {
        Self {
            read_deadline: None,
            ..self.clone()
        }
    }

    /// The same store, whose writes are given up once there is no space, whatever their deadline:
    /// for those who would rather make room than wait for it.
    #[must_use]
    pub fn yielding_when_full(&self) -> Self {
        Self {
            yields_when_full: true,
            ..self.clone()
        }
    }

    /// The same store, whose reads, listings and deletes give up after `deadline`.
    #[must_use]
    pub fn with_read_deadline(&self, deadline: Duration) -> Self {
        Self {
            read_deadline: Some(deadline),
            ..self.clone()
        }
    }

    /// The backend below.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// The clock, entropy and tasks it was given.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// True if requests cost no money and no round trip.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.shared.backend.is_local()
    }

    /// As [`Backend::lists_at_once`].
    #[must_use]
    pub fn lists_at_once(&self) -> bool {
        self.shared.backend.lists_at_once()
    }

    /// A name for logs and errors; no secrets.
    #[must_use]
    pub fn describe(&self) -> String {
        self.shared.name.clone()
    }

    /// Free and total space; `None` where there is no such limit.
    ///
    /// # Errors
    /// If the file system does not say.
    pub async fn space(&self) -> Result<Option<Space>, StoreError> {
        self.shared.backend.space().await
    }

    /// True if a crash may leave torn objects and lose acknowledged ones (`local.sync = os`).
    #[must_use]
    pub fn may_tear(&self) -> bool {
        self.shared.backend.may_tear()
    }

    /// Moves a torn object out of the way, as [`Backend::set_aside`].
    ///
    /// # Errors
    /// The last error once the read deadline has run out.
    pub async fn set_aside(&self, key: &str) -> Result<bool, StoreError> {
        self.retried(|| {
            self.shared
                .request("set aside", key, self.shared.backend.set_aside(key))
        })
        .await
    }

    /// What has been done so far.
    #[must_use]
    pub fn counters(&self) -> StoreCounters {
        self.shared.counters.snapshot()
    }

    /// What a PUT is measured to take.
    #[must_use]
    pub fn put_estimate(&self) -> Estimate {
        self.shared.puts.estimate()
    }

    /// What a GET is measured to take.
    #[must_use]
    pub fn get_estimate(&self) -> Estimate {
        self.shared.gets.estimate()
    }

    /// What a PUT is measured to take, once that is enough to rely on.
    #[must_use]
    pub fn put_measured(&self) -> Option<Estimate> {
        let least = self.shared.options.hedge.measured_min;
        Some(self.put_estimate()).filter(|estimate| estimate.measured >= least)
    }

    /// PUTs sent a second time.
    #[must_use]
    pub fn put_hedges(&self) -> HedgeCounters {
        self.shared.puts.counters()
    }

    /// GETs sent a second time.
    #[must_use]
    pub fn get_hedges(&self) -> HedgeCounters {
        self.shared.gets.counters()
    }

    /// Repeats an idempotent request until it succeeds, the answer is final or time is up.
    async fn retried<T, F, R>(&self, mut request: F) -> Result<T, StoreError>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<T, StoreError>>,
    {
        let mut tries = Tries::new(&self.shared, self.read_deadline);
        loop {
            let error = match request().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            // Refusals are waited out as well: credentials and clocks come right again (K94).
            if is_final(&error) || !tries.again().await {
                return Err(error);
            }
        }
    }

    /// Reads an object.
    ///
    /// # Errors
    /// `NotFound`, or the last error once the read deadline has run out.
    pub async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.retried(|| self.shared.get_try(key, None)).await
    }

    /// Reads `range` (bytes) of an object.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` if the range ends beyond the object, or the last error once the read
    /// deadline has run out.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.retried(|| self.shared.get_try(key, Some(range.clone())))
            .await
    }

    /// Size and time of an object.
    ///
    /// # Errors
    /// `NotFound`, or the last error once the read deadline has run out.
    pub async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.retried(|| {
            add(&self.shared.counters.gets, 1);
            self.shared
                .request("head", key, self.shared.backend.head(key))
        })
        .await
    }

    /// One page of a listing, as [`Backend::list`].
    ///
    /// # Errors
    /// The last error once the read deadline has run out.
    pub async fn list_page(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        self.retried(|| self.shared.list_try(prefix, start_after, limit))
            .await
    }

    /// All objects below `prefix` (a folder with its slash, or empty), ascending by key.
    ///
    /// # Errors
    /// The last error once the read deadline has run out, per page.
    pub async fn list_all(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.list_after(prefix, None).await
    }

    /// All objects below `prefix` whose key is greater than `start_after`, ascending by key.
    ///
    /// # Errors
    /// The last error once the read deadline has run out, per page.
    pub async fn list_after(
        &self,
        prefix: &str,
        start_after: Option<&str>,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        // Without order, each page costs as much as all of them.
        let limit = if self.lists_at_once() {
            LIST_PAGE
        } else {
            usize::MAX
        };
        let mut all = self.list_page(prefix, start_after, limit).await?;
        let mut page_len = all.len();
        while page_len == limit {
            let after = all.last().map(|meta| meta.key.clone());
            let page = self.list_page(prefix, after.as_deref(), limit).await?;
            page_len = page.len();
            all.extend(page);
        }
        Ok(all)
    }

    /// Deletes an object; one that does not exist is success.
    ///
    /// # Errors
    /// The last error once the read deadline has run out.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.retried(|| {
            add(&self.shared.counters.deletes, 1);
            self.shared
                .request("delete", key, self.shared.backend.delete(key))
        })
        .await
    }
}
