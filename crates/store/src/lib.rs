//! Object storage as Tidemill needs it: put-if-absent, numbered logs, retry, deadlines, faults.
//!
//! - [`Backend`] is the narrow set of operations a store must offer; directory, memory, S3, GCS and
//!   Azure implement it, and so does the fault-injecting wrapper used by every test of the log.
//! - [`Store`] wraps a backend with retry, deadlines, counters and the recognition of one's own
//!   write.
//! - [`NumberedLog`] is the one primitive everything durable is published by (R1-R3, R11).
//! - [`envelope`] is the header every stored object starts with.
//!
//! This crate knows no partition and no Kafka request.

pub mod backend;
pub mod backends;
mod create;
pub mod envelope;
pub mod error;
mod file;
mod key;
mod numbered;
pub mod open;
mod pace;
pub mod root;
mod stats;
mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use backend::{Backend, ObjectMeta, Payload, PutAnswer};
pub use backends::{Directory, DirectoryOptions, LocalSync, Memory, Remote, directory::fs::Space};
pub use envelope::{Envelope, ObjectKind, PutId};
pub use error::{StoreError, StoreErrorKind};
pub use file::ObjectFile;
pub use key::is_key;
pub use numbered::{CreateOutcome, NumberedLog};
pub use open::{OpenError, OpenOptions, open};
pub use pace::{Estimate, Estimator, HedgeCounters, HedgeMode, HedgeOptions};
pub use root::{FORMAT_LEVEL, ROOT_KEY, Root, RootError, open_root, read_root};
pub use stats::StoreCounters;
pub use store::{LIST_PAGE, Store, StoreOptions};
