//! Every message in every version against the `kafka-protocol` crate, in both directions.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as oracle;
use tidemill_wire::sample::Gen;
use tidemill_wire::{ApiKey, Decoder, Encoder, RequestKind, ResponseKind};

/// Messages made up for each version of each API.
const ROUNDS: u64 = 40;

/// The oracle's key, if it has this version. It knows about Kafka 4.1, and names two versions
/// whose messages it does not know: `vectors.rs` has those.
fn oracle_key(key: ApiKey, version: i16) -> Option<oracle::ApiKey> {
    if matches!(
        (key, version),
        (ApiKey::OffsetCommit | ApiKey::OffsetFetch, 10)
    ) {
        return None;
    }
    let oracle_key = oracle::ApiKey::try_from(key.code()).ok()?;
    let range = oracle_key.valid_versions();
    (range.min <= version && version <= range.max).then_some(oracle_key)
}

fn seed(key: ApiKey, version: i16, round: u64) -> u64 {
    (key.code() as u64) << 32 | (version as u64) << 16 | round
}

/// Ours to bytes, bytes to the oracle's and back, bytes to ours; says what differs.
macro_rules! round_trip {
    ($name:ident, $kind:ident) => {
        fn $name(key: ApiKey, version: i16, round: u64) -> Result<(), String> {
            let ours = $kind::sample(key, version, &mut Gen::new(seed(key, version, round)));
            let mut encoder = Encoder::new();
            ours.encode(&mut encoder, version)
                .map_err(|e| format!("encode: {e}"))?;
            let mut bytes = encoder.finish().to_bytes();
            if let Some(oracle_key) = oracle_key(key, version) {
                let mut left = bytes.clone();
                let theirs = oracle::$kind::decode(oracle_key, &mut left, version)
                    .map_err(|e| format!("oracle decodes: {e}: {ours:?}"))?;
                if !left.is_empty() {
                    return Err(format!("oracle leaves {} bytes of {ours:?}", left.len()));
                }
                let mut back = BytesMut::new();
                theirs
                    .encode(&mut back, version)
                    .map_err(|e| format!("oracle encodes: {e}"))?;
                if back != bytes {
                    return Err(differ(&bytes, &back.freeze(), &format!("{theirs:?}")));
                }
                bytes = back.freeze();
            }
            let mut decoder = Decoder::new(bytes);
            let back = $kind::decode(key, version, &mut decoder)
                .map_err(|e| format!("decode: {e}: {ours:?}"))?;
            if back != ours || decoder.remaining() != 0 {
                return Err(format!("read back {back:?} for {ours:?}"));
            }
            Ok(())
        }
    };
}

round_trip! { request, RequestKind }
round_trip! { response, ResponseKind }

fn differ(ours: &Bytes, theirs: &Bytes, value: &str) -> String {
    let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let lengths = (ours.len(), theirs.len());
    format!("oracle's bytes differ at {at}, lengths {lengths:?}: {value}")
}

fn all(test: fn(ApiKey, i16, u64) -> Result<(), String>) {
    let mut failures = BTreeMap::new();
    for key in ApiKey::ALL {
        for version in key.versions() {
            for round in 0..ROUNDS {
                if let Err(failure) = test(*key, version, round) {
                    failures.entry((*key, version)).or_insert(failure);
                }
            }
        }
    }
    let report: Vec<_> = failures
        .iter()
        .map(|((key, version), failure)| format!("{key} v{version}: {failure:.1500}"))
        .collect();
    assert!(report.is_empty(), "{}", report.join("\n\n"));
}

#[test]
fn every_request_in_every_version_is_the_oracles() {
    all(request);
}

#[test]
fn every_response_in_every_version_is_the_oracles() {
    all(response);
}
