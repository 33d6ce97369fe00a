//! Offsets and epochs, and deleting records: K16-K18, K20, K60, K81.

mod common;

use common::{Client, Harness, admin::*, batch, start};
use tidemill_wire::{
    ErrorCode,
    batch::{BatchBuilder, Compression},
    messages::{
        delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic},
        offset_for_leader_epoch::{
            OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
        },
    },
};

async fn three_batches(h: &Harness) -> Client {
    h.topic("t", 1).await;
    let mut client = h.connect();
    for times in [[100, 50], [400, 200], [300, 300]] {
        let mut builder = BatchBuilder::new(Compression::Lz4);
        for time in times {
            builder
                .push(&common::record("v", common::NOW_MS + time))
                .expect("small");
        }
        let batch = builder.build().expect("a batch");
        assert_eq!(
            client.produce("t", 0, batch).await.error_code,
            ErrorCode::NONE
        );
    }
    client
}

#[tokio::test(start_paused = true)]
async fn k60_k81_delete_records() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    for value in ["a", "b", "c"] {
        client.produce("t", 0, batch(&[value])).await;
    }
    let mut delete = async |index, offset| {
        let partition = DeleteRecordsPartition {
            partition_index: index,
            offset,
        };
        let topic = DeleteRecordsTopic {
            name: text("t"),
            partitions: vec![partition],
        };
        let request = DeleteRecordsRequest {
            topics: vec![topic],
            // As with one replica in Kafka, nobody is waited for: 0 succeeds.
            timeout_ms: 0,
        };
        let response = client.call(2, &request).await;
        let part = &response.topics[0].partitions[0];
        (part.error_code.0, part.low_watermark)
    };
    assert_eq!(delete(0, 1).await, (0, 1));
    assert_eq!(delete(0, 0).await, (0, 1), "never back");
    assert_eq!(delete(0, 4).await, (1, -1));
    assert_eq!(delete(0, -2).await, (1, -1));
    assert_eq!(delete(7, 0).await, (3, -1));
    assert_eq!(delete(0, -1).await, (0, 3), "the high watermark");
    let mut client = h.connect();
    let data = client.fetch("t", 0, 2).await;
    assert_eq!(
        (data.error_code, data.log_start_offset),
        (ErrorCode::OFFSET_OUT_OF_RANGE, -1)
    );
    assert_eq!(client.fetch("t", 0, 3).await.log_start_offset, 3);
}

async fn delete_to(client: &mut Client, offset: i64) -> (ErrorCode, i64) {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: text("t"),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset,
            }],
        }],
        timeout_ms: 30_000,
    };
    let response = client.call(2, &request).await;
    let part = &response.topics[0].partitions[0];
    (part.error_code, part.low_watermark)
}

/// Twenty at once, in any order: each succeeds with a start at or beyond what it asked for, and
/// what anybody has seen is never taken back.
#[tokio::test(start_paused = true)]
async fn k81_parallel_deletions_never_move_the_start_back() {
    let h = start().await;
    h.topic("t", 1).await;
    let mut client = h.connect();
    for _ in 0..20 {
        client.produce("t", 0, batch(&["a", "b"])).await;
    }
    let offsets = (0..20).map(|n| (n * 7) % 40);
    let mut clients: Vec<(Client, i64)> = offsets.map(|offset| (h.connect(), offset)).collect();
    let watch = async {
        let (mut client, mut seen) = (h.connect(), 0);
        for _ in 0..200 {
            let start = client.fetch("t", 0, 40).await.log_start_offset;
            assert!(start >= seen, "{start} after {seen}");
            seen = start;
            h.sleep(std::time::Duration::from_micros(10)).await;
        }
    };
    let delete = async |(client, offset): &mut (Client, i64)| {
        let (code, start) = delete_to(client, *offset).await;
        assert_eq!(code, ErrorCode::NONE);
        assert!(start >= *offset, "{start} for {offset}");
        start
    };
    let deleting = futures_util::future::join_all(clients.iter_mut().map(delete));
    let (starts, ()) = futures_util::join!(deleting, watch);
    let furthest = (0..20).map(|n| (n * 7) % 40).max();
    assert_eq!(starts.iter().max().copied(), furthest);
    assert_eq!(client.fetch("t", 0, 40).await.log_start_offset, 39);
}

