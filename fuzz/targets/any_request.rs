//! Any request, and the same bytes as a response; key and version are the first two bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidemill_wire::fuzz::any_request(data));
