//! Compressed records under a good header; the first two bytes are codec and count.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidemill_wire::batch::fuzz::compressed_batch(data));
