//! A backend that misbehaves by a plan and a seed.

use std::{
    fmt,
    future::Future,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tidemill_runtime::{Entropy, Instant, Runtime};
use tokio::sync::Notify;

use super::fault::{Fault, FaultPlan, Operation};
use crate::{
    backend::{Backend, ObjectMeta, Payload, PutAnswer},
    backends::directory::fs::Space,
    error::{StoreError, StoreErrorKind},
};

/// A moment in a request's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The caller has sent it.
    Sent,
    /// It has been carried out below, which answered so.
    Landed(Result<(), StoreErrorKind>),
    /// A write has been carried out below; true if it created the object.
    Written(bool),
    /// The caller has this answer.
    Answered(Result<(), StoreErrorKind>),
}

/// What a history hook is told.
#[derive(Clone, Debug)]
pub struct Event {
    /// The request, counted from 0 per backend.
    pub request: u64,
    /// Its operation.
    pub operation: Operation,
    /// Its key, or the prefix of a listing.
    pub key: String,
    /// What happened.
    pub phase: Phase,
    /// When.
    pub at: Instant,
}

/// A moment at which a backend stops in its tracks: no request goes on, and no answer comes, from
/// the one after `skip` others that do `operation` on a key containing `key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The operation.
    pub operation: Operation,
    /// What the key (or the prefix of a listing) must contain.
    pub key: String,
    /// True for the moment after it is carried out, false for the moment it is sent.
    pub landed: bool,
    /// So many pass first.
    pub skip: u64,
}

type Hook = Arc<dyn Fn(&Event) + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Faults by the plan.
    Plan,
    /// Every request fails at once and is not carried out.
    Down,
    /// No request is carried out or answered until the mode changes.
    Hung,
    /// No faults.
    Healthy,
}

struct Inner {
    below: Arc<dyn Backend>,
    runtime: Runtime,
    entropy: Entropy,
    plan: Mutex<FaultPlan>,
    mode: Mutex<Mode>,
    /// Wakes in the order of waiting, which a watch channel does not: runs must follow the seed.
    mode_changed: Notify,
    full: AtomicBool,
    next_request: AtomicU64,
    hook: Mutex<Option<Hook>>,
    pause_at: Mutex<Option<Step>>,
}

/// Wraps a backend with faults. Clones share plan, mode and history.
///
/// Writes run in tasks of the runtime handed in, so that a caller that is dropped (a time-out, a
/// killed broker) leaves them under way: they may land after its death. Hand in a runtime that
/// outlives the broker under test.
#[derive(Clone)]
pub struct FaultyBackend(Arc<Inner>);

impl fmt::Debug for FaultyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FaultyBackend").field(&self.0.below).finish()
    }
}

struct Request {
    inner: Arc<Inner>,
    id: u64,
    operation: Operation,
    key: String,
    fault: Option<Fault>,
    delay: Duration,
}

impl FaultyBackend {
    /// Faults by `plan`, drawn from `seed`.
    #[must_use]
    pub fn new(below: Arc<dyn Backend>, runtime: Runtime, seed: u64, plan: FaultPlan) -> Self {
        Self(Arc::new(Inner {
            below,
            runtime,
            entropy: Entropy::from_seed(seed),
            plan: Mutex::new(plan),
            mode: Mutex::new(Mode::Plan),
            mode_changed: Notify::new(),
            full: AtomicBool::new(false),
            next_request: AtomicU64::new(0),
            hook: Mutex::new(None),
            pause_at: Mutex::new(None),
        }))
    }

    /// Replaces the plan.
    pub fn set_plan(&self, plan: FaultPlan) {
        *self.0.plan.lock() = plan;
    }

    /// From now on every request fails at once (503) and is not carried out.
    pub fn go_down(&self) {
        self.set_mode(Mode::Down);
    }

    /// From now on no request is carried out or answered, until the next switch.
    pub fn pause(&self) {
        self.set_mode(Mode::Hung);
    }

    /// Pauses as soon as a request comes to this step.
    pub fn pause_at(&self, step: Step) {
        *self.0.pause_at.lock() = Some(step);
    }

