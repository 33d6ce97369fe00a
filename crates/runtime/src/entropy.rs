//! Random numbers that follow a seed when there is one.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use rand::{RngCore, SeedableRng, rngs::SmallRng};

/// A shared random number generator. Not for secrets.
#[derive(Clone)]
pub struct Entropy(Arc<Mutex<SmallRng>>);

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

impl Entropy {
    /// Seeded by the operating system.
    #[must_use]
    pub fn from_os() -> Self {
        Self(Arc::new(Mutex::new(SmallRng::from_os_rng())))
    }

    /// Seeded by `seed`: the same seed gives the same numbers.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))))
    }

    /// A generator of its own, seeded by the next number of this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::from_seed(self.next_u64())
    }

    /// The next number.
    #[must_use]
    pub fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }

    /// A number below `bound`; 0 if `bound` is 0.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// True with probability `p` (0 to 1).
    #[must_use]
    pub fn chance(&self, p: f64) -> bool {
        // 53 bits fill an f64's mantissa.
        #[expect(clippy::cast_precision_loss, reason = "the value has at most 53 bits")]
        let unit = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        unit < p
    }

    /// Sixteen random bytes.
    #[must_use]
    pub fn bytes16(&self) -> [u8; 16] {
        let mut out = [0; 16];
        self.0.lock().fill_bytes(&mut out);
        out
    }

    /// A random (version 4) UUID as bytes.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        let mut out = self.bytes16();
        out[6] = (out[6] & 0x0f) | 0x40;
        out[8] = (out[8] & 0x3f) | 0x80;
        out
    }
}
