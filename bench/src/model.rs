//! How long an object store takes, as a model.
//!
//! A request's base delay is lognormal, given by its median and its 95th percentile; the body's
//! transfer takes size / stream rate; a share of requests stalls. Each kind of request draws from a
//! sequence of its own, so that with one seed the n-th PUT is as slow whatever is read meanwhile.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tidemill_runtime::Entropy;
use tidemill_store::testing::{Operation, S3Latency, S3Request};

/// The standard normal distribution's 95th percentile.
const Z95: f64 = 1.644_853_626_951_472_8;

/// Longest base delay: a lognormal has no end, a store's request does.
const BASE_MAX: Duration = Duration::from_secs(30);

/// One kind of request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay {
    /// Half of the requests are answered within this, the body's transfer apart.
    pub median: Duration,
    /// 95 % are.
    pub p95: Duration,
    /// Bytes per second of one stream; 0 for no delay by size.
    pub bytes_per_second: u64,
}

impl Delay {
    const NONE: Self = Self::new(0, 0, 0);

    const fn new(median_ms: u64, p95_ms: u64, mb_per_second: u64) -> Self {
        Self {
            median: Duration::from_millis(median_ms),
            p95: Duration::from_millis(p95_ms),
            bytes_per_second: mb_per_second * 1_000_000,
        }
    }

    /// A base delay drawn from `entropy`; two numbers are used whatever the result.
    #[must_use]
    pub fn base(&self, entropy: &Entropy) -> Duration {
        let z = normal(entropy);
        if self.median.is_zero() {
            return Duration::ZERO;
        }
        let median = self.median.as_secs_f64();
        let sigma = (self.p95.as_secs_f64() / median).ln() / Z95;
        let seconds = median * (sigma * z).exp();
        Duration::try_from_secs_f64(seconds).map_or(BASE_MAX, |base| base.min(BASE_MAX))
    }

    /// How long a body of `bytes` takes on top.
    #[must_use]
    pub fn transfer(&self, bytes: u64) -> Duration {
        if self.bytes_per_second == 0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64)
    }
}

/// A number of the standard normal distribution (Box and Muller).
fn normal(entropy: &Entropy) -> f64 {
    // Never 0, of which there is no logarithm.
    let unit = |number: u64| ((number >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (radius, angle) = (unit(entropy.next_u64()), unit(entropy.next_u64()));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// A store's delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// PUT.
    pub put: Delay,
    /// GET; HEAD, LIST and DELETE have its base delay.
    pub get: Delay,
}

impl Profile {
    /// S3 Standard in the same region.
    pub const S3: Self = Self {
        name: "s3",
        put: Delay::new(17, 32, 61),
        get: Delay::new(13, 30, 85),
    };
    /// S3 Express One Zone.
    pub const EXPRESS: Self = Self {
        name: "express",
        put: Delay::new(5, 8, 115),
        get: Delay::new(4, 7, 150),
    };
    /// No delay but the server's own.
    pub const NONE: Self = Self {
        name: "none",
        put: Delay::NONE,
        get: Delay::NONE,
    };
    /// All of them.
    pub const ALL: [Self; 3] = [Self::S3, Self::EXPRESS, Self::NONE];

    /// The profile of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }
}

/// Requests that hang.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stalls {
    /// Share of requests, 0 to 1.
    pub chance: f64,
    /// How much later they are answered.
    pub duration: Duration,
}

impl Stalls {
    /// None at all.
    pub const NONE: Self = Self {
        chance: 0.0,
        duration: Duration::ZERO,
    };
}

/// Prefixes with a sequence of their own; all beyond them share one. A run uses two or three.
const LANES_MAX: usize = 64;

/// The sequences that one prefix draws from.
#[derive(Clone, Debug)]
struct Lane {
    put: Entropy,
    get: Entropy,
    other: Entropy,
}

impl Lane {
    fn new(seed: u64) -> Self {
        let root = Entropy::from_seed(seed);
        Self {
            put: root.fork(),
            get: root.fork(),
            other: root.fork(),
        }
    }
}

/// A profile with its random numbers.
///
/// Keys under one first folder draw from a sequence of their own, which is the same for each: the
/// n-th PUT of a broker under `demo/` takes as long as the n-th raw PUT under `raw/`.
#[derive(Debug)]
pub struct LatencyModel {
    profile: Profile,
    stalls: Stalls,
    seed: u64,
    lanes: Mutex<BTreeMap<String, Lane>>,
}

impl LatencyModel {
    /// A model whose delays follow `seed`.
    #[must_use]
    pub fn new(profile: Profile, stalls: Stalls, seed: u64) -> Self {
        Self {
            profile,
            stalls,
            seed,
            lanes: Mutex::default(),
        }
    }

    fn lane(&self, key: &str) -> Lane {
        let folder = key.split_once('/').map_or("", |(folder, _)| folder);
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.get(folder) {
            return lane.clone();
        }
        let folder = if lanes.len() < LANES_MAX { folder } else { "" };
        let lane = lanes.entry(folder.to_owned());
        lane.or_insert_with(|| Lane::new(self.seed)).clone()
    }

    /// How long a request for `key` takes; the next number of its folder's and kind's sequence.
    #[must_use]
    pub fn draw(&self, operation: Operation, key: &str, bytes: u64) -> S3Latency {
        let lane = self.lane(key);
        let (entropy, delay, bytes) = match operation {
            Operation::Put => (lane.put, self.profile.put, bytes),
            Operation::Get => (lane.get, self.profile.get, bytes),
            _ => (lane.other, self.profile.get, 0),
        };
        // One generator of its own per request: requests at the same time do not mix their draws.
        let entropy = entropy.fork();
        let base = delay.base(&entropy);
        let stalled = entropy.chance(self.stalls.chance);
        let stall = if stalled {
            self.stalls.duration
        } else {
            Duration::ZERO
        };
        S3Latency {
            first_byte: base + stall,
            transfer: delay.transfer(bytes),
        }
    }

    /// Draws `count` requests that nobody sends, so that the next one is as slow as somebody else's
    /// next, who has sent so many.
    pub fn skip(&self, operation: Operation, key: &str, count: u64) {
        for _ in 0..count {
            let _ = self.draw(operation, key, 0);
        }
    }

    /// As [`LatencyModel::draw`], for the hook of the S3 server in process.
    #[must_use]
    pub fn latency(&self, request: &S3Request<'_>) -> S3Latency {
        self.draw(request.operation, request.key, request.bytes)
    }
}