    /// True while no request is carried out or answered.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        *self.0.mode.lock() == Mode::Hung
    }

    /// From now on no faults; paused requests go on. Late writes still arrive.
    pub fn heal(&self) {
        self.0.full.store(false, Ordering::Relaxed);
        self.set_mode(Mode::Healthy);
    }

    /// Faults by the plan again.
    pub fn resume(&self) {
        self.set_mode(Mode::Plan);
    }

    /// Whether writes find no space, in any mode.
    pub fn set_full(&self, full: bool) {
        self.0.full.store(full, Ordering::Relaxed);
    }

    /// Calls `hook` at every phase of every request. It must send no request.
    pub fn on_event(&self, hook: impl Fn(&Event) + Send + Sync + 'static) {
        *self.0.hook.lock() = Some(Arc::new(hook));
    }

    fn set_mode(&self, mode: Mode) {
        *self.0.pause_at.lock() = None;
        *self.0.mode.lock() = mode;
        self.0.mode_changed.notify_waiters();
    }

    /// Holds an answer back while the store hangs.
    async fn answer<T>(&self, result: T) -> T {
        self.mode().await;
        result
    }

    /// The mode, once it is not to hang.
    async fn mode(&self) -> Mode {
        loop {
            let mut changed = std::pin::pin!(self.0.mode_changed.notified());
            changed.as_mut().enable();
            let mode = *self.0.mode.lock();
            if mode != Mode::Hung {
                return mode;
            }
            changed.await;
        }
    }

    /// Draws the request's fate and waits while the store hangs.
    async fn begin(&self, operation: Operation, key: &str) -> Result<Request, StoreError> {
        let id = self.0.next_request.fetch_add(1, Ordering::Relaxed);
        let mut request = Request {
            inner: self.0.clone(),
            id,
            operation,
            key: key.to_owned(),
            fault: None,
            delay: Duration::ZERO,
        };
        request.tell(Phase::Sent);
        let mode = self.mode().await;
        let writes = matches!(operation, Operation::Put | Operation::Copy);
        let mut plan = self.0.plan.lock();
        if let Some((least, most)) = plan.delay {
            let spread = most.saturating_sub(least);
            let nanos = u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX);
            request.delay = least + Duration::from_nanos(self.0.entropy.below(nanos));
        }
        request.fault = match mode {
            Mode::Plan | Mode::Hung => plan.pick(&self.0.entropy, operation, key),
            Mode::Down => Some(Fault::Throttled),
            Mode::Healthy => None,
        };
        if writes && self.0.full.load(Ordering::Relaxed) {
            request.fault = Some(Fault::Full);
        }
        Ok(request)
    }

    async fn write(
        &self,
        operation: Operation,
        key: &str,
        work: Write,
    ) -> Result<PutAnswer, StoreError> {
        let request = self.begin(operation, key).await?;
        let task = self.0.runtime.tasks.clone();
        let running = task.spawn("faulty-store-write", request.write(work));
        let result = running.join().await.unwrap_or_else(|panic| {
            let message = panic.to_string();
            Err(StoreError::new(
                StoreErrorKind::Unknown,
                operation.name(),
                key,
                message,
            ))
        });
        self.answer(result).await
    }
}

#[derive(Clone)]
enum Write {
    Put(Payload),
    Copy(String),
}

impl Request {
    fn tell(&self, phase: Phase) {
        self.spring(&phase);
        let hook = self.inner.hook.lock().clone();
        if let Some(hook) = hook {
            let at = self.inner.runtime.clock.monotonic();
            let key = self.key.clone();
            hook(&Event {
                request: self.id,
                operation: self.operation,
                key,
                phase,
                at,
            });
        }
    }

