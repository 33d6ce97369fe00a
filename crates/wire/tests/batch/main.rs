//! Record batches: validation, compression, records, building.

mod builder;
mod codec;
mod golden;
mod header;
mod hostile;
mod pieces;
mod validate;

use bytes::Bytes;
use tidemill_wire::batch::{BatchBuilder, Compression, NewRecord, ValidateOptions};

/// A time in 2023.
pub const NOW: i64 = 1_700_000_000_000;

/// Options of a default topic at [`NOW`].
pub fn options() -> ValidateOptions {
    ValidateOptions {
        now_ms: NOW,
        ..ValidateOptions::default()
    }
}

/// A batch of `count` records "k<i>" -> 100 bytes, timestamps `NOW + i`.
pub fn sample(codec: Compression, count: i64) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    for index in 0..count {
        let key = format!("k{index}");
        let value = [b'v'; 100];
        let record = NewRecord {
            timestamp: NOW + index,
            headers: &[("h", Some(b"1")), ("h", None)],
            ..NewRecord::key_value(key.as_bytes(), &value)
        };
        builder.push(&record).expect("record fits");
    }
    builder.build().expect("batch fits")
}

/// A batch around these record bytes, of this codec, header and CRC right.
pub fn wrap(codec: Compression, count: i32, records: &[u8]) -> Vec<u8> {
    let compressed = tidemill_wire::batch::compress(codec, None, records).expect("compressible");
    wrap_raw(codec.id(), count, &compressed)
}

/// A batch around bytes that are already what the codec id says, or are not.
pub fn wrap_raw(codec: u8, count: i32, records: &[u8]) -> Vec<u8> {
    let mut batch = vec![0; 61];
    batch.extend_from_slice(records);
    let length = i32::try_from(batch.len() - 12).expect("small");
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[12..16].copy_from_slice(&(-1_i32).to_be_bytes());
    batch[16] = 2;
    batch[22] = codec;
    batch[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    batch[27..35].copy_from_slice(&NOW.to_be_bytes());
    batch[35..43].copy_from_slice(&NOW.to_be_bytes());
    batch[43..57].fill(0xff);
    batch[57..61].copy_from_slice(&count.to_be_bytes());
    reseal(&mut batch);
    batch
}

/// Sets the CRC right.
pub fn reseal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}
