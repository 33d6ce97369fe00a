//! Memory while compressed batches are validated: a window, however much comes out.

use std::io::{Read, Write, copy, repeat};

use tidemill_wire::batch::{BatchError, Compression, ValidateOptions, validate};

const BOMB_BYTES: u64 = 512 << 20;

/// What the whole test process may have used at its peak.
const MAX_RESIDENT_KIB: u64 = 64 << 10;

/// One record whose value is half a gigabyte of zeros, written without holding it.
fn bomb(out: &mut impl Write) {
    fn varint(out: &mut Vec<u8>, value: u64) {
        let mut raw = value << 1;
        while raw >= 0x80 {
            out.push(raw as u8 | 0x80);
            raw >>= 7;
        }
        out.push(raw as u8);
    }
    let mut fields = vec![0, 0, 0, 1];
    varint(&mut fields, BOMB_BYTES);
    let mut head = Vec::new();
    varint(&mut head, fields.len() as u64 + BOMB_BYTES + 1);
    head.extend_from_slice(&fields);
    out.write_all(&head).expect("memory");
    copy(&mut repeat(0).take(BOMB_BYTES + 1), out).expect("memory");
}

fn compressed(codec: Compression) -> Vec<u8> {
    match codec {
        Compression::Gzip => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            bomb(&mut out);
            out.finish().expect("memory")
        }
        Compression::Lz4 => {
            let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
            bomb(&mut out);
            out.finish().expect("memory")
        }
        _ => {
            let mut out = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("a level");
            bomb(&mut out);
            out.finish().expect("memory")
        }
    }
}

fn wrap(codec: Compression, records: &[u8]) -> Vec<u8> {
    let mut batch = vec![0; 61];
    batch.extend_from_slice(records);
    let length = i32::try_from(batch.len() - 12).expect("small");
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[16] = 2;
    batch[22] = codec.id();
    batch[43..57].fill(0xff);
    batch[57..61].copy_from_slice(&1_i32.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// Peak resident memory of this process in KiB, where the system tells it.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn half_a_gigabyte_is_walked_in_a_window() {
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let batch = wrap(codec, &compressed(codec));
        let options = ValidateOptions {
            max_message_bytes: 100 << 20,
            max_inflated_bytes: 1 << 30,
            ..ValidateOptions::default()
        };
        let valid = validate(batch.clone().into(), &options).expect("a sound batch");
        assert!(valid.inflated_bytes > BOMB_BYTES, "{codec:?}");
        let default = ValidateOptions {
            max_inflated_bytes: 128 << 20,
            ..options
        };
        let error = validate(batch.into(), &default).expect_err("beyond the default bound");
        assert_eq!(error, BatchError::InflatedTooLarge { max: 128 << 20 });
        if let Some(peak) = peak_kib() {
            assert!(peak < MAX_RESIDENT_KIB, "{codec:?}: {peak} KiB at the peak");
        }
    }
}
