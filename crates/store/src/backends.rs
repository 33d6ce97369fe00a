//! The backends: memory, local directory, remote object stores.

mod memory;

pub use memory::Memory;
