//! Any stored object: as it is, and with its checksums set right.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidemill_fuzz::stored_object(data));
