//! Seeded simulation of the storage core.
//!
//! One seed is one run on one thread and virtual time: brokers start, are killed, wake as zombies,
//! are sealed by one or two others; the store fails in every way a correct store may; producers,
//! readers and an administrator work meanwhile. At the end everything is healed and what was
//! observed is judged: anomalies of the history, the invariants, and the objects left in the store.
//!
//! ```text
//! TIDEMILL_SEED=17 cargo test -p tidemill-sim seeds -- --nocapture
//! ```
//!
//! runs one seed and prints its event log. The same seed always gives the same log.

mod admin;
mod broker;
mod check;
mod history;
mod medium;
mod nemesis;
mod producer;
mod reader;
mod run;
mod steps;
mod witness;
mod world;

pub use check::Finding;
pub use run::{Outcome, run_seed};
