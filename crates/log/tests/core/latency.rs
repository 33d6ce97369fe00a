//! The latency path against a model of S3, on simulated time: every figure follows the seed.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use tidemill_log::{Entry, Latency, Log, LogLimits, LogOptions, recover::Recovered, wal};
use tidemill_runtime::{Entropy, Runtime};
use tidemill_store::{
    Backend, HedgeMode, HedgeOptions, Memory, NumberedLog, Payload, Store, StoreOptions,
    testing::{DelayedBackend, Operation, S3Latency},
};
use tidemill_wire::{batch::ValidBatch, ids::WriterId};

use crate::harness::{CLUSTER, START_MS, batch, lead, partition};

/// Median and 95th percentile of the base delay (s), bytes a second.
#[derive(Clone, Copy)]
struct Model {
    put: (f64, f64, f64),
    get: (f64, f64, f64),
    /// Share of requests a second later.
    stalled: f64,
}

const S3: Model = Model {
    put: (0.017, 0.032, 61e6),
    get: (0.013, 0.030, 85e6),
    stalled: 0.0,
};
const EXPRESS: Model = Model {
    put: (0.005, 0.008, 115e6),
    get: (0.004, 0.007, 150e6),
    stalled: 0.0,
};
const S3_STALLS: Model = Model {
    stalled: 0.02,
    ..S3
};

