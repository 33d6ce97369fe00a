//! The core of the log: append, WAL, commit, recovery.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]
#![allow(clippy::print_stdout, reason = "figures, for whoever asks")]
#![allow(clippy::print_stderr, reason = "a failing seed is printed")]

mod append;
mod crash;
mod format;
mod fresh;
mod harness;
mod latency;
mod oracle;
mod producers;
mod replay;
mod sealer;
mod turns;
mod wal;
