//! A store's delays: lognormal base, transfer by size, stalls. Simulated time.

use std::{sync::Arc, time::Duration};

use tidemill_runtime::{Entropy, Runtime};
use tidemill_store::{
    Backend, HedgeMode, HedgeOptions, Memory, Store, StoreOptions,
    testing::{DelayedBackend, Operation, S3Latency},
};

/// The standard normal distribution's 95th percentile.
const Z95: f64 = 1.644_853_626_951_472_8;

/// One kind of request.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    pub median: f64,
    pub p95: f64,
    /// Bytes a second.
    pub rate: f64,
}

pub const S3_PUT: Delay = Delay::new(0.017, 0.032, 61e6);
pub const S3_GET: Delay = Delay::new(0.013, 0.030, 85e6);
pub const EXPRESS_PUT: Delay = Delay::new(0.005, 0.008, 115e6);

impl Delay {
    pub const fn new(median: f64, p95: f64, rate: f64) -> Self {
        Self { median, p95, rate }
    }

    pub fn draw(&self, entropy: &Entropy) -> Duration {
        let unit = || ((entropy.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let z = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
        Duration::from_secs_f64(self.at(z))
    }

    /// The base delay `z` standard deviations above the median, in seconds.
    pub fn at(&self, z: f64) -> f64 {
        self.median * ((self.p95 / self.median).ln() / Z95 * z).exp()
    }

    pub fn transfer(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.rate)
    }
}

/// The delays of S3, `stalled` of all requests a second later.
pub fn s3(seed: u64, stalled: f64) -> impl Fn(Operation, u64) -> S3Latency + Send + Sync {
    let entropy = Entropy::from_seed(seed);
    move |operation, bytes| {
        let delay = if operation == Operation::Put {
            S3_PUT
        } else {
            S3_GET
        };
        let base = delay.draw(&entropy);
        let stall = Duration::from_secs(u64::from(entropy.chance(stalled)));
        S3Latency {
            first_byte: base + stall,
            transfer: delay.transfer(bytes),
        }
    }
}

/// A store in memory with these delays.
pub fn store(
    seed: u64,
    mode: HedgeMode,
    latency: impl Fn(Operation, u64) -> S3Latency + Send + Sync + 'static,
) -> (Store, Memory) {
    let runtime = Runtime::simulated(seed, 0);
    let memory = Memory::new(runtime.clock.clone());
    let below: Arc<dyn Backend> = Arc::new(memory.clone());
    let backend = DelayedBackend::new(below, runtime.clone(), move |request| {
        latency(request.operation, request.bytes)
    });
    let hedge = HedgeOptions {
        mode,
        ..HedgeOptions::default()
    };
    let options = StoreOptions {
        hedge,
        ..StoreOptions::default()
    };
    (Store::new(Arc::new(backend), runtime, options), memory)
}
