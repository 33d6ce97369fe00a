//! Compression: round trips, framings, recompression.

use bytes::Bytes;
use proptest::prelude::*;
use tidemill_wire::batch::{
    BatchHeader, Compression, InflateError, RecompressError, RecompressOptions, Records, compress,
    inflate, recompress, validate, verify_crc,
};
use tidemill_wire::ids::{LeaderEpoch, Offset};

use crate::{options, sample, wrap_raw};

proptest! {
    #[test]
    fn every_codec_gives_back_what_went_in(
        data in proptest::collection::vec(any::<u8>(), 0..2000),
        repeat in 1_usize..100,
        codec in 0_usize..5,
    ) {
        let codec = Compression::ALL[codec];
        let data = data.repeat(repeat);
        let packed = Bytes::from(compress(codec, None, &data).expect("compressible"));
        let plain = inflate(codec, &packed, data.len() as u64).expect("within the limit");
        prop_assert_eq!(&plain[..], &data[..]);
        if !data.is_empty() {
            let max = data.len() as u64 - 1;
            prop_assert_eq!(inflate(codec, &packed, max), Err(InflateError::TooLarge { max }));
        }
    }
}

#[test]
fn levels_are_taken() {
    let data = b"abcdefgh".repeat(1000);
    for (codec, level) in [
        (Compression::Gzip, 9),
        (Compression::Gzip, 1),
        (Compression::Zstd, 19),
        (Compression::Zstd, -5),
    ] {
        let packed = compress(codec, Some(level), &data).expect("compressible");
        let plain = inflate(codec, &Bytes::from(packed), 1 << 20).expect("sound");
        assert_eq!(&plain[..], &data[..]);
    }
}

#[test]
fn snappy_is_read_raw_and_in_xerials_framing() {
    let plain = sample(Compression::None, 400).slice(61..);
    let raw = snap::raw::Encoder::new()
        .compress_vec(&plain)
        .expect("compressible");
    validate(wrap_raw(2, 400, &raw).into(), &options()).expect("raw snappy");
    let framed = compress(Compression::Snappy, None, &plain).expect("compressible");
    assert_eq!(&framed[..16], b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
    let first = u32::from_be_bytes([framed[16], framed[17], framed[18], framed[19]]) as usize;
    assert_eq!(
        snap::raw::decompress_len(&framed[20..20 + first]),
        Ok(32 << 10)
    );
    validate(wrap_raw(2, 400, &framed).into(), &options()).expect("framed snappy");
}

#[test]
fn gzip_members_and_zstd_frames_may_follow_one_another() {
    let plain = sample(Compression::None, 40).slice(61..);
    for codec in [Compression::Gzip, Compression::Zstd] {
        let (left, right) = plain.split_at(1000);
        let packed = [left, right].map(|part| compress(codec, None, part).expect("compressible"));
        validate(
            wrap_raw(codec.id(), 40, &packed.concat()).into(),
            &options(),
        )
        .expect("joined");
    }
}

#[test]
fn lz4_blocks_may_be_linked_and_large() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;
    let plain = sample(Compression::None, 4000).slice(61..);
    let info = FrameInfo::new()
        .block_size(BlockSize::Max256KB)
        .block_mode(BlockMode::Linked)
        .block_checksums(true)
        .content_checksum(true)
        .content_size(Some(plain.len() as u64));
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(&plain).expect("compressible");
    let packed = encoder.finish().expect("compressible");
    validate(wrap_raw(3, 4000, &packed).into(), &options()).expect("sound");
}

fn store_as(codec: Compression, max_message_bytes: u64) -> RecompressOptions {
    RecompressOptions {
        codec,
        level: None,
        max_inflated_bytes: 1 << 20,
        max_message_bytes,
    }
}

#[test]
fn recompression_changes_attributes_and_crc_and_nothing_else() {
    let records =
        |batch: &Bytes| -> Vec<_> { Records::open(batch, 1 << 20).expect("sound").collect() };
    for from in Compression::ALL {
        for to in Compression::ALL {
            let batch = validate(sample(from, 600), &options()).expect("valid");
            let other = recompress(batch.clone(), &store_as(to, 1 << 20)).expect("sound");
            assert!(verify_crc(&other.bytes).expect("whole"));
            let header = BatchHeader::parse(&other.bytes).expect("a batch");
            assert_eq!(header, other.header);
            assert_eq!(header.attributes.compression(), Some(to));
            assert_eq!(records(&other.bytes), records(&batch.bytes));
            if from == to {
                assert_eq!(other, batch);
            }
            validate(other.bytes, &options()).expect("valid");
        }
    }
}

#[test]
fn a_recomputed_timestamp_survives_recompression() {
    let mut batch = sample(Compression::None, 3).to_vec();
    batch[35..43].fill(0xff);
    crate::reseal(&mut batch);
    let batch = validate(batch.into(), &options()).expect("valid");
    let other = recompress(batch, &store_as(Compression::Zstd, 1 << 20)).expect("sound");
    assert_eq!(other.header.max_timestamp, crate::NOW + 2);
    let (head, tail) = other.assigned(Offset(9), LeaderEpoch(1));
    assert!(verify_crc(&[head, tail].concat()).expect("whole"));
}

#[test]
fn a_batch_too_large_in_the_new_codec_is_refused() {
    let batch = validate(sample(Compression::Zstd, 1000), &options()).expect("valid");
    let size = sample(Compression::None, 1000).len() as u64;
    let plain = recompress(batch.clone(), &store_as(Compression::None, size));
    assert_eq!(plain.expect("at the limit").bytes.len() as u64, size);
    let error = recompress(batch.clone(), &store_as(Compression::None, size - 1));
    let error = error.expect_err("above the limit");
    assert_eq!(error, RecompressError::TooLarge { max: size - 1 });
    assert_eq!(error.kafka_code(), 10);
    let tight = RecompressOptions {
        max_inflated_bytes: 100,
        ..store_as(Compression::Gzip, size)
    };
    assert_eq!(
        recompress(batch, &tight)
            .expect_err("inflates")
            .kafka_code(),
        10
    );
}
