//! All targets in one binary; `TIDEMILL_FUZZ_TARGET` chooses one.
#![no_main]

use std::sync::OnceLock;

type Target = fn(&[u8]);

/// What `fuzz/run` lists, by the same names.
const TARGETS: &[(&str, Target)] = &[
    // A frame as it comes from a connection.
    ("frame", tidemill_wire::fuzz::frame),
    // Any request, and the same bytes as a response; key and version are the first two bytes.
    ("any_request", tidemill_wire::fuzz::any_request),
    // A record batch as a producer sends it.
    ("batch", tidemill_wire::batch::fuzz::batch),
    // Records behind a codec.
    (
        "compressed_batch",
        tidemill_wire::batch::fuzz::compressed_batch,
    ),
    // Any bytes where an object is expected.
    ("stored_object", tidemill_fuzz::stored_object),
    // Directories behind headers whose checksums are right.
    ("directories", tidemill_fuzz::directories),
    // A `tidemill.toml` and settings from flags.
    ("configuration", tidemill_broker::config::fuzz),
];

fn chosen() -> Target {
    let name = std::env::var("TIDEMILL_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let Some((_, target)) = found else {
        panic!("TIDEMILL_FUZZ_TARGET names no target: `{name}`");
    };
    *target
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(chosen)(data);
});
