//! The backends: memory, local directory, remote object stores.

pub mod directory;
mod memory;
pub mod remote;

pub use directory::{Directory, DirectoryOptions, LocalSync};
pub use memory::Memory;
pub use remote::Remote;
