//! The bytes of stored objects do not change.

use bytes::{Bytes, BytesMut};
use tidemill_log::{
    extents::ExtentList,
    format::{
        checkpoint::{Checkpoint, CheckpointId, ClosingCheckpoint, PartitionUpdate, Splice},
        data::{
            AbortedTransaction, BatchInfo, BuiltObject, DataBuilder, DataDirectory, Footer, Run,
        },
        manifest,
    },
    keys,
    types::{DataObjectId, PartitionHead, ProducerBatch, ProducerState},
};
use tidemill_store::{Envelope, Payload, PutId};
use tidemill_wire::ids::{
    LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId, TopicId, WriterId,
};

const CLUSTER: [u8; 16] = [0xc1; 16];
const PUT: PutId = PutId([0x42; 16]);
const WRITER: WriterId = WriterId(7);

fn partition(index: i32) -> PartitionId {
    PartitionId {
        topic: TopicId([0xab; 16]),
        index,
    }
}

fn join(payload: &Payload) -> Bytes {
    let mut out = BytesMut::new();
    for slice in payload.slices() {
        out.extend_from_slice(slice);
    }
    out.freeze()
}

/// Length and checksum stand for the bytes: a change of any of them is seen.
fn print_of(bytes: &[u8]) -> (usize, u32) {
    (bytes.len(), crc32c::crc32c(bytes))
}

fn built() -> BuiltObject {
    let mut builder = DataBuilder::new();
    for index in 0..2 {
        builder.begin(partition(index), Offset(10)..Offset(30));
        for (offset, byte, len) in [(10, 1u8, 50_000usize), (20, 2, 50_000), (25, 3, 7)] {
            let body = Bytes::from(vec![byte; len]);
            let info = BatchInfo {
                base_offset: Offset(offset),
                crc: crc32c::crc32c(&body),
                max_timestamp: 1_000 - offset,
            };
            builder.push(info, [body.slice(..5), body.slice(5..)]);
        }
    }
    let id = DataObjectId {
        writer: WRITER,
        seq: 3,
    };
    builder.finish(id, PUT, CLUSTER)
}

#[test]
fn set_object_bytes() {
    let object = built();
    let bytes = join(&object.payload);
    assert_eq!(print_of(&bytes), (200_394, 2_691_851_779));
    let directory = DataDirectory::decode(&bytes).expect("own bytes");
    assert_eq!(directory.object_len, bytes.len() as u64);
    assert_eq!(directory.runs.len(), 2);
    for (run, (id, extent)) in directory.runs.iter().zip(&object.extents) {
        assert_eq!(run.partition, *id);
        assert_eq!(run.extent(object.id, directory.object_len), *extent);
        check_run(&bytes, run);
    }
}

fn slice(bytes: &Bytes, range: &std::ops::Range<u64>) -> Bytes {
    bytes.slice(range.start as usize..range.end as usize)
}

fn check_run(bytes: &Bytes, run: &Run) {
    let body = slice(bytes, &run.range);
    assert_eq!(crc32c::crc32c(&body), run.crc);
    let footer = slice(bytes, &run.footer);
    let footer = Footer::decode(&footer, run.footer_crc, body.len() as u64).expect("own footer");
    // 50,000 + 50,000 exceed a chunk, 50,000 + 7 do not.
    assert_eq!(footer.chunks.len(), 2);
    assert_eq!(
        (run.max_timestamp, run.max_timestamp_offset),
        (990, Offset(10))
    );
    for (index, chunk) in footer.chunks.iter().enumerate() {
        let range = footer.chunk_range(index, body.len() as u64);
        assert_eq!(crc32c::crc32c(&slice(&body, &range)), chunk.crc);
    }
    assert_eq!(footer.chunk_of(Offset(19)), 0);
    assert_eq!(footer.chunk_of(Offset(29)), 1);
}

