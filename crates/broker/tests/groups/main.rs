//! Consumer groups: the state machine alone, and over the wire in a whole broker.

#[path = "../common/mod.rs"]
mod common;

mod churn;
mod client;
mod cooperative;
mod internal;
mod limits;
mod machine;
mod offsets;
mod outage;
mod rebalance;
mod sim;
mod statics;
