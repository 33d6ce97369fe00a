//! The real binary, started as a user starts it: on free ports, on directories of its own, beside
//! an S3 server in process.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "the tests watch real processes in real time, and say what they skip"
)]

mod bucket;
mod commands;
mod corrupt;
mod fsck;
mod harness;
mod hostile;
mod lifecycle;
mod misuse;
mod namespace;
mod newer;
mod outage;
mod settings;
