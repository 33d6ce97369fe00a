//! What a broker allocates for a batch that is produced, and for one that is fetched, once all is
//! warm, and how much it holds at once of a request that asks for too much. Counts do not depend on
//! the machine, so CI asserts them, and never a time. A binary of its own, for its allocator.
#![expect(unsafe_code, reason = "a counting allocator can only be written so")]
#![expect(clippy::print_stdout, reason = "what was measured")]

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use common::{Client, admin::creatable, batch, fetch_request, produce_request, start};
use tidemill_wire::{
    ErrorCode, Request, Str, frame,
    messages::create_topics::{
        CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest, CreateTopicsResponse,
    },
};
use tokio::{io::AsyncReadExt, sync::Mutex};

static COUNT: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicU64 = AtomicU64::new(0);
static MOST_HELD: AtomicU64 = AtomicU64::new(0);
/// The counts are of all threads: one test at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

fn hold(bytes: usize) {
    COUNT.fetch_add(1, Relaxed);
    BYTES.fetch_add(bytes as u64, Relaxed);
    let held = HELD.fetch_add(bytes as u64, Relaxed) + bytes as u64;
    MOST_HELD.fetch_max(held, Relaxed);
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        hold(layout.size());
        // SAFETY: the caller's promise is the one asked for here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_sub(layout.size() as u64, Relaxed);
        hold(size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Requests before anything is counted.
const WARM: u64 = 50;
/// Requests that are counted.
const COUNTED: u64 = 200;

/// About 1.3 times what was measured for a batch of 970 bytes that is produced, and one that is
/// fetched: 55 allocations with 17,973 bytes, 22 with 6,674.
const MOST_OF_1_KB: (Cost, Cost) = (Cost::new(71, 23_400), Cost::new(29, 8_700));
/// The same for 60,072 bytes: 55 with 136,151 (the bytes that came in, and the store's copy), 23
/// with 5,877. One more copy is beyond it.
const MOST_OF_60_KB: (Cost, Cost) = (Cost::new(71, 177_000), Cost::new(30, 7_700));

/// Allocations and bytes of one request, on average.
#[derive(Clone, Copy, Debug)]
struct Cost {
    allocations: u64,
    bytes: u64,
}

impl Cost {
    const fn new(allocations: u64, bytes: u64) -> Self {
        Self { allocations, bytes }
    }
}

/// Sends the same frame again and again, each after the answer to the one before; what the client
/// does allocates nothing.
async fn cost(client: &mut Client, request: &Bytes, answer_min: usize) -> Cost {
    let mut answer = vec![0; 1 << 20];
    let mut before = (0, 0);
    for n in 0..WARM + COUNTED {
        if n == WARM {
            before = (COUNT.load(Relaxed), BYTES.load(Relaxed));
        }
        client.raw(request).await;
        let size = client.stream.read_u32().await.expect("an answer") as usize;
        assert!(size >= answer_min, "{size} bytes");
        let body = &mut answer[..size];
        client.stream.read_exact(body).await.expect("an answer");
    }
    Cost {
        allocations: (COUNT.load(Relaxed) - before.0) / COUNTED,
        bytes: (BYTES.load(Relaxed) - before.1) / COUNTED,
    }
}

/// A request as it goes over the wire, without its size.
fn body<R: Request>(version: i16, request: &R) -> Bytes {
    let client_id = Str::from("test");
    let frame = frame::encode_request(version, 7, Some(&client_id), request);
    frame.expect("encodable").to_bytes().slice(4..)
}

#[tokio::test(start_paused = true)]
async fn a_batch_costs_so_many_allocations_and_so_many_bytes() {
    let _alone = ALONE.lock().await;
    let h = start().await;
    h.topic("small", 1).await;
    h.topic("large", 1).await;
    let mut client = h.connect();
    let small = batch(&[&"x".repeat(900)]);
    let large = batch(&[&"x".repeat(60_000)]);
    for (topic, batch, most) in [
        ("small", small, MOST_OF_1_KB),
        ("large", large, MOST_OF_60_KB),
    ] {
        let produce = body(9, &produce_request(topic, &[(0, batch.clone())]));
        let produced = cost(&mut client, &produce, 40).await;
        let mut fetch = fetch_request(topic, &[(0, 0)]);
        fetch.topics[0].partitions[0].partition_max_bytes = 1_024;
        let fetched = cost(&mut client, &body(11, &fetch), batch.len()).await;
        println!("{topic}: produced {produced:?}, fetched {fetched:?}");
        for (what, cost, most) in [("produced", produced, most.0), ("fetched", fetched, most.1)] {
            let fits = cost.allocations <= most.allocations && cost.bytes <= most.bytes;
            assert!(fits, "{topic}, {what}: {cost:?}, at most {most:?}");
        }
    }
}

/// K92: memory is what the request itself takes, decoded, and nothing by its numbers.
#[tokio::test(start_paused = true)]
async fn k92_a_million_assignments_are_refused_in_the_memory_of_their_request() {
    const ASSIGNMENTS: i32 = 1_000_000;
    let _alone = ALONE.lock().await;
    let h = start().await;
    let mut client = h.connect();
    let body = {
        let assignment = |partition_index| CreatableReplicaAssignment {
            partition_index,
            broker_ids: vec![1],
        };
        let topic = CreatableTopic {
            assignments: (0..ASSIGNMENTS).map(assignment).collect(),
            ..creatable("million", -1, &[])
        };
        let request = CreateTopicsRequest {
            topics: vec![topic, creatable("few", 1, &[])],
            ..CreateTopicsRequest::default()
        };
        body(7, &request)
    };
    let before = HELD.load(Relaxed);
    MOST_HELD.store(before, Relaxed);
    client.raw(&body).await;
    let answer = client.frame().await.expect("an answer");
    let most = MOST_HELD.load(Relaxed) - before;
    println!("{} bytes, at most {most} held at once", body.len());
    // The frame, 32 bytes an assignment and what allocations round up to.
    assert!(most < 6 * body.len() as u64, "{most} bytes held at once");
    let (_, response) = frame::decode_response::<CreateTopicsRequest>(answer, 7).expect("decodes");
    let CreateTopicsResponse { topics, .. } = response;
    assert_eq!(topics.len(), 2);
    for topic in topics {
        assert_eq!(topic.error_code, ErrorCode::POLICY_VIOLATION);
    }
}