    /// Pauses everything if this is the step to do so.
    fn spring(&self, phase: &Phase) {
        let landed = match phase {
            Phase::Sent => false,
            Phase::Written(_) | Phase::Landed(Ok(())) => true,
            Phase::Landed(Err(_)) | Phase::Answered(_) => return,
        };
        let mut pause_at = self.inner.pause_at.lock();
        let Some(step) = pause_at.as_mut() else {
            return;
        };
        let fits = step.operation == self.operation
            && step.landed == landed
            && self.key.contains(&step.key);
        match step.skip {
            _ if !fits => {}
            0 => {
                drop(pause_at);
                FaultyBackend(self.inner.clone()).pause();
            }
            _ => step.skip -= 1,
        }
    }

    fn error(&self, kind: StoreErrorKind, status: Option<u16>, message: &str) -> StoreError {
        let mut error = StoreError::new(kind, self.operation.name(), &self.key, message);
        error.status = status;
        error
    }

    async fn sleep(&self, duration: Duration) {
        if !duration.is_zero() {
            self.inner.runtime.clock.sleep(duration).await;
        }
    }

    /// The answer of faults that keep a request from being carried out.
    async fn refused(&self) -> Result<(), StoreError> {
        let (kind, status, code, message) = match self.fault {
            Some(Fault::Throttled) => (
                StoreErrorKind::Unavailable,
                503,
                "SlowDown",
                "reduce your request rate",
            ),
            Some(Fault::NotFound) => (
                StoreErrorKind::Unavailable,
                404,
                "NoSuchKey",
                "an answer that makes no sense",
            ),
            Some(Fault::Refused) => (
                StoreErrorKind::Refused,
                403,
                "AccessDenied",
                "access denied",
            ),
            Some(Fault::Full) => {
                return Err(self.error(StoreErrorKind::Full, None, "no space left"));
            }
            Some(Fault::ErrorBefore) => {
                let message = "connection refused";
                return Err(self.error(StoreErrorKind::Unavailable, None, message));
            }
            Some(Fault::TimeoutBefore(wait)) => {
                self.sleep(wait).await;
                return Err(self.error(StoreErrorKind::Unknown, None, "timed out"));
            }
            _ => return Ok(()),
        };
        let mut error = self.error(kind, Some(status), message);
        error.code = Some(code.to_owned());
        Err(error)
    }

    /// What happens to a good answer on its way back.
    async fn answered<T>(&self, answer: T) -> Result<T, StoreError> {
        match self.fault {
            Some(Fault::ErrorAfter) => {
                Err(self.error(StoreErrorKind::Unknown, None, "connection reset"))
            }
            Some(Fault::TimeoutAfter(wait)) => {
                self.sleep(wait).await;
                Err(self.error(StoreErrorKind::Unknown, None, "timed out"))
            }
            Some(Fault::Stall(wait)) => {
                self.sleep(wait).await;
                Ok(answer)
            }
            _ => Ok(answer),
        }
    }

