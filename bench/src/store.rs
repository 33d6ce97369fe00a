//! An object store in memory that takes as long as a model says: `model:PROFILE?seed=7&...`.
//!
//! It stands behind [`Backend`], the interface of every real store, with real timers, in the
//! broker's own process. An S3 server on the same two cores would cost both sides CPU that no
//! broker on S3 pays, and blur what is to be measured; raw PUTs go through the same wrapper, with
//! the same delays from the same seed, in the process of whoever measures.

mod timer;

use std::{
    collections::BTreeSet,
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tidemill_runtime::{Entropy, Instant, Runtime};
use tidemill_store::{
    Backend, Memory, ObjectMeta, Payload, PutAnswer, StoreError, StoreErrorKind, testing::Operation,
};

use self::timer::Timer;
use crate::{
    error::BenchError,
    model::{LatencyModel, Profile, Stalls},
};

const SCHEME: &str = "model:";
const STALL_MS: u64 = 1_000;
/// A quarter of the memory of the machines that this is run on.
const WARM_MIB_MAX: usize = 6_144;
/// A GiB, more than any body.
const DISCARD_KIB_MAX: usize = 1 << 20;
/// What is read of a body that was not kept: whoever does finds it damaged. Never written, so it
/// takes no memory.
static NOTHING: [u8; 160 << 20] = [0; 160 << 20];
/// Sets the faults' random numbers apart from the delays'.
const FAULT_SEED: u64 = 0x6661_756c_7473;

/// What a `model:` URL says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelOptions {
    /// Delays.
    pub profile: Profile,
    /// Requests that hang (`stall=SHARE`, `stall_ms=MS`).
    pub stalls: Stalls,
    /// Of the delays.
    pub seed: u64,
    /// Share of requests that fail and are not carried out (`errors=SHARE`).
    pub errors: f64,
    /// Share of writes that are carried out and answered with an error (`lost=SHARE`).
    pub lost: f64,
    /// MiB touched and given back when the store is opened (`warm=MIB`). What it keeps is memory
    /// that nobody has touched before, and in a virtual machine whose host takes back what is free
    /// a first touch costs a millisecond a megabyte, which no broker on a real store would pay.
    pub warm_mib: usize,
    /// Bodies from so many KiB on are copied, as into a socket, and not kept (`discard=KIB`); zero
    /// keeps all. A measurement of many large messages then takes no more memory than a broker on a
    /// real store, whose objects are elsewhere.
    pub discard_kib: usize,
}

impl ModelOptions {
    /// A profile without stalls and faults.
    #[must_use]
    pub const fn new(profile: Profile, seed: u64) -> Self {
        Self {
            profile,
            stalls: Stalls::NONE,
            seed,
            errors: 0.0,
            lost: 0.0,
            warm_mib: 0,
            discard_kib: 0,
        }
    }

    /// True if a body of so many bytes is kept.
    fn keeps(&self, bytes: usize) -> bool {
        self.discard_kib == 0 || bytes < self.discard_kib << 10 || bytes > NOTHING.len()
    }

    /// Reads a URL; `None` if it is not of this kind.
    ///
    /// # Errors
    /// It is, and says something unknown.
    pub fn parse(url: &str) -> Option<Result<Self, BenchError>> {
        let rest = url.strip_prefix(SCHEME)?;
        Some(Self::parse_rest(rest).map_err(|what| {
            let how = "`model:PROFILE?seed=N&stall=SHARE&stall_ms=N&errors=SHARE&lost=SHARE&\
                       warm=MIB&discard=KIB`";
            BenchError::Failed(format!("`{url}`: {what}; write {how}"))
        }))
    }

    fn parse_rest(rest: &str) -> Result<Self, String> {
        let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
        let profile = Profile::named(name).ok_or_else(|| format!("no profile `{name}`"))?;
        let mut options = Self::new(profile, 1);
        options.stalls.duration = Duration::from_millis(STALL_MS);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let wrong = || format!("`{pair}` is not understood");
            let share = || {
                let share: Option<f64> = value.parse().ok();
                share
                    .filter(|share| (0.0..1.0).contains(share))
                    .ok_or_else(wrong)
            };
            let number = || value.parse::<u64>().map_err(|_| wrong());
            let size = || value.parse::<usize>().map_err(|_| wrong());
            match key {
                "seed" => options.seed = number()?,
                "stall" => options.stalls.chance = share()?,
                "stall_ms" => options.stalls.duration = Duration::from_millis(number()?),
                "errors" => options.errors = share()?,
                "lost" => options.lost = share()?,
                "warm" => options.warm_mib = size()?.min(WARM_MIB_MAX),
                "discard" => options.discard_kib = size()?.min(DISCARD_KIB_MAX),
                _ => return Err(wrong()),
            }
        }
        Ok(options)
    }
}

