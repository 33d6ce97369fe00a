//! What the store is measured to do: a base delay of its own distribution plus size / rate.
//!
//! A request of `s` bytes takes `base + s / rate`. The rate is fitted as the slope of a least
//! absolute deviations line, which stalls do not move; the bases are what is left of the last
//! requests without their transfer. All of it follows from the samples alone, in their order.

use std::{collections::VecDeque, time::Duration};

/// Requests whose base delays the percentiles are taken from.
pub const SAMPLES: usize = 1_000;
/// Large requests remembered for the rate beyond that, so that a flood of small ones does not
/// wash them out.
const LARGE_SAMPLES: usize = 256;
/// A request of so many bytes tells something about the rate.
const LARGE_BYTES: u64 = 128 << 10;
/// Bytes above which a request is not measured: an error of the rate would count as base delay.
pub const MEASURED_BYTES_MAX: u64 = 8 << 20;
/// Large requests that a rate rests on, at least.
const FIT_LARGE_MIN: usize = 16;
/// Samples between two calculations, which cost up to some tenths of a millisecond, while the
/// window fills.
const REFRESH: u32 = 32;
/// The same once it is full: a tenth of it.
const REFRESH_FULL: u32 = 100;
/// A fitted slope counts if its standard error is below this share of it.
const FIT_ERROR_MAX: f64 = 0.25;
/// Assumed until measured: what one stream to a bucket usually does.
const RATE_PRIOR: f64 = 60e6;
/// Bytes per second of the slowest and the fastest stream that can be told.
const RATES: (f64, f64) = (1e6, 10e9);
/// Halvings by the golden section: the slope is exact to a millionth of its range.
const FIT_STEPS: u32 = 30;

/// What one kind of request is measured to take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// First tries measured so far, those that the window has dropped included.
    pub measured: u64,
    /// Median base delay, that is without the body's transfer.
    pub p50: Duration,
    /// 75 % of base delays are below it.
    pub p75: Duration,
    /// 90 %.
    pub p90: Duration,
    /// 95 %.
    pub p95: Duration,
    /// 97 %.
    pub p97: Duration,
    /// Bytes per second of one stream; `None` until enough large requests were measured.
    pub bytes_per_second: Option<f64>,
}

impl Estimate {
    /// How long a body of `bytes` takes on top of the base delay, as far as is known.
    #[must_use]
    pub fn transfer(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.unwrap_or(RATE_PRIOR))
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    bytes: u64,
    /// Seconds.
    took: f64,
}

/// The samples of one kind of request.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    recent: VecDeque<Sample>,
    large: VecDeque<Sample>,
    new: u32,
    new_large: u32,
    estimate: Estimate,
}

fn push(ring: &mut VecDeque<Sample>, max: usize, sample: Sample) {
    if ring.len() == max {
        ring.pop_front();
    }
    ring.push_back(sample);
}

impl Estimator {
    /// Adds a first try that ended after `took`, and calculates what follows every few of them.
    pub fn record(&mut self, bytes: u64, took: Duration) {
        if self.note(bytes, took) {
            self.refresh();
        }
    }

    /// Adds a first try; true if it is time to calculate anew.
    pub(super) fn note(&mut self, bytes: u64, took: Duration) -> bool {
        if bytes > MEASURED_BYTES_MAX {
            return false;
        }
        let took = took.as_secs_f64();
        let sample = Sample { bytes, took };
        push(&mut self.recent, SAMPLES, sample);
        if bytes >= LARGE_BYTES {
            push(&mut self.large, LARGE_SAMPLES, sample);
            self.new_large += 1;
        }
        self.estimate.measured += 1;
        self.new += 1;
        // In the beginning every sample changes much.
        let every = match self.recent.len() {
            SAMPLES => REFRESH_FULL,
            len if len < REFRESH as usize => 1,
            _ => REFRESH,
        };
        let is_due = self.new >= every;
        if is_due {
            self.new = 0;
        }
        is_due
    }

    /// A copy to calculate with, where nobody waits for it; [`Self::adopt`] takes what it found.
    pub(super) fn copy(&mut self) -> Self {
        let copy = self.clone();
        if self.is_fit_due() {
            self.new_large = 0;
        }
        copy
    }

    /// Takes what a copy has calculated.
    pub(super) fn adopt(&mut self, calculated: Estimate) {
        let measured = self.estimate.measured;
        self.estimate = Estimate {
            measured,
            ..calculated
        };
    }

