//! Fetch of what only a slow store has: K12 holds, and whoever asks again gets it.

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use common::{
    Client, Harness, batch, fetch_request,
    stored::{empty, open_store},
    values,
};
use tidemill_broker::config::BrokerConfig;
use tidemill_log::{
    LogLimits,
    roll::{Roll, SoleLeader},
};
use tidemill_store::{
    Backend, HedgeMode, HedgeOptions, Store, StoreOptions,
    testing::{DelayedBackend, Operation, S3Latency},
};
use tidemill_wire::{
    ErrorCode,
    messages::fetch::{FetchRequest, PartitionData},
};

/// How much later than it must an answer may come: simulated time steps by milliseconds.
const SLACK: Duration = Duration::from_millis(5);

/// Reads of data objects, and how long each takes.
#[derive(Default)]
struct DataReads {
    delay_ms: AtomicU64,
    count: AtomicU64,
}

impl DataReads {
    fn slow_store(self: &Arc<Self>, h: (tidemill_runtime::Runtime, Arc<dyn Backend>)) -> Store {
        let (runtime, below) = h;
        let reads = Arc::clone(self);
        let backend = DelayedBackend::new(below, runtime.clone(), move |request| {
            let is_data = request.operation == Operation::Get && request.key.contains("/data/");
            let delay_ms = match is_data {
                true => reads.delay_ms.load(Relaxed),
                false => 0,
            };
            reads.count.fetch_add(u64::from(is_data), Relaxed);
            S3Latency {
                first_byte: Duration::from_millis(delay_ms),
                transfer: Duration::ZERO,
            }
        });
        // Nothing is asked for twice, so that requests can be counted.
        let hedge = HedgeOptions {
            mode: HedgeMode::Off,
            ..HedgeOptions::default()
        };
        let options = StoreOptions {
            hedge,
            ..StoreOptions::default()
        };
        Store::new(Arc::new(backend), runtime, options)
    }
}

/// A broker with three records in each of two partitions, all of them in data objects alone, which
/// take `delay_ms` to be read; its cache has room for `cache_bytes`.
async fn cold(cache_bytes: u64, delay_ms: u64) -> (Harness, Arc<DataReads>) {
    let (runtime, backend) = empty();
    let reads = Arc::new(DataReads::default());
    let mut limits = LogLimits::local();
    limits.read.cache_bytes = cache_bytes;
    let open = async || {
        let below: Arc<dyn Backend> = Arc::new(backend.clone());
        let store = reads.slow_store((runtime.clone(), below));
        let config = BrokerConfig::default();
        open_store(store, backend.clone(), config, limits.clone()).await
    };
    let h = open().await;
    h.topic("t", 2).await;
    let mut client = h.connect();
    for index in [0, 1, 0, 1, 0, 1] {
        let code = client.produce("t", index, batch(&["a"])).await.error_code;
        assert_eq!(code, ErrorCode::NONE);
    }
    let roll = Roll::start(h.log.clone(), Arc::new(SoleLeader));
    roll.round().await.expect("a healthy store");
    // Its memory is empty.
    let h = open().await;
    reads.delay_ms.store(delay_ms, Relaxed);
    reads.count.store(0, Relaxed);
    (h, reads)
}

/// Fetches once, and watches that the answer comes in time.
async fn ask(h: &Harness, client: &mut Client, request: &FetchRequest) -> Vec<PartitionData> {
    let began = h.runtime.clock.monotonic();
    let response = client.call(11, request).await;
    let took = h.runtime.clock.monotonic() - began;
    let max_wait = Duration::from_millis(request.max_wait_ms.unsigned_abs().into());
    assert!(took <= max_wait + SLACK, "{took:?} of {max_wait:?}");
    let topics = response.responses.into_iter();
    topics.flat_map(|topic| topic.partitions).collect()
}

/// As the client of a consumer does, until there is something; returns how often it asked.
async fn ask_until_there(h: &Harness, client: &mut Client, request: &FetchRequest) -> u64 {
    for asked in 1.. {
        let parts = ask(h, client, request).await;
        for data in &parts {
            assert_eq!((data.error_code, data.high_watermark), (ErrorCode::NONE, 3));
        }
        if parts.iter().any(|data| !values(data).is_empty()) {
            assert_eq!(values(&parts[0]), ["a", "a", "a"]);
            return asked;
        }
        assert!(asked < 1_000, "nothing ever comes");
        // Or simulated time would stand still for who does not wait.
        h.sleep(Duration::from_millis(20)).await;
    }
    unreachable!()
}

#[tokio::test(start_paused = true)]
async fn k12_a_slow_store_delays_no_answer_and_starves_nobody() {
    for cache_bytes in [32 << 20, 0] {
        // Reads that it takes a client without haste.
        let (h, reads) = cold(cache_bytes, 3_000).await;
        let mut request = fetch_request("t", &[(0, 0), (1, 0)]);
        request.max_wait_ms = 60_000;
        assert_eq!(ask_until_there(&h, &mut h.connect(), &request).await, 1);
        let needed = reads.count.load(Relaxed);
        for max_wait_ms in [500, 10, 0] {
            let (h, reads) = cold(cache_bytes, 3_000).await;
            request.max_wait_ms = max_wait_ms;
            let asked = ask_until_there(&h, &mut h.connect(), &request).await;
            assert!(asked > 5, "the store is slow");
            let read = reads.count.load(Relaxed);
            assert_eq!(
                read, needed,
                "{max_wait_ms} ms, {asked} times: no more reads"
            );
        }
    }
}

/// What is in memory is given to who does not wait at all, the first time it asks.
#[tokio::test(start_paused = true)]
async fn what_the_cache_has_needs_no_wait() {
    let (h, reads) = cold(32 << 20, 3_000).await;
    let mut request = fetch_request("t", &[(0, 0), (1, 0)]);
    request.max_wait_ms = 60_000;
    let mut client = h.connect();
    ask_until_there(&h, &mut client, &request).await;
    let before = reads.count.load(Relaxed);
    request.max_wait_ms = 0;
    assert_eq!(ask_until_there(&h, &mut client, &request).await, 1);
    assert_eq!(reads.count.load(Relaxed), before);
}

/// A read for a request that is gone is no answer to one that wants less, or reads elsewhere; the
/// limits of each hold.
#[tokio::test(start_paused = true)]
async fn k11_what_others_left_behind_keeps_to_ones_own_limits() {
    let (h, _reads) = cold(0, 3_000).await;
    let mut client = h.connect();
    let mut request = fetch_request("t", &[(0, 0)]);
    request.max_wait_ms = 100;
    let data = ask(&h, &mut client, &request).await;
    assert!(values(&data[0]).is_empty());
    h.sleep(Duration::from_secs(9)).await;
    request.topics[0].partitions[0].partition_max_bytes = 1;
    request.max_wait_ms = 60_000;
    let data = ask(&h, &mut client, &request).await;
    assert_eq!(values(&data[0]), ["a"], "one batch");
    request.topics[0].partitions[0].fetch_offset = 1;
    let data = ask(&h, &mut client, &request).await;
    assert_eq!(values(&data[0]), ["a"], "the next one");
}