impl Model {
    fn draw(&self, entropy: &Entropy, operation: Operation, bytes: u64) -> S3Latency {
        let (median, p95, rate) = match operation {
            Operation::Put => self.put,
            _ => self.get,
        };
        let unit = || ((entropy.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let z = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
        let base = median * ((p95 / median).ln() / 1.644_853_6 * z).exp();
        let stall = Duration::from_secs(u64::from(entropy.chance(self.stalled)));
        S3Latency {
            first_byte: Duration::from_secs_f64(base) + stall,
            transfer: Duration::from_secs_f64(bytes as f64 / rate),
        }
    }

    fn store(self, seed: u64, mode: HedgeMode) -> Store {
        let runtime = Runtime::simulated(seed, START_MS);
        let memory: Arc<dyn Backend> = Arc::new(Memory::new(runtime.clock.clone()));
        let entropy = Entropy::from_seed(seed);
        let backend = DelayedBackend::new(memory, runtime.clone(), move |request| {
            self.draw(&entropy, request.operation, request.bytes)
        });
        let options = StoreOptions {
            hedge: HedgeOptions {
                mode,
                ..HedgeOptions::default()
            },
            ..StoreOptions::default()
        };
        Store::new(Arc::new(backend), runtime, options)
    }
}

struct World {
    store: Store,
    log: Arc<Log>,
}

/// Runs `test` on a paused runtime.
fn simulate<F: Future<Output = ()>>(test: F) {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    executor.block_on(test);
}

impl World {
    async fn open(model: Model, seed: u64, partitions: i32) -> Self {
        let store = model.store(seed, HedgeMode::Remote);
        let (runtime, writer) = (store.runtime().clone(), WriterId(1));
        let objects = NumberedLog::new(store.clone(), tidemill_log::keys::wal_prefix(writer));
        wal::start(&runtime, &objects, writer, CLUSTER, None)
            .await
            .unwrap();
        let options = LogOptions {
            writer,
            cluster_id: CLUSTER,
            store: store.clone(),
            runtime,
            limits: LogLimits::bucket(),
            exclusive: false,
        };
        let log = Log::open(options, Recovered::default());
        (0..partitions).for_each(|index| drop(lead(&log, index)));
        Self { store, log }
    }

    fn append(&self, index: i32, batch: ValidBatch, latency: Latency) -> tidemill_log::Appended {
        let entry = Entry::records(partition(index), batch, latency);
        self.log.append(entry).unwrap().pop().unwrap()
    }

    async fn sleep_ms(&self, ms: u64) {
        self.store
            .runtime()
            .clock
            .sleep(Duration::from_millis(ms))
            .await;
    }

    /// Small batches and large ones, until the store's rates are known.
    async fn warm_up(&self) {
        let (small, large) = (batch(&[1; 1_000], 1), batch(&[2; 4_096], 1_000));
        for n in 0..300 {
            self.append(0, small.clone(), Latency::Low)
                .wait()
                .await
                .unwrap();
            if n % 10 == 0 {
                let appended = self.append(0, large.clone(), Latency::Low);
                appended.wait().await.unwrap();
            }
        }
    }
}

fn at(took: &mut [Duration], share: f64) -> f64 {
    took.sort_unstable();
    took[(took.len() as f64 * share) as usize].as_secs_f64() * 1e3
}

/// How long raw PUTs of `bytes` take, one after the other.
async fn raw(model: Model, seed: u64, bytes: usize, count: u64) -> Vec<Duration> {
    let store = model.store(seed, HedgeMode::Off);
    let clock = store.runtime().clock.clone();
    let mut took = Vec::new();
    for n in 0..count {
        let start = clock.monotonic();
        let body = Payload::from(Bytes::from(vec![0; bytes]));
        let key = format!("raw/{n}");
        store.backend().put_if_absent(&key, body).await.unwrap();
        took.push(clock.monotonic() - start);
    }
    took
}

async fn large_batches(model: Model, seed: u64, bars: [(f64, f64); 3]) {
    let large = batch(&[2; 4_096], 1_000);
    let mut raw = raw(model, seed, large.bytes.len(), 300).await;
    let raw = at(&mut raw, 0.5);
    let world = World::open(model, seed, 1).await;
    world.warm_up().await;
    let clock = world.store.runtime().clock.clone();
    let before = world.store.counters();
    let mut took = Vec::new();
    for _ in 0..300 {
        let start = clock.monotonic();
        let appended = world.append(0, large.clone(), Latency::Low);
        appended.wait().await.unwrap();
        took.push(clock.monotonic() - start);
    }
    let after = world.store.counters();
    let puts = (after.puts - before.puts) as f64 / 300.0;
    assert!(puts <= 16.0, "fragments of one batch go at once: {puts}");
    for (share, bar) in bars {
        let ratio = at(&mut took, share) / raw;
        let estimate = world.store.put_estimate();
        assert!(
            ratio <= bar,
            "{share}: {ratio} in {puts} PUTs, {estimate:?}"
        );
    }
}

#[test]
fn a_large_batch_takes_half_of_one_put() {
    for seed in [1, 2] {
        simulate(large_batches(
            S3,
            seed,
            [(0.5, 0.52), (0.95, 0.72), (0.99, 0.90)],
        ));
        simulate(large_batches(
            EXPRESS,
            seed,
            [(0.5, 0.42), (0.95, 0.55), (0.99, 0.55)],
        ));
    }
}

/// `producers` send a batch of `records` x 1 KiB every `every_ms` for `seconds`; gives what each
/// took from the middle of its wait on, as a producer collects its batch meanwhile.
async fn load(
    world: &Arc<World>,
    producers: i32,
    (records, every_ms, seconds): (usize, u64, u64),
    (partitions, latency): (Range<i32>, Latency),
) -> Vec<Duration> {
    let small = batch(&[1; 1_000], records);
    let tasks = (0..producers).map(|producer| {
        let (world, small) = (world.clone(), small.clone());
        let partitions = partitions.clone();
        let count = seconds * 1_000 / every_ms;
        async move {
            let clock = world.store.runtime().clock.clone();
            // Not in step.
            world.sleep_ms(producer as u64 % every_ms).await;
            let mut waiting = Vec::new();
            for n in 0..count as i32 {
                let index = (producer + n * 7) % (partitions.end - partitions.start);
                let appended = world.append(partitions.start + index, small.clone(), latency);
                let (start, clock) = (clock.monotonic(), clock.clone());
                let task = async move {
                    appended.wait().await.unwrap();
                    clock.monotonic() - start
                };
                waiting.push(world.store.runtime().tasks.spawn("waits", task));
                world.sleep_ms(every_ms).await;
            }
            let mut took = Vec::new();
            for task in waiting {
                took.push(task.join().await.unwrap());
            }
            took
        }
    });
    let took = futures_util::future::join_all(tasks).await;
    took.into_iter().flatten().collect()
}

struct Loaded {
    p50: f64,
    p99: f64,
    puts_a_second: f64,
    extra: f64,
}

/// 20 MB/s of 1 KiB records from 32 producers over 64 partitions; `bulk` adds five 4 MB batches a
/// second on one more.
async fn busy(model: Model, seed: u64, bulk: bool) -> Loaded {
    let world = Arc::new(World::open(model, seed, 66).await);
    world.warm_up().await;
    let bulk = bulk.then(|| {
        let world = world.clone();
        let tasks = world.store.runtime().tasks.clone();
        tasks.spawn("bulk", async move {
            let large = batch(&[2; 4_096], 1_000);
            loop {
                drop(world.append(65, large.clone(), Latency::Low));
                world.sleep_ms(200).await;
            }
        })
    });
    let seconds = 15;
    let before = (world.store.counters(), world.store.put_hedges());
    // 3 KiB every 5 ms: 19.7 MB/s.
    let mut took = load(&world, 32, (3, 5, seconds), (0..64, Latency::Low)).await;
    let after = (world.store.counters(), world.store.put_hedges());
    if let Some(bulk) = bulk {
        bulk.abort();
    }
    let puts = (after.0.puts - before.0.puts) as f64;
    let extra = (after.1.sent - before.1.sent) as f64 / puts;
    let loaded = Loaded {
        p50: at(&mut took, 0.5),
        p99: at(&mut took, 0.99),
        puts_a_second: puts / seconds as f64,
        extra,
    };
    println!(
        "p50 {:.1} p99 {:.1} {:.0} PUTs/s extra {:.4} {:?}",
        loaded.p50, loaded.p99, loaded.puts_a_second, loaded.extra, after.1
    );
    loaded
}

#[test]
fn many_producers_pay_little_more_than_one_put() {
    simulate(async {
        let alone = busy(S3, 3, false).await;
        assert!(alone.p50 <= 29.0, "{}", alone.p50);
        assert!(alone.p99 <= 56.0, "{}", alone.p99);
        assert!(alone.puts_a_second <= 215.0, "{}", alone.puts_a_second);
        assert!(alone.extra <= 0.055, "{}", alone.extra);
    });
    simulate(async {
        let alone = busy(S3, 4, false).await;
        let with_bulk = busy(S3, 4, true).await;
        assert!(with_bulk.p50 <= 1.05 * alone.p50, "{}", with_bulk.p50);
        assert!(with_bulk.p99 <= 1.10 * alone.p99, "{}", with_bulk.p99);
    });
}

#[test]
fn stalls_hold_up_many_producers_hardly_at_all() {
    for seed in [5, 6] {
        simulate(async move {
            let loaded = busy(S3_STALLS, seed, false).await;
            assert!(loaded.p50 <= 31.0, "{}", loaded.p50);
            assert!(loaded.p99 <= 80.0, "{}", loaded.p99);
            assert!(loaded.extra <= 0.055, "{}", loaded.extra);
        });
    }
}

/// `connections` with `in_flight` batches of `bytes` each, over `partitions`, for ten seconds;
/// gives batches a second.
async fn closed(connections: i32, in_flight: i32, bytes: usize, partitions: i32) -> f64 {
    let world = Arc::new(World::open(S3, 12, partitions).await);
    world.warm_up().await;
    world.sleep_ms(1_000).await;
    let small = batch(&vec![1; bytes], 1);
    let clock = world.store.runtime().clock.clone();
    let end = clock.monotonic() + Duration::from_secs(10);
    let tasks = (0..connections * in_flight).map(|sender| {
        let (world, small, clock) = (world.clone(), small.clone(), clock.clone());
        async move {
            let mut count = 0;
            while clock.monotonic() < end {
                let index = (sender + count) % partitions;
                let appended = world.append(index, small.clone(), Latency::Low);
                appended.wait().await.unwrap();
                count += 1;
            }
            count
        }
    });
    let counts = futures_util::future::join_all(tasks).await;
    f64::from(counts.into_iter().sum::<i32>()) / 10.0
}

#[test]
fn closed_loops_are_limited_by_one_put_a_round() {
    simulate(async {
        let heavy = closed(4, 5, 100 << 10, 8).await * 102_400.0 / 1e6;
        let many = closed(64, 1, 1_000, 64).await;
        let one = closed(1, 1, 1_000, 1).await;
        let sixteen = closed(1, 16, 1_000, 1).await;
        println!("{heavy} MB/s, {many} records/s, {} times", sixteen / one);
        assert!(heavy >= 45.0, "{heavy}");
        assert!(many >= 2_000.0, "{many}");
        assert!(sixteen >= 10.0 * one, "{sixteen} against {one}");
    });
}

/// 1 MB/s; gives its p50 and the PUTs a second.
async fn classed(latency: Latency) -> (f64, f64) {
    let world = Arc::new(World::open(S3, 7, 8).await);
    world.warm_up().await;
    world.sleep_ms(1_000).await;
    let before = world.store.counters().puts;
    let mut took = load(&world, 8, (1, 8, 20), (0..8, latency)).await;
    let puts = (world.store.counters().puts - before) as f64 / 20.0;
    println!("{latency:?}: {puts} PUTs/s, p50 {}", at(&mut took, 0.5));
    (at(&mut took, 0.5), puts)
}

#[test]
fn a_class_costs_what_its_spacing_says() {
    simulate(async {
        let (p50, puts) = classed(Latency::Low).await;
        assert!(p50 <= 28.0 && puts <= 210.0, "{p50} {puts}");
        let (_, puts) = classed(Latency::Balanced).await;
        assert!(puts <= 21.0, "{puts}");
        let (_, puts) = classed(Latency::Economy).await;
        assert!(puts <= 4.5, "{puts}");
    });
}

/// Cheap records come along with urgent ones while they are few, and pay their own PUT otherwise.
#[test]
fn cheap_records_ride_along_as_far_as_they_lengthen_nothing() {
    simulate(async {
        let world = Arc::new(World::open(S3, 8, 16).await);
        world.warm_up().await;
        world.sleep_ms(1_000).await;
        let urgent = load(&world, 8, (1, 10, 10), (0..8, Latency::Low));
        let before = world.store.counters().puts;
        urgent.await;
        let alone = world.store.counters().puts - before;
        world.sleep_ms(1_000).await;
        let before = world.store.counters().puts;
        let urgent = load(&world, 8, (1, 10, 10), (0..8, Latency::Low));
        let cheap = load(&world, 8, (1, 10, 10), (8..16, Latency::Economy));
        let (_, mut cheap) = tokio::join!(urgent, cheap);
        let both = world.store.counters().puts - before;
        assert!(both <= alone + 20, "{both} against {alone}");
        assert!(at(&mut cheap, 0.5) < 60.0, "{}", at(&mut cheap, 0.5));

        // 16 MB/s of them no longer fit.
        let mut urgent = load(&world, 8, (1, 10, 10), (0..8, Latency::Low)).await;
        let p50 = at(&mut urgent, 0.5);
        let urgent = load(&world, 8, (1, 10, 10), (0..8, Latency::Low));
        let cheap = load(&world, 8, (20, 10, 10), (8..16, Latency::Economy));
        let (mut urgent, mut cheap) = tokio::join!(urgent, cheap);
        assert!(
            at(&mut urgent, 0.5) <= 1.06 * p50,
            "{}",
            at(&mut urgent, 0.5)
        );
        assert!(at(&mut cheap, 1.0 - 1e-9) < 600.0, "within its class");
    });
}

/// A partition's batches stay in order when its topic's class changes while they wait.
#[test]
fn a_class_changed_live_keeps_the_order() {
    simulate(async {
        let world = World::open(S3, 9, 4).await;
        let entropy = Entropy::from_seed(9);
        let mut waiting = Vec::new();
        for n in 0..2_000 {
            let latency = Latency::ALL[entropy.below(3) as usize];
            let index = entropy.below(4) as i32;
            let records = if n % 97 == 0 { 400 } else { 1 };
            waiting.push(world.append(index, batch(&[3; 1_000], records), latency));
            if n % 5 == 0 {
                world.sleep_ms(entropy.below(20)).await;
            }
        }
        for appended in waiting {
            // The engine stops itself if an offset were to come out of turn.
            appended.wait().await.unwrap();
        }
    });
}

/// PUTs of twenty rounds over 64 partitions, between whose appends the engine may run.
async fn puts_of_rounds(gathers: bool) -> u64 {
    let world = World::open(S3, 10, 64).await;
    let before = world.store.counters().puts;
    for _ in 0..20 {
        let gather = gathers.then(|| world.log.gather());
        let mut waiting = Vec::new();
        for index in 0..64 {
            waiting.push(world.append(index, batch(&[4; 100], 1), Latency::Low));
            tokio::task::yield_now().await;
        }
        drop(gather);
        for appended in waiting {
            appended.wait().await.unwrap();
        }
    }
    world.store.counters().puts - before
}

/// What one request appends to many partitions leaves in one PUT.
#[test]
fn gathered_entries_are_one_flush() {
    simulate(async {
        assert_eq!(puts_of_rounds(true).await, 20);
        assert_eq!(
            puts_of_rounds(false).await,
            40,
            "the first of each leaves alone"
        );
    });
}

#[test]
fn an_idle_log_asks_nothing() {
    simulate(async {
        let world = World::open(S3, 11, 64).await;
        let appended = world.append(0, batch(b"x", 1), Latency::Low);
        appended.wait().await.unwrap();
        world.sleep_ms(1_000).await;
        let before = world.store.counters();
        world.sleep_ms(3_600_000).await;
        assert_eq!(world.store.counters(), before);
    });
}