impl fmt::Display for ModelOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}?seed={}", self.profile.name, self.seed)?;
        if self.stalls.chance > 0.0 {
            let (chance, ms) = (self.stalls.chance, self.stalls.duration.as_millis());
            write!(f, "&stall={chance}&stall_ms={ms}")?;
        }
        if self.errors > 0.0 {
            write!(f, "&errors={}", self.errors)?;
        }
        if self.lost > 0.0 {
            write!(f, "&lost={}", self.lost)?;
        }
        if self.warm_mib > 0 {
            write!(f, "&warm={}", self.warm_mib)?;
        }
        if self.discard_kib > 0 {
            write!(f, "&discard={}", self.discard_kib)?;
        }
        Ok(())
    }
}

/// Requests seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// PUTs, each sent once.
    pub puts: u64,
    /// PUTs of a key that had been sent before: hedges and retries.
    pub repeated_puts: u64,
    /// GETs and HEADs.
    pub gets: u64,
    /// LISTs.
    pub lists: u64,
}

#[derive(Debug, Default)]
struct Counters {
    puts: AtomicU64,
    /// Of WAL objects, and raw ones; those skipped included.
    first_puts: AtomicU64,
    repeated_puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
}

/// The store.
pub struct ModelStore {
    options: ModelOptions,
    model: LatencyModel,
    memory: Memory,
    timer: Timer,
    runtime: Runtime,
    faults: Entropy,
    counters: Counters,
    /// Keys of PUTs under way.
    under_way: Mutex<BTreeSet<String>>,
}

impl fmt::Debug for ModelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModelStore").field(&self.options).finish()
    }
}

/// Touches so much memory and gives it back to the allocator. In small blocks: what the allocator
/// cuts blocks from is a multiple of them but for its own notes, and what large ones would leave of
/// it, a huge page in some, would be touched first by an object.
fn warm(mib: usize) {
    let blocks: Vec<Vec<u8>> = (0..mib).map(|_| vec![1; 1 << 20]).collect();
    drop(std::hint::black_box(blocks));
}

/// The delays of first PUTs of WAL objects, and of raw ones.
const FIRST_LANE: &str = "first/";
/// Bytes copied at a time.
const COPIED_AT_ONCE: usize = 256 << 10;

/// Ends a PUT's being under way, also if its caller lets go of it.
struct UnderWay<'a>(&'a ModelStore, &'a str);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.lock().remove(self.1);
    }
}

/// Opens `model:...`; `None` if `url` is of another kind.
///
/// # Errors
/// The URL says something unknown.
pub fn open_model(url: &str, runtime: &Runtime) -> Option<Result<Arc<ModelStore>, BenchError>> {
    let options = ModelOptions::parse(url)?;
    Some(options.map(|options| Arc::new(ModelStore::new(options, runtime))))
}

impl ModelStore {
    /// An empty store.
    #[must_use]
    pub fn new(options: ModelOptions, runtime: &Runtime) -> Self {
        warm(options.warm_mib);
        Self {
            options,
            model: LatencyModel::new(options.profile, options.stalls, options.seed),
            memory: Memory::new(runtime.clock.clone()),
            timer: Timer::new(runtime),
            runtime: runtime.clone(),
            faults: Entropy::from_seed(options.seed ^ FAULT_SEED),
            counters: Counters::default(),
            under_way: Mutex::default(),
        }
    }

