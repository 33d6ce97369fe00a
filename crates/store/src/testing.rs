//! Stores that misbehave, for tests, simulation and benchmarks.

mod delayed;
mod fault;
mod faulty;
pub mod fuzz;
mod lines;
mod s3;
mod sim_fs;

pub use delayed::DelayedBackend;
pub use fault::{Fault, FaultPlan, Operation, Rule};
pub use faulty::{Event, FaultyBackend, Phase, Step};
pub use lines::Lines;
pub use s3::{S3Action, S3Counts, S3Latency, S3Options, S3Request, S3Rule, S3Server};
pub use sim_fs::{Crash, SimFs};
