//! Time, entropy and tasks, handed in to every other crate.
//!
//! Nothing else in the workspace reads a clock, draws a random number or spawns a task;
//! `clippy.toml` forbids it. Production builds a [`Runtime`] with [`Runtime::system`]; the
//! simulation and the tests build one with [`Runtime::simulated`] inside a paused Tokio runtime,
//! where time jumps to the next timer and everything follows the seed.

mod clock;
mod entropy;
mod histogram;
mod pool;
mod tasks;

pub use clock::{Clock, Elapsed, Instant};
pub use entropy::Entropy;
pub use histogram::{BOUNDS_US, Histogram};
pub use tasks::{TaskHandle, TaskPanic, Tasks};

/// The three things a component may need from its surroundings. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Wall time, monotonic time and timers.
    pub clock: Clock,
    /// Random numbers.
    pub entropy: Entropy,
    /// Spawning.
    pub tasks: Tasks,
}

impl Runtime {
    /// The machine's clock and entropy.
    #[must_use]
    pub fn system() -> Self {
        Self {
            clock: Clock::system(),
            entropy: Entropy::from_os(),
            tasks: Tasks::new(),
        }
    }

    /// Virtual time that starts at `start_ms` (Unix milliseconds) and entropy that follows `seed`.
    /// To be used on a current-thread Tokio runtime with paused time.
    #[must_use]
    pub fn simulated(seed: u64, start_ms: i64) -> Self {
        Self {
            clock: Clock::simulated(start_ms),
            entropy: Entropy::from_seed(seed),
            tasks: Tasks::inline(),
        }
    }
}
