//! What the WAL makes of the store's measurements.

use std::time::Duration;

use tidemill_runtime::Instant;
use tidemill_store::{Estimate, Store};

use crate::limits::{FRAGMENTS_IN_FLIGHT_MAX, Latency, LogLimits};

/// Least bytes of a fragment: below, requests cost more than streams gain.
const FRAGMENT_MIN: usize = 128 << 10;
/// Most bytes of a fragment: above, a stream's time outweighs any base delay.
const FRAGMENT_MAX: usize = 2 << 20;
/// A fragment's share of the bytes that a stream moves in the spread of base delays. All of it, and
/// a batch of 4 MB on S3 takes a twentieth longer for half as many PUTs; less, and the slowest of
/// more PUTs costs what the streams gain.
const FRAGMENT_SHARE: f64 = 0.5;
/// Spacing of class `low`, as a part of what three of four PUTs take: so many are in flight.
const LOW_PARTS: u32 = 4;
/// Share by which cheaper bytes may lengthen a PUT.
const RIDE_SHARE: f64 = 0.05;
/// Base delay assumed until one is measured.
const BASE_PRIOR: Duration = Duration::from_millis(20);

/// Sizes and times that follow the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    spacing_low: Duration,
    spacing_balanced: Duration,
    spacing_economy: Duration,
    fragment_bytes: usize,
    object_bytes: usize,
    /// Of class `low`.
    object_bytes_low: usize,
    /// The store decides, not a test.
    follows_store: bool,
    base: Duration,
    estimate: Option<Estimate>,
}

impl Tuning {
    /// What holds until enough is measured.
    pub fn unmeasured(limits: &LogLimits) -> Self {
        Self {
            spacing_low: limits.spacing_low,
            spacing_balanced: limits.spacing_balanced,
            spacing_economy: limits.spacing_economy,
            fragment_bytes: limits.fragment_bytes,
            object_bytes: limits.object_target_bytes,
            object_bytes_low: limits.object_target_bytes,
            follows_store: limits.follows_store,
            base: BASE_PRIOR,
            estimate: None,
        }
    }

    /// What holds now.
    pub fn measured(limits: &LogLimits, store: &Store) -> Self {
        let tuning = Self::unmeasured(limits);
        let Some(estimate) = store.put_measured().filter(|_| limits.follows_store) else {
            return tuning;
        };
        // Where a stream's time for it outgrows what waiting for the slowest of several PUTs costs.
        let spread = estimate.p90.saturating_sub(estimate.p50).as_secs_f64();
        let sized = |share: f64| {
            let rate = estimate.bytes_per_second?;
            Some(((rate * spread * share) as usize).clamp(FRAGMENT_MIN, FRAGMENT_MAX))
        };
        let object = sized(1.0).unwrap_or(limits.fragment_bytes);
        let fragment = sized(FRAGMENT_SHARE).unwrap_or(limits.fragment_bytes);
        Self {
            spacing_low: estimate.p75 / LOW_PARTS,
            fragment_bytes: fragment,
            object_bytes_low: limits.object_target_bytes.min(object),
            base: estimate.p50,
            estimate: Some(estimate),
            ..tuning
        }
    }

    /// Least time between the starts of two PUTs that carry this class.
    pub fn spacing(&self, latency: Latency) -> Duration {
        match latency {
            Latency::Low => self.spacing_low,
            Latency::Balanced => self.spacing_balanced,
            Latency::Economy => self.spacing_economy,
        }
    }

    /// When a batch that comes now has to leave.
    pub fn due(&self, latency: Latency, now: Instant, last_put: Option<Instant>) -> Instant {
        last_put.map_or(now, |last| now.max(last + self.spacing(latency)))
    }

    /// Bytes of small entries after which an object is full, and leaves. Urgent ones that come in a
    /// burst go at once in several objects, as fragments do: one that holds them all would take
    /// longer than any wait. Cheap ones wait, since they are to cost few requests.
    pub fn object_bytes(&self, latency: Latency) -> usize {
        match latency {
            Latency::Low => self.object_bytes_low,
            Latency::Balanced | Latency::Economy => self.object_bytes,
        }
    }

    /// Bytes of bulk entries that share an object.
    pub fn fragment_bytes(&self) -> usize {
        self.fragment_bytes
    }

    /// Bytes of a fragment of an entry of `len` bytes. Twice as many fragments as may be in flight
    /// take twice as long, so a larger entry has larger ones, as far as they go.
    pub fn fragment_of(&self, len: usize) -> usize {
        if !self.follows_store {
            return self.fragment_bytes;
        }
        let one_wave = len.div_ceil(FRAGMENTS_IN_FLIGHT_MAX).min(FRAGMENT_MAX);
        self.fragment_bytes.max(one_wave)
    }

    /// Cheaper bytes that a PUT of `bytes` may carry on top.
    pub fn ride_bytes(&self, bytes: usize) -> usize {
        let transfer = |bytes| match &self.estimate {
            Some(estimate) => estimate.transfer(bytes),
            None => Estimate::default().transfer(bytes),
        };
        let whole = self.base + transfer(bytes as u64);
        let byte = transfer(1 << 20).as_secs_f64() / f64::from(1 << 20);
        (whole.as_secs_f64() * RIDE_SHARE / byte) as usize
    }
}
