//! Record batches, as they come and with length and CRC set right.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidemill_wire::batch::fuzz::batch(data));
