//! The bytes of a WAL object do not change, and no bytes can do harm.

use proptest::prelude::*;
use tidemill_log::{
    LogLimits,
    format::wal::{WalDirectory, WalEntry, WalPart, WalPartBody, fuzz},
    recover::Recovered,
};
use tidemill_store::envelope::EnvelopeError;
use tidemill_wire::{
    batch::BatchHeader,
    ids::{LeaderEpoch, Offset},
};

use crate::harness::{append, lead, partition, sequenced, simulate};

fn directory() -> WalDirectory {
    let batch = sequenced(7, 1, 40, b"value", 3);
    let header = batch.at(Offset(100), LeaderEpoch(2));
    let len = batch.bytes.len() as u64;
    let records = WalPart {
        partition: partition(3),
        body: WalPartBody::Records { header, start: 0 },
    };
    let log_start = WalPartBody::LogStart {
        epoch: LeaderEpoch(2),
        offset: Offset(50),
    };
    let log_start = WalPart {
        partition: partition(4),
        body: log_start,
    };
    let entry = |id, fragment, fragments, range: std::ops::Range<u64>, parts| WalEntry {
        id,
        fragment,
        fragments,
        length: if fragments == 1 { len } else { 100 },
        range,
        crc: 0x0102_0304,
        deps: 0b1011,
        parts,
    };
    WalDirectory {
        number: 12,
        decided_below: 9,
        replay_from: 4,
        written_ms: 1_800_000_000_123,
        entries: vec![
            entry(5, 0, 1, 0..len, vec![records, log_start]),
            entry(6, 0, 2, len..len + 60, Vec::new()),
        ],
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn directory_bytes() {
    let directory = directory();
    let bytes = directory.encode();
    let body_len = directory.entries[1].range.end;
    assert_eq!(WalDirectory::decode(&bytes, body_len).unwrap(), directory);
    assert_eq!(hex(&bytes), include_str!("golden/wal_directory.hex").trim());
}

#[test]
fn an_object_is_what_its_directory_says() {
    simulate(1, |world| async move {
        let log = world
            .open_with(1, LogLimits::local(), Recovered::default())
            .await;
        lead(&log, 0);
        let sent = sequenced(7, 0, 0, b"value", 2);
        append(&log, 0, sent.clone()).wait().await.unwrap();
        let bytes = world.wal(1).read(1).await.unwrap().unwrap();
        let (envelope, directory, body_at) = WalDirectory::decode_object(&bytes).unwrap();
        assert_eq!(
            (envelope.writer, directory.number, directory.decided_below),
            (1, 1, 1)
        );
        let entry = &directory.entries[0];
        let body = bytes.slice(usize::try_from(body_at).unwrap()..);
        assert_eq!(crc32c::crc32c(&body), entry.crc);
        let header = BatchHeader::parse(&body).unwrap();
        let WalPartBody::Records {
            header: listed,
            start: 0,
        } = entry.parts[0].body
        else {
            panic!("{entry:?}")
        };
        assert_eq!((header, header.stored_crc()), (listed, entry.crc));
        assert!(body.ends_with(&sent.records()));
    });
}

#[test]
fn an_unknown_kind_of_part_is_named() {
    let directory = directory();
    let mut bytes = directory.encode().to_vec();
    let kind = 36 + 60;
    assert_eq!(bytes[kind], 1, "the first part's kind");
    bytes[kind] = 3;
    let error = WalDirectory::decode(&bytes, directory.entries[1].range.end).unwrap_err();
    assert!(matches!(error, EnvelopeError::TooNew { .. }), "{error}");
}

proptest! {
    #[test]
    fn damaged_directories_do_no_harm(at in 0usize..400, bit in 0u8..8, cut in 0usize..400) {
        let directory = directory();
        let body_len = u32::try_from(directory.entries[1].range.end).unwrap();
        let mut bytes = body_len.to_le_bytes().to_vec();
        bytes.extend_from_slice(&directory.encode());
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        fuzz(&bytes);
        fuzz(&bytes[..cut.min(bytes.len())]);
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz(&bytes);
    }
}
