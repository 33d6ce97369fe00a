//! Configuration files, settings and changes of topics.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidemill_broker::config::fuzz(data));
