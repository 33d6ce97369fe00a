//! A frame as it comes from a connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidemill_wire::fuzz::frame(data));
