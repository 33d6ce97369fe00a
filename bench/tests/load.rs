//! The load generator against a broker in process over memory: counts only, never time.

mod common;

use std::{sync::Arc, time::Duration};

use common::serve;
use tidemill_bench::{
    BenchError,
    load::{
        Check, ConsumeLoad, E2eLoad, Limit, OpenLoop, ProduceLoad, Shape, Stamp, Tally, consume,
        e2e, open_loop, produce,
    },
};
use tidemill_store::Memory;

const SHAPE: Shape = Shape {
    record_bytes: 100,
    batch_records: 10,
};

fn produce_load(limit: Limit) -> ProduceLoad {
    ProduceLoad {
        topic: "load".to_owned(),
        partitions: 3,
        producers: 2,
        in_flight: 4,
        shape: SHAPE,
        limit,
        records_per_second: None,
        acks: -1,
        seed: 1,
    }
}

fn consume_load(check: Check) -> ConsumeLoad {
    ConsumeLoad {
        topic: "load".to_owned(),
        partitions: 3,
        connections: 2,
        max_bytes: 1 << 20,
        // Less than a partition holds: it takes several answers.
        partition_max_bytes: 4_000,
        check,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_produced_is_consumed() {
    let broker = serve().await;
    let target = &broker.target;
    target.create_topic("load", 3, &[]).await.expect("created");
    let before = broker.store.counters();
    let sent = produce(target, &produce_load(Limit::Records(995)))
        .await
        .expect("produced");
    // Whole batches.
    assert_eq!((sent.records, sent.requests), (1_000, 100));
    assert_eq!(sent.latency.count(), 100);
    assert!(sent.bytes > 100 * 1_000);
    let puts = broker.store.counters().puts - before.puts;
    assert!(
        (1..=100).contains(&puts),
        "group commit: {puts} PUTs for 100 requests"
    );
    for check in [Check::None, Check::Crc, Check::Decode] {
        let read = consume(target, &consume_load(check))
            .await
            .expect("consumed");
        assert_eq!((read.records, read.bytes), (1_000, sent.bytes), "{check:?}");
        assert!(read.requests > 2);
    }
    // Created before is no error; what does not exist is.
    target.create_topic("load", 3, &[]).await.expect("exists");
    let other = ProduceLoad {
        topic: "none".to_owned(),
        ..produce_load(Limit::Records(10))
    };
    let refused = produce(target, &other).await;
    assert!(
        matches!(refused, Err(BenchError::Refused { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_loop_sends_what_its_rate_says() {
    let broker = serve().await;
    let target = &broker.target;
    target.create_topic("load", 3, &[]).await.expect("created");
    let load = ProduceLoad {
        records_per_second: Some(2_000.0),
        ..produce_load(Limit::Records(300))
    };
    let sent = produce(target, &load).await.expect("produced");
    assert_eq!((sent.records, sent.latency.count()), (300, 30));
    let load = OpenLoop {
        topic: "load".to_owned(),
        partitions: 3,
        producers: 2,
        consumers: 2,
        shape: SHAPE,
        messages_per_second: 200.0,
        in_flight: 100,
        warmup: Duration::from_millis(100),
        time: Duration::from_millis(400),
        seed: 1,
    };
    let out = open_loop(target, &load).await.expect("measured");
    // By intended times, not by what the machine manages.
    assert_eq!(out.sent, 100);
    assert_eq!((out.lost, out.doubled, out.reordered), (0, 0, 0));
    assert_eq!(out.acknowledged.count(), 80);
    assert_eq!(out.latency.count(), 80 * SHAPE.batch_records as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_at_a_time_beside_raw_puts() {
    let broker = serve().await;
    let target = &broker.target;
    target.create_topic("e2e", 1, &[]).await.expect("created");
    let raw = Memory::new(target.runtime.clock.clone());
    let load = E2eLoad {
        topic: "e2e".to_owned(),
        shape: SHAPE,
        count: 20,
        warmup: 5,
        raw: Some(Arc::new(raw)),
        seed: 1,
    };
    // Twice: what is there already is not taken for the new run's.
    for _ in 0..2 {
        let out = e2e(target, &load).await.expect("measured");
        assert_eq!(
            (out.sent, out.latency.count(), out.raw.count()),
            (25, 20, 20)
        );
        assert_eq!(out.acknowledged.count(), 20);
        assert_eq!((out.lost, out.doubled, out.reordered), (0, 0, 0));
    }
}

#[test]
fn a_stamp_survives_and_a_tally_sees_what_is_wrong() {
    let stamp = |producer, sequence| Stamp {
        producer,
        sequence,
        intended_ns: 77,
    };
    let mut value = vec![0; 40];
    stamp(3, u64::MAX).write(&mut value);
    assert_eq!(Stamp::read(&value), Some(stamp(3, u64::MAX)));
    assert_eq!(Stamp::read(&value[..20]), None);
    assert_eq!(Stamp::read(&[0; 40]), None);
    let mut tally = Tally::default();
    for (partition, sequence) in [(0, 0), (0, 2), (1, 1), (0, 130), (0, 3), (0, 2)] {
        tally.note(partition, stamp(1, sequence));
    }
    tally.note(0, stamp(2, 0));
    assert_eq!(
        (tally.received(), tally.doubled(), tally.reordered()),
        (6, 1, 1)
    );
}