    fn is_fit_due(&self) -> bool {
        self.new_large >= REFRESH / 2 && self.large.len() >= FIT_LARGE_MIN
    }

    /// What the samples so far say; calculated anew every few samples.
    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    /// Calculates what the samples so far say.
    pub(super) fn refresh(&mut self) {
        if self.is_fit_due() {
            self.new_large = 0;
            self.fit();
        }
        let slope = 1.0 / self.estimate.bytes_per_second.unwrap_or(RATE_PRIOR);
        let base = |sample: &Sample| (sample.took - sample.bytes as f64 * slope).max(0.0);
        let mut bases: Vec<f64> = self.recent.iter().map(base).collect();
        bases.sort_unstable_by(f64::total_cmp);
        let at = |hundredths: usize| {
            let index = (bases.len() * hundredths / 100).min(bases.len().saturating_sub(1));
            Duration::from_secs_f64(bases.get(index).copied().unwrap_or(0.0))
        };
        self.estimate.p50 = at(50);
        self.estimate.p75 = at(75);
        self.estimate.p90 = at(90);
        self.estimate.p95 = at(95);
        self.estimate.p97 = at(97);
    }

    /// Fits the rate, and takes it if the samples are enough to tell it.
    fn fit(&mut self) {
        let small = self.recent.iter().filter(|s| s.bytes < LARGE_BYTES);
        let samples: Vec<Sample> = small.chain(&self.large).copied().collect();
        let mut line = Line::new(&samples);
        let slope = line.slope();
        let error = line.standard_error(slope);
        let believed = 1.0 / self.estimate.bytes_per_second.unwrap_or(RATE_PRIOR);
        let found = if error <= FIT_ERROR_MAX * slope {
            slope
        } else if slope + 2.0 * error < believed {
            // Not known well, but certainly faster than believed.
            slope + 2.0 * error
        } else {
            return;
        };
        self.estimate.bytes_per_second = Some((1.0 / found).clamp(RATES.0, RATES.1));
    }
}

/// A line through samples: seconds over bytes.
struct Line<'a> {
    samples: &'a [Sample],
    rests: Vec<f64>,
}

impl<'a> Line<'a> {
    fn new(samples: &'a [Sample]) -> Self {
        let rests = Vec::with_capacity(samples.len());
        Self { samples, rests }
    }

    /// Sum of the distances from the best line of this slope (seconds a byte).
    fn deviation(&mut self, slope: f64) -> f64 {
        let rests = self.samples.iter();
        self.rests.clear();
        self.rests
            .extend(rests.map(|sample| sample.took - slope * sample.bytes as f64));
        let middle = median(&mut self.rests);
        self.rests.iter().map(|rest| (rest - middle).abs()).sum()
    }

    /// The slope of the least sum of distances, which is convex in it.
    fn slope(&mut self) -> f64 {
        let golden = (5f64.sqrt() - 1.0) / 2.0;
        let (mut low, mut high) = (1.0 / RATES.1, 1.0 / RATES.0);
        let (mut left, mut right) = (high - golden * (high - low), low + golden * (high - low));
        let (mut at_left, mut at_right) = (self.deviation(left), self.deviation(right));
        for _ in 0..FIT_STEPS {
            if at_left <= at_right {
                (high, right, at_right) = (right, left, at_left);
                left = high - golden * (high - low);
                at_left = self.deviation(left);
            } else {
                (low, left, at_left) = (left, right, at_right);
                right = low + golden * (high - low);
                at_right = self.deviation(right);
            }
        }
        f64::midpoint(low, high)
    }

    /// About how far the slope may be off, from the spread around the line.
    fn standard_error(&mut self, slope: f64) -> f64 {
        self.deviation(slope);
        let middle = median(&mut self.rests);
        self.rests
            .iter_mut()
            .for_each(|rest| *rest = (*rest - middle).abs());
        // Of a normal distribution, from the median distance.
        let sigma = 1.4826 * median(&mut self.rests);
        let count = self.samples.len() as f64;
        let mean = self.samples.iter().map(|s| s.bytes as f64).sum::<f64>() / count;
        let square = |sample: &Sample| (sample.bytes as f64 - mean).powi(2);
        let spread = self.samples.iter().map(square).sum::<f64>().sqrt();
        if spread > 0.0 {
            // A median needs 1.57 times the samples of a mean.
            1.25 * sigma / spread
        } else {
            f64::INFINITY
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}
