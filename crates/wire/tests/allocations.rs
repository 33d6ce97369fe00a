//! What decoding and encoding allocate. A binary of its own, for its allocator.
#![expect(unsafe_code, reason = "a counting allocator can only be written so")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use tidemill_wire::messages::fetch::{FetchableTopicResponse, PartitionData};
use tidemill_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use tidemill_wire::messages::{FetchResponse, ProduceRequest};
use tidemill_wire::{ApiKey, Decoder, Encoder, Message, Records, RequestKind, ResponseKind};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        BYTES.set(BYTES.get() + layout.size());
        // SAFETY: the caller's promise is the one asked for here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        BYTES.set(BYTES.get() + size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations made by `work`, and the bytes asked for in all of them.
fn measure<T>(work: impl FnOnce() -> T) -> (usize, usize, T) {
    let before = (COUNT.get(), BYTES.get());
    let result = work();
    (COUNT.get() - before.0, BYTES.get() - before.1, result)
}

#[test]
fn produce_allocates_for_its_arrays_only() {
    let partition = |index| PartitionProduceData {
        index,
        records: Some(Records::from(Bytes::from(vec![7; 16_384]))),
    };
    let topic = || TopicProduceData {
        name: "a-topic-of-ordinary-length".into(),
        partition_data: (0..100).map(partition).collect(),
        ..Default::default()
    };
    let request = ProduceRequest {
        topic_data: vec![topic(), topic()],
        transactional_id: Some("transaction".into()),
        ..Default::default()
    };
    let mut encoder = Encoder::new();
    request.encode(&mut encoder, 9).expect("it fits");
    let bytes = encoder.finish().to_bytes();
    let decode = || ProduceRequest::decode(&mut Decoder::new(bytes.clone()), 9);
    decode().expect("it is read");
    let (count, size, read) = measure(decode);
    assert_eq!(read.expect("it is read"), request);
    assert!(count <= 3, "{count} allocations for three arrays");
    assert!(size < 20_000, "{size} bytes for 200 partitions");
}

#[test]
fn fetch_copies_no_payload() {
    let payload = Bytes::from(vec![7; 1 << 20]);
    let partition = |partition_index| PartitionData {
        partition_index,
        records: Some(Records::from(payload.clone())),
        ..Default::default()
    };
    let topic = FetchableTopicResponse {
        partitions: (0..100).map(partition).collect(),
        ..Default::default()
    };
    let response = FetchResponse {
        responses: vec![topic],
        ..Default::default()
    };
    let (count, size, frame) = measure(|| {
        let mut encoder = Encoder::frame();
        response.encode(&mut encoder, 17).expect("it fits");
        encoder.finish_frame().expect("it fits")
    });
    assert_eq!(frame.slices.len(), 201);
    assert!(
        count < 20 && size < 64 << 10,
        "{count} allocations, {size} bytes for 100 MiB"
    );
}

#[test]
fn claims_allocate_nothing() {
    // Every position of every message, overwritten with the largest claims.
    let claims: [&[u8]; 3] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0x07],
        &[0x7f],
    ];
    let mut worst = 0;
    for key in ApiKey::ALL {
        let versions = key.versions();
        for version in [*versions.start(), *versions.end()] {
            for (at, claim) in (0..48).flat_map(|at| claims.map(|claim| (at, claim))) {
                let mut bytes = vec![1; 64];
                bytes[at..at + claim.len()].copy_from_slice(claim);
                let bytes = Bytes::from(bytes);
                let (_, size, _) = measure(|| {
                    let _ = RequestKind::decode(*key, version, &mut Decoder::new(bytes.clone()));
                    let _ = ResponseKind::decode(*key, version, &mut Decoder::new(bytes.clone()));
                });
                worst = worst.max(size);
            }
        }
    }
    assert!(
        worst < 64 << 10,
        "{worst} bytes allocated for a message of 64"
    );
}