    fn finish<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        let told = result.as_ref().map(|_| ()).map_err(|error| error.kind);
        self.tell(Phase::Answered(told));
        result
    }

    async fn carry_out(&self, work: Write) -> Result<PutAnswer, StoreError> {
        let result = match work {
            Write::Put(body) => self.inner.below.put_if_absent(&self.key, body).await,
            Write::Copy(from) => self.inner.below.copy_if_absent(&from, &self.key).await,
        };
        match &result {
            Ok(answer) => self.tell(Phase::Written(*answer == PutAnswer::Created)),
            Err(error) => self.tell(Phase::Landed(Err(error.kind))),
        }
        result
    }

    async fn write(self, work: Write) -> Result<PutAnswer, StoreError> {
        let result = self.write_faulty(work).await;
        self.finish(result)
    }

    async fn write_faulty(&self, work: Write) -> Result<PutAnswer, StoreError> {
        self.sleep(self.delay / 2).await;
        self.refused().await?;
        match self.fault {
            Some(Fault::Conflict) => return Ok(PutAnswer::Exists),
            Some(Fault::Late(after)) => {
                self.arrives_later(after, work);
                return Err(self.error(StoreErrorKind::Unknown, None, "connection reset"));
            }
            Some(Fault::Twin(after)) => self.arrives_later(after, work.clone()),
            _ => {}
        }
        let answer = self.carry_out(work).await?;
        self.sleep(self.delay / 2).await;
        if self.fault == Some(Fault::ExistsAfter) {
            return Ok(PutAnswer::Exists);
        }
        self.answered(answer).await
    }

    fn arrives_later(&self, after: Duration, work: Write) {
        let twin = Request {
            inner: self.inner.clone(),
            id: self.id,
            operation: self.operation,
            key: self.key.clone(),
            fault: None,
            delay: Duration::ZERO,
        };
        let tasks = &self.inner.runtime.tasks;
        tasks.spawn("faulty-store-late-write", async move {
            twin.sleep(after).await;
            // Nobody waits for the answer.
            let _ = twin.carry_out(work).await;
        });
    }

    async fn run<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
        spoil: impl FnOnce(&Self, T) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let carried = async {
            self.sleep(self.delay / 2).await;
            self.refused().await?;
            let result = work.await;
            let told = result.as_ref().map(|_| ()).map_err(|error| error.kind);
            self.tell(Phase::Landed(told));
            self.sleep(self.delay / 2).await;
            let answer = self.answered(result?).await?;
            spoil(self, answer)
        };
        let result = carried.await;
        FaultyBackend(self.inner.clone()).mode().await;
        self.finish(result)
    }

    fn spoil_bytes(&self, bytes: Bytes) -> Result<Bytes, StoreError> {
        let at = usize::try_from(self.inner.entropy.below(bytes.len() as u64)).unwrap_or(0);
        match self.fault {
            Some(Fault::Torn) => Ok(bytes.slice(..at)),
            Some(Fault::Truncated) => {
                Err(self.error(StoreErrorKind::Corrupt, None, "the answer broke off"))
            }
            Some(Fault::BitFlip) if !bytes.is_empty() => {
                let mut flipped = BytesMut::from(&bytes[..]);
                flipped[at] ^= 1 << self.inner.entropy.below(8);
                Ok(flipped.freeze())
            }
            _ => Ok(bytes),
        }
    }

    fn spoil_listing(&self, mut page: Vec<ObjectMeta>) -> Vec<ObjectMeta> {
        let at = usize::try_from(self.inner.entropy.below(page.len() as u64)).unwrap_or(0);
        if self.fault == Some(Fault::Unordered) && page.len() > 1 {
            let other = (at + 1) % page.len();
            page.swap(at, other);
        }
        page
    }
}

#[async_trait]
impl Backend for FaultyBackend {
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        self.write(Operation::Put, key, Write::Put(body)).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        let request = self.begin(Operation::Get, key).await?;
        request
            .run(self.0.below.get(key), Request::spoil_bytes)
            .await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let request = self.begin(Operation::Get, key).await?;
        request
            .run(self.0.below.get_range(key, range), Request::spoil_bytes)
            .await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let request = self.begin(Operation::Head, key).await?;
        request
            .run(self.0.below.head(key), |_, meta| Ok(meta))
            .await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let request = self.begin(Operation::Delete, key).await?;
        request.run(self.0.below.delete(key), |_, ()| Ok(())).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        let request = self.begin(Operation::List, prefix).await?;
        let work = self.0.below.list(prefix, start_after, limit);
        request
            .run(work, |request, page| Ok(request.spoil_listing(page)))
            .await
    }

    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        self.write(Operation::Copy, to, Write::Copy(from.to_owned()))
            .await
    }

    async fn space(&self) -> Result<Option<Space>, StoreError> {
        self.0.below.space().await
    }

    fn may_tear(&self) -> bool {
        self.0.below.may_tear()
    }

    async fn set_aside(&self, key: &str) -> Result<bool, StoreError> {
        self.0.below.set_aside(key).await
    }

    fn is_local(&self) -> bool {
        self.0.below.is_local()
    }

    fn links(&self) -> bool {
        self.0.below.links()
    }

    fn lists_at_once(&self) -> bool {
        self.0.below.lists_at_once()
    }

    fn describe(&self) -> String {
        format!("{} with faults", self.0.below.describe())
    }
}
