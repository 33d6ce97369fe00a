//! The backends: memory, local directory, remote object stores.

pub mod directory;
mod memory;

pub use directory::{Directory, DirectoryOptions, LocalSync};
pub use memory::Memory;
