//! Stores that misbehave, for tests, simulation and benchmarks.

mod fault;
mod faulty;

pub use fault::{Fault, FaultPlan, Operation, Rule};
pub use faulty::{Event, FaultyBackend, Phase};
