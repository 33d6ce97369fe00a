//! The fuzz targets on made-up input: whatever is read can be written and read again.

use proptest::prelude::*;
use tidemill_wire::sample::Gen;
use tidemill_wire::{ApiKey, Encoder, RequestKind, fuzz};

/// A valid request as `any_request` takes it: index of the key, offset of the version, body.
fn valid(seed: u64) -> Vec<u8> {
    let mut g = Gen::new(seed);
    let index = g.below(ApiKey::ALL.len() as u64) as usize;
    let key = ApiKey::ALL[index];
    let versions = key.versions();
    let offset = g.below((versions.end() - versions.start() + 1) as u64) as i16;
    let version = versions.start() + offset;
    let mut encoder = Encoder::new();
    encoder.raw(&[index as u8, offset as u8]);
    RequestKind::sample(key, version, &mut g)
        .encode(&mut encoder, version)
        .expect("it fits");
    encoder.finish().to_bytes().to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz::any_request(&data);
        fuzz::frame(&data);
    }

    #[test]
    fn small_numbers(data in proptest::collection::vec(0..4u8, 0..300)) {
        fuzz::any_request(&data);
    }

    #[test]
    fn valid_requests_damaged(
        seed in any::<u64>(),
        hits in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cut in any::<Option<usize>>(),
    ) {
        let mut data = valid(seed);
        for (at, byte) in hits {
            if data.len() > 2 {
                let at = 2 + at % (data.len() - 2);
                data[at] = byte;
            }
        }
        if let Some(cut) = cut {
            data.truncate(2 + cut % data.len());
        }
        fuzz::any_request(&data);
    }
}
