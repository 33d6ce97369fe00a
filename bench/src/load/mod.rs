//! Load on any Kafka broker.

pub mod consume;
pub mod e2e;
mod fetch;
pub mod outcome;
mod pace;
pub mod payload;
pub mod produce;
pub mod target;

pub use consume::{Check, ConsumeLoad, consume};
pub use e2e::{E2eLoad, E2eOutcome, OpenLoop, Tally, e2e, open_loop};
pub use outcome::{Latency, Outcome};
pub use payload::{Shape, Stamp};
pub use produce::{Limit, ProduceLoad, produce};
pub use target::Target;