#[test]
fn footer_bytes() {
    let aborted = AbortedTransaction {
        producer_id: ProducerId(5),
        first_offset: Offset(1),
        last_offset: Offset(9),
    };
    let footer = Footer {
        chunks: Vec::new(),
        aborted: vec![aborted],
    };
    let bytes = footer.encode();
    let expected = [
        &[0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0][..],
        &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(bytes, expected);
    let decoded = Footer::decode(&bytes, crc32c::crc32c(&bytes), 0).expect("own footer");
    assert_eq!(decoded, footer);
}

#[test]
fn manifest_bytes() {
    let (_, extent) = built().extents.remove(0);
    let id = DataObjectId {
        writer: WRITER,
        seq: 4,
    };
    let lists = [
        (partition(0), vec![extent.clone()]),
        (partition(1), vec![extent]),
    ];
    let (payload, refs) = manifest::encode(id, &lists, PUT, CLUSTER);
    let bytes = join(&payload);
    assert_eq!(print_of(&bytes), (356, 2_687_374_901));
    let entries = manifest::decode_directory(&bytes).expect("own bytes");
    assert_eq!(entries.len(), 2);
    for ((entry, (id, manifest)), (of, extents)) in entries.iter().zip(&refs).zip(&lists) {
        assert_eq!((entry.partition, &entry.range), (*id, &manifest.range));
        assert_eq!(of, id);
        let list = slice(&bytes, &manifest.range);
        assert_eq!(
            &manifest::decode_list(&list, manifest).expect("own list"),
            extents
        );
        let mut wrong = manifest.clone();
        wrong.crc ^= 1;
        assert!(manifest::decode_list(&list, &wrong).is_err());
    }
}

fn head(index: i32) -> PartitionHead {
    PartitionHead {
        partition: partition(index),
        leader_epoch: LeaderEpoch(4),
        next_offset: Offset(30),
        log_start: Offset(12),
        epoch_starts: vec![(LeaderEpoch(0), Offset(0)), (LeaderEpoch(4), Offset(25))],
        producers: vec![ProducerState {
            producer_id: ProducerId(99),
            epoch: ProducerEpoch(1),
            last_timestamp: 1_234,
            batches: vec![ProducerBatch {
                first_sequence: 0,
                last_sequence: 9,
                base_offset: Offset(10),
                last_offset: Offset(19),
                timestamp: 990,
            }],
            open_transaction: Some(Offset(10)),
            coordinator_epoch: -1,
        }],
    }
}

fn checkpoint(full: bool) -> Checkpoint {
    let object = built();
    let lists = [(partition(0), vec![object.extents[0].1.clone()])];
    let id = DataObjectId {
        writer: WRITER,
        seq: 4,
    };
    let (_, refs) = manifest::encode(id, &lists, PUT, CLUSTER);
    Checkpoint {
        number: 5,
        follows: Some(CheckpointId {
            number: 4,
            put_id: PutId([9; 16]),
        }),
        full,
        replay_from: 40,
        decided_below: 41,
        next_data_seq: 5,
        taken_ms: 1_700_000_000_000,
        cleanup: vec![WriterId(3)],
        garbage: vec![DataObjectId {
            writer: WriterId(3),
            seq: 1,
        }],
        dropped: vec![partition(8)],
        updates: vec![
            PartitionUpdate {
                head: head(0),
                whole: true,
                manifests: Some(vec![refs[0].1.clone()]),
                splices: Vec::new(),
            },
            PartitionUpdate {
                head: head(1),
                whole: full,
                manifests: None,
                splices: vec![Splice {
                    from: Offset(10),
                    to: Offset(10),
                    with: vec![object.extents[1].1.clone()],
                }],
            },
        ],
    }
}

#[test]
fn checkpoint_bytes() {
    for (full, expected) in [(false, (696, 4_089_932_151)), (true, (696, 2_583_694_765))] {
        let checkpoint = checkpoint(full);
        let bytes = join(&checkpoint.encode(PUT, CLUSTER, WRITER));
        assert_eq!(print_of(&bytes), expected);
        let (decoded, envelope) = Checkpoint::decode(&bytes).expect("own bytes");
        assert_eq!(decoded, checkpoint);
        assert_eq!((envelope.put_id, envelope.writer), (PUT, WRITER.0));
        let mut list = ExtentList::default();
        list.apply(&decoded.updates[1]);
        assert_eq!(list.end_offset(), Offset(30));
    }
}

#[test]
fn closing_checkpoint_bytes() {
    let follows = Some(CheckpointId {
        number: 4,
        put_id: PutId([9; 16]),
    });
    let closing = ClosingCheckpoint::new(follows, 100, [100, 101, 109]);
    let bytes = join(&closing.encode(PUT, CLUSTER, WRITER));
    let mut expected = vec![1u8, 4, 0, 0, 0, 0, 0, 0, 0];
    expected.extend([9; 16]);
    expected.extend([100, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([1, 109, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([2, 0, 0, 0, 0b11, 0b10]);
    assert_eq!(bytes.slice(Envelope::LEN..), expected);
    let (decoded, _) = ClosingCheckpoint::decode(&bytes).expect("own bytes");
    assert_eq!(decoded, closing);
    let landed: Vec<u64> = (90..120).filter(|n| decoded.landed(*n)).collect();
    assert_eq!(
        landed,
        [90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 109]
    );
}

#[test]
fn closing_checkpoint_of_a_writer_that_wrote_nothing() {
    let closing = ClosingCheckpoint::new(None, 0, []);
    assert_eq!(closing.last, None);
    let bytes = join(&closing.encode(PUT, CLUSTER, WRITER));
    let (decoded, _) = ClosingCheckpoint::decode(&bytes).expect("own bytes");
    assert!(!decoded.landed(0));
}

#[test]
fn damaged_objects_are_refused_and_never_panic() {
    let objects = [
        join(&built().payload).slice(..400),
        join(&checkpoint(false).encode(PUT, CLUSTER, WRITER)),
        join(&ClosingCheckpoint::new(None, 3, [4, 9]).encode(PUT, CLUSTER, WRITER)),
    ];
    for bytes in objects {
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x55;
            let damaged = Bytes::from(damaged);
            assert!(Checkpoint::decode(&damaged).is_err(), "byte {at}");
            assert!(ClosingCheckpoint::decode(&damaged).is_err(), "byte {at}");
            tidemill_log::format::data::fuzz(&damaged);
            tidemill_log::format::manifest::fuzz(&damaged[at..]);
            tidemill_log::format::checkpoint::fuzz(&damaged[at..]);
            assert!(
                Checkpoint::decode(&bytes.slice(..at)).is_err(),
                "cut at {at}"
            );
        }
    }
}

#[test]
fn extreme_numbers_under_a_valid_checksum_never_panic() {
    let objects = [
        join(&built().payload).slice(..400),
        join(&checkpoint(false).encode(PUT, CLUSTER, WRITER)),
        join(&ClosingCheckpoint::new(None, 3, [4, 9]).encode(PUT, CLUSTER, WRITER)),
    ];
    for bytes in objects {
        let (header, len, _) = Envelope::decode_header(&bytes).expect("own bytes");
        let body_at = Envelope::LEN + len as usize;
        let (directory, body) = (&bytes[Envelope::LEN..body_at], &bytes[body_at..]);
        for at in 0..directory.len().saturating_sub(7) {
            for value in [u64::MAX, u64::MAX - 200, i64::MAX as u64, 1 << 63] {
                let mut changed = directory.to_vec();
                changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
                let mut sealed = header.encode(&changed, body.len() as u64).to_vec();
                sealed.extend_from_slice(body);
                let sealed = Bytes::from(sealed);
                // Some are still well-formed, none may break the reader.
                let _ = Checkpoint::decode(&sealed);
                let _ = ClosingCheckpoint::decode(&sealed);
                let _ = DataDirectory::decode(&sealed);
            }
        }
    }
}

#[test]
fn keys_name_writer_and_number() {
    let id = DataObjectId {
        writer: WRITER,
        seq: 3,
    };
    let key = keys::data_key(id);
    assert_eq!(key, "8e/data/00000000000000000007/00000000000000000003");
    assert_eq!(keys::parse(&key), Some(keys::Named::Data(id)));
    assert_eq!(keys::parse(&key.replace("8e/d", "zz/d")), None);
}
