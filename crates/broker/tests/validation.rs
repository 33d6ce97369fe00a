//! Heavy batches: nobody else waits for them, and their connection's order stands.

mod common;

use std::sync::mpsc;

use bytes::Bytes;
use common::{Client, Harness, admin::offset as search, batch, produce_request, start_on};
use futures_util::FutureExt;
use tidemill_runtime::Runtime;
use tidemill_wire::{
    ErrorCode, Str,
    batch::{BatchBuilder, Compression, NewRecord},
    ids::{ProducerEpoch, ProducerId},
    messages::{
        api_versions::ApiVersionsRequest,
        delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic},
        init_producer_id::InitProducerIdRequest,
        produce::ProduceRequest,
    },
};

/// Bytes that a bomb comes to.
const BOMB: usize = 100 << 20;
/// More than there are ever threads for blocking work.
const THREADS: usize = 1_000;
/// Answers that others get meanwhile: far more than a heavy one would take if its work were done.
const MEANWHILE: usize = 100;

/// ListOffsets: the record with the greatest timestamp.
const MAX_TIMESTAMP: i64 = -3;

fn sequenced(producer: ProducerId, sequence: i32, value: &[u8], codec: Compression) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    builder.producer(producer, ProducerEpoch(0), sequence);
    let record = NewRecord {
        timestamp: -1,
        key: None,
        value: Some(value),
        headers: &[],
    };
    builder.push(&record).expect("within bounds");
    builder.build().expect("a batch")
}

async fn producer(client: &mut Client) -> ProducerId {
    let request = InitProducerIdRequest {
        transactional_id: None,
        ..InitProducerIdRequest::default()
    };
    ProducerId(client.call(4, &request).await.producer_id)
}

/// Keeps all threads for blocking work busy until what is returned is dropped.
fn hold_threads(h: &Harness) -> Vec<mpsc::Sender<()>> {
    let hold = |_| {
        let (release, held) = mpsc::channel::<()>();
        let work = move || held.recv().unwrap_or_default();
        // Handed over when it is first asked for.
        let work = Box::pin(h.runtime.tasks.blocking("held", work));
        assert_eq!(work.now_or_never(), None);
        release
    };
    (0..THREADS).map(hold).collect()
}

/// Others are answered while a heavy request waits for a thread of its own.
async fn others_are_answered(light: &mut Client, heavy: &mut (impl Future + Unpin), what: &str) {
    for _ in 0..MEANWHILE {
        light.call(0, &ApiVersionsRequest::default()).await;
        let is_done = heavy.now_or_never().is_some();
        assert!(
            !is_done,
            "{what}: it was done on the thread that serves all"
        );
    }
}

/// One thread serves everybody here: if it inflated the bomb, nobody else would be answered.
#[tokio::test]
async fn a_bomb_blocks_nobody_and_what_follows_it_keeps_its_place() {
    let h = start_on(Runtime::system()).await;
    h.topic("t", 1).await;
    let (mut heavy, mut light) = (h.connect(), h.connect());
    let id = producer(&mut heavy).await;
    let zeros = vec![0; BOMB];
    for codec in [Compression::Zstd, Compression::Gzip] {
        let first = match codec {
            Compression::Zstd => 0,
            _ => 3,
        };
        let bomb = sequenced(id, first, &zeros, codec);
        assert!(bomb.len() < 1 << 20, "{codec:?}: small on the wire");
        let held = hold_threads(&h);
        heavy.send(9, &produce_request("t", &[(0, bomb)])).await;
        // These wait for their turn: as they came, whatever the first costs.
        for next in 1..3 {
            let small = sequenced(id, first + next, b"small", Compression::None);
            heavy.send(9, &produce_request("t", &[(0, small)])).await;
        }
        let mut bombed = Box::pin(heavy.receive::<ProduceRequest>(9));
        others_are_answered(&mut light, &mut bombed, &format!("{codec:?}")).await;
        drop(held);
        let (_, response) = bombed.await;
        let mut offsets = vec![offset(&response)];
        for _ in 1..3 {
            offsets.push(offset(&heavy.receive::<ProduceRequest>(9).await.1));
        }
        let first = i64::from(first);
        assert_eq!(offsets, [first, first + 1, first + 2], "{codec:?}");
    }
    let own = light.produce("t", 0, batch(&["x"])).await;
    assert_eq!((own.error_code, own.base_offset), (ErrorCode::NONE, 6));
}

/// A record is looked for by its time in a batch that must be decompressed as a whole for it.
#[tokio::test]
async fn a_search_through_a_bomb_blocks_nobody() {
    let h = start_on(Runtime::system()).await;
    h.topic("t", 1).await;
    let (mut heavy, mut light) = (h.connect(), h.connect());
    let zeros = vec![0; BOMB];
    let mut builder = BatchBuilder::new(Compression::Gzip);
    for (timestamp, value) in [(common::NOW_MS, &zeros[..]), (common::NOW_MS + 7, b"")] {
        let record = NewRecord {
            timestamp,
            key: None,
            value: Some(value),
            headers: &[],
        };
        builder.push(&record).expect("within bounds");
    }
    let bomb = builder.build().expect("a batch");
    let produced = heavy.produce("t", 0, bomb).await;
    assert_eq!(produced.error_code, ErrorCode::NONE);
    for wanted in [common::NOW_MS + 1, MAX_TIMESTAMP] {
        let held = hold_threads(&h);
        let mut found = Box::pin(search(&mut heavy, 9, wanted, 0));
        others_are_answered(&mut light, &mut found, &wanted.to_string()).await;
        drop(held);
        let found = found.await;
        assert_eq!((found.offset, found.timestamp), (1, common::NOW_MS + 7));
    }
}

/// Batches of as many records as clients make are walked once, not once for each record.
#[tokio::test]
async fn a_batch_of_many_times_is_searched_in_one_walk() {
    const RECORDS: i64 = 120_000;
    let h = start_on(Runtime::system()).await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    let mut builder = BatchBuilder::new(Compression::Lz4);
    for n in 0..RECORDS {
        // The first is the latest; then each is later than the one before.
        let timestamp = common::NOW_MS + if n == 0 { RECORDS } else { n };
        let record = NewRecord {
            timestamp,
            key: None,
            value: None,
            headers: &[],
        };
        builder.push(&record).expect("within bounds");
    }
    let produced = client.produce("t", 0, builder.build().expect("a batch"));
    assert_eq!(produced.await.error_code, ErrorCode::NONE);
    let found = search(&mut client, 9, MAX_TIMESTAMP, 0).await;
    assert_eq!(
        (found.offset, found.timestamp),
        (0, common::NOW_MS + RECORDS)
    );
    let code = delete_before(&mut client, 1).await;
    assert_eq!(code, ErrorCode::NONE);
    let found = search(&mut client, 9, MAX_TIMESTAMP, 0).await;
    let last = RECORDS - 1;
    assert_eq!(
        (found.offset, found.timestamp),
        (last, common::NOW_MS + last)
    );
}

async fn delete_before(client: &mut Client, offset: i64) -> ErrorCode {
    let partition = DeleteRecordsPartition {
        partition_index: 0,
        offset,
    };
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: Str::from("t"),
            partitions: vec![partition],
        }],
        timeout_ms: 5_000,
    };
    let response = client.call(2, &request).await;
    response.topics[0].partitions[0].error_code
}

fn offset(response: &tidemill_wire::messages::produce::ProduceResponse) -> i64 {
    let part = &response.responses[0].partition_responses[0];
    assert_eq!(part.error_code, ErrorCode::NONE);
    part.base_offset
}