#[tokio::test(start_paused = true)]
async fn k16_k17_k18_list_offsets() {
    let h = start().await;
    let mut client = three_batches(&h).await;
    for version in 1..=11 {
        let latest = offset(&mut client, version, -1, 0).await;
        assert_eq!((latest.offset, latest.timestamp), (6, -1));
        assert_eq!(latest.leader_epoch, if version >= 4 { 0 } else { -1 });
        assert_eq!(offset(&mut client, version, -2, 0).await.offset, 0);
        let found = offset(&mut client, version, common::NOW_MS + 150, 0).await;
        assert_eq!((found.offset, found.timestamp), (2, common::NOW_MS + 400));
        let found = offset(&mut client, version, common::NOW_MS + 401, 0).await;
        assert_eq!(
            (found.error_code.0, found.offset, found.timestamp),
            (0, -1, -1)
        );
        let special = [
            (-3, 7, 2),
            (-4, 8, 0),
            (-5, 9, -1),
            (-6, 11, -1),
            (-7, 99, -1),
        ];
        for (timestamp, from, expected) in special {
            let found = offset(&mut client, version, timestamp, 0).await;
            if version < from {
                assert_eq!(
                    found.error_code,
                    ErrorCode::UNSUPPORTED_VERSION,
                    "{timestamp}"
                );
            } else {
                assert_eq!(
                    (found.error_code.0, found.offset),
                    (0, expected),
                    "{timestamp}"
                );
            }
        }
    }
    assert_eq!(offset(&mut client, 2, -1, 1).await.offset, 6, "LSO");
}

#[tokio::test(start_paused = true)]
async fn k20_ends_of_leader_epochs() {
    let h = start().await;
    let mut client = three_batches(&h).await;
    for (epoch, expected) in [(0, (0, 6)), (1, (-1, -1)), (9, (-1, -1))] {
        let partition = OffsetForLeaderPartition {
            leader_epoch: epoch,
            ..OffsetForLeaderPartition::default()
        };
        let topic = OffsetForLeaderTopic {
            topic: text("t"),
            partitions: vec![partition],
        };
        let request = OffsetForLeaderEpochRequest {
            topics: vec![topic],
            ..Default::default()
        };
        for version in 2..=4 {
            let response = client.call(version, &request).await;
            let end = &response.topics[0].partitions[0];
            assert_eq!((end.leader_epoch, end.end_offset), expected);
        }
    }
}

/// The record is looked for in its batch, whatever the batch's first record and codec are.
#[tokio::test(start_paused = true)]
async fn k16_a_time_within_a_batch_finds_its_own_record() {
    const NOW: i64 = common::NOW_MS;
    let codecs = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    for codec in codecs {
        let h = start().await;
        h.topic("t", 1).await;
        let mut client = h.connect();
        for from in [0, 100] {
            let mut builder = BatchBuilder::new(codec);
            for time in [10, 20, 20, 30, 50] {
                let record = common::record("v", NOW + from + time);
                builder.push(&record).expect("small");
            }
            let batch = builder.build().expect("a batch");
            let code = client.produce("t", 0, batch).await.error_code;
            assert_eq!(code, ErrorCode::NONE);
        }
        for (wanted, found) in [
            (9, (0, 10)),
            (10, (0, 10)),
            (11, (1, 20)),
            (20, (1, 20)),
            (21, (3, 30)),
            (31, (4, 50)),
            (51, (5, 110)),
            (121, (8, 130)),
            (150, (9, 150)),
        ] {
            let told = offset(&mut client, 5, NOW + wanted, 0).await;
            let told = (told.offset, told.timestamp - NOW);
            assert_eq!(told, found, "{codec:?}: {wanted}");
        }
    }
}
