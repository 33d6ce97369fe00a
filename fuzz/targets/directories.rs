//! Directories of metadata, WAL and checkpoints; the first byte says which.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidemill_fuzz::directories(data));