    /// Requests so far.
    #[must_use]
    pub fn counts(&self) -> ModelCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ModelCounts {
            puts: of(&self.counters.puts),
            repeated_puts: of(&self.counters.repeated_puts),
            gets: of(&self.counters.gets),
            lists: of(&self.counters.lists),
        }
    }

    /// Goes on as if `total` first PUTs had been sent in all, should it be fewer: see
    /// [`LatencyModel::skip`].
    pub fn catch_up(&self, total: u64) {
        let sent = self.counters.first_puts.fetch_max(total, Ordering::Relaxed);
        let missing = total.saturating_sub(sent);
        self.model.skip(Operation::Put, FIRST_LANE, missing);
    }

    /// When a request sent now is answered.
    fn due(&self, operation: Operation, lane: &str, bytes: u64) -> Instant {
        let latency = self.model.draw(operation, lane, bytes);
        self.runtime.clock.monotonic() + latency.first_byte + latency.transfer
    }

    /// Waits as long as an answer for `key` takes.
    async fn wait(
        &self,
        (operation, name): (Operation, &'static str),
        (lane, key): (&str, &str),
        bytes: u64,
    ) -> Result<(), StoreError> {
        let due = self.due(operation, lane, bytes);
        self.wait_until(due, name, key).await
    }

    async fn wait_until(
        &self,
        due: Instant,
        name: &'static str,
        key: &str,
    ) -> Result<(), StoreError> {
        let failed = |error: std::io::Error| {
            StoreError::new(StoreErrorKind::Unknown, name, key, error.to_string())
        };
        self.timer.sleep_until(due).await.map_err(failed)
    }

    /// One copy of a body, as a client would copy it into a socket: piece by piece, none before
    /// the stream has taken those in front of it. All at once, an object of the roll's would take
    /// a core in a burst that no network brings about.
    async fn sent(&self, body: &Payload) -> Bytes {
        let clock = &self.runtime.clock;
        let began = clock.monotonic();
        let len = usize::try_from(body.len()).unwrap_or(0);
        let is_kept = self.options.keeps(len);
        let mut out = BytesMut::with_capacity(if is_kept { len } else { COPIED_AT_ONCE });
        let (mut sent, mut pause_at) = (0, COPIED_AT_ONCE);
        let slices = body.slices().iter();
        let pieces = slices.flat_map(|slice| slice.chunks(COPIED_AT_ONCE));
        for piece in pieces {
            if sent >= pause_at {
                pause_at = sent + COPIED_AT_ONCE;
                let taken = self.options.profile.put.transfer(sent as u64);
                tokio::task::yield_now().await;
                clock.sleep_until(began + taken).await;
            }
            if !is_kept {
                out.clear();
            }
            out.extend_from_slice(piece);
            sent += piece.len();
        }
        match is_kept {
            true => out.freeze(),
            false => Bytes::from_static(&NOTHING[..len]),
        }
    }

    fn fault(
        &self,
        share: f64,
        kind: StoreErrorKind,
        operation: &'static str,
        key: &str,
    ) -> Result<(), StoreError> {
        if share > 0.0 && self.faults.chance(share) {
            return Err(StoreError::new(
                kind,
                operation,
                key,
                "a fault of the model",
            ));
        }
        Ok(())
    }

    fn error(&self, operation: &'static str, key: &str) -> Result<(), StoreError> {
        let share = self.options.errors;
        self.fault(share, StoreErrorKind::Unavailable, operation, key)
    }

    async fn read(&self, key: &str, bytes: u64) -> Result<(), StoreError> {
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        self.wait((Operation::Get, "get"), ("read/", key), bytes)
            .await?;
        self.error("get", key)
    }
}

#[async_trait]
impl Backend for ModelStore {
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        let first = self.under_way.lock().insert(key.to_owned());
        let _under_way = first.then(|| UnderWay(self, key));
        let repeated = !first || self.memory.head(key).await.is_ok();
        // Hedges and data objects draw from sequences of their own: the n-th WAL object is as slow
        // as the n-th raw PUT.
        let (lane, counter) = match repeated {
            true => ("again/", &self.counters.repeated_puts),
            false if key.contains("/wal/") || key.starts_with(RAW_PREFIX) => {
                self.counters.first_puts.fetch_add(1, Ordering::Relaxed);
                (FIRST_LANE, &self.counters.puts)
            }
            false => ("other/", &self.counters.puts),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let due = self.due(Operation::Put, lane, body.len());
        // PUTs begun together begin together, as the delays of a store run beside each other.
        tokio::task::yield_now().await;
        // While it is "sent", as a client would copy it into a socket.
        let body = self.sent(&body).await;
        self.wait_until(due, "put", key).await?;
        self.error("put", key)?;
        let answer = self.memory.put_if_absent(key, body.into()).await?;
        self.fault(self.options.lost, StoreErrorKind::Unknown, "put", key)?;
        Ok(answer)
    }

    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        let bytes = self.memory.get(key).await;
        self.read(key, bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            .await?;
        bytes
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.read(key, range.end.saturating_sub(range.start))
            .await?;
        self.memory.get_range(key, range).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.read(key, 0).await?;
        self.memory.head(key).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.wait((Operation::Delete, "delete"), ("other/", key), 0)
            .await?;
        self.error("delete", key)?;
        self.memory.delete(key).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        self.counters.lists.fetch_add(1, Ordering::Relaxed);
        self.wait((Operation::List, "list"), ("other/", prefix), 0)
            .await?;
        self.error("list", prefix)?;
        self.memory.list(prefix, start_after, limit).await
    }

    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        self.wait((Operation::Copy, "copy"), ("other/", to), 0)
            .await?;
        self.error("copy", to)?;
        self.memory.copy_if_absent(from, to).await
    }

    fn is_local(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        self.options.to_string()
    }
}

/// Where raw PUTs go.
pub const RAW_PREFIX: &str = "raw/";
