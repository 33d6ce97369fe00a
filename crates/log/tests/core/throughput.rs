//! By hand: `cargo test --release -p tidemill-log --test core -- --ignored --nocapture throughput`.
//! Produces 1 GiB into a local directory and replays it. Prints, asserts no time.

use std::{collections::BTreeMap, sync::Arc};

use tidemill_log::{
    Log, LogLimits,
    recover::{Recovered, RecoveredPartition, SealedWal, replay},
    wal,
};
use tidemill_runtime::Runtime;
use tidemill_store::{
    NumberedLog, Store, StoreOptions,
    backends::{Directory, DirectoryOptions},
};
use tidemill_wire::ids::WriterId;

use crate::harness::{CLUSTER, append, lead, partition, sequenced};

const RECORDS: usize = 100;
const PRODUCERS: i64 = 4;
const IN_FLIGHT: usize = 5;
const PARTITIONS: i32 = 8;

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

async fn produce(log: Arc<Log>, producer: i64, batches: i32) {
    let mut waiting = std::collections::VecDeque::new();
    let value = vec![b'x'; 1_000];
    let template = sequenced(producer, 0, 0, &value, RECORDS);
    for at in 0..batches {
        let index = at % PARTITIONS;
        let mut batch = template.clone();
        batch.header.base_sequence = at / PARTITIONS * RECORDS as i32;
        waiting.push_back(append(&log, index, batch));
        if waiting.len() == IN_FLIGHT {
            let first = waiting.pop_front().unwrap();
            first.wait().await.unwrap();
        }
    }
    for appended in waiting {
        appended.wait().await.unwrap();
    }
}

fn limits() -> LogLimits {
    let mut limits = LogLimits::local();
    if let Some(puts) = std::env::var("PUTS")
        .ok()
        .and_then(|puts| puts.parse().ok())
    {
        limits.puts_in_flight_max = puts;
    }
    limits
}

#[test]
#[ignore = "measures this machine's disk"]
fn throughput() {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    executor.unwrap().block_on(async {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let runtime = Runtime::system();
        let options = DirectoryOptions::default();
        let directory = Directory::open(root.path(), options, runtime.clone())
            .await
            .unwrap();
        let store = Store::new(
            Arc::new(directory),
            runtime.clone(),
            StoreOptions::default(),
        );
        let writer = WriterId(1);
        let objects = NumberedLog::new(store.clone(), tidemill_log::keys::wal_prefix(writer));
        wal::start(&runtime, &objects, writer, CLUSTER, None)
            .await
            .unwrap();
        let options = tidemill_log::LogOptions {
            writer,
            cluster_id: CLUSTER,
            store: store.clone(),
            runtime: runtime.clone(),
            limits: limits(),
            exclusive: true,
        };
        let log = Log::open(options, Recovered::default());
        (0..PARTITIONS).for_each(|index| {
            lead(&log, index);
        });
        let gib: f64 = std::env::var("GIB")
            .ok()
            .and_then(|gib| gib.parse().ok())
            .unwrap_or(1.0);
        let batches = (gib * 10_000.0 / PRODUCERS as f64) as i32;
        let (start, cpu) = (runtime.clock.monotonic(), cpu_seconds());
        let produced = (0..PRODUCERS).map(|id| {
            runtime
                .tasks
                .spawn("producer", produce(log.clone(), id, batches))
        });
        for task in produced.collect::<Vec<_>>() {
            task.join().await.unwrap();
        }
        let bytes = f64::from(batches) * PRODUCERS as f64 * 102_400.0;
        let seconds = start.elapsed().as_secs_f64();
        eprintln!(
            "{:.0} MB in {seconds:.2} s: {:.0} MB/s, {:.2} CPU s/GB, {} objects",
            bytes / 1e6,
            bytes / 1e6 / seconds,
            (cpu_seconds() - cpu) / bytes * 1e9,
            log.next_number(),
        );
        let last = log.next_number() - 1;
        drop(log);
        let closing = tidemill_log::format::checkpoint::ClosingCheckpoint::new(None, last, [last]);
        let sealed = SealedWal {
            writer,
            replay_from: 0,
            closing,
        };
        let mut partitions: BTreeMap<_, _> = (0..PARTITIONS)
            .map(|i| (partition(i), RecoveredPartition::empty(partition(i))))
            .collect();
        let (start, cpu) = (runtime.clock.monotonic(), cpu_seconds());
        let stats = replay(&store, CLUSTER, &sealed, &mut partitions)
            .await
            .unwrap();
        eprintln!(
            "replayed {} objects, {} MB in {:.3} s, {:.3} CPU s",
            stats.objects,
            stats.bytes / 1_000_000,
            start.elapsed().as_secs_f64(),
            cpu_seconds() - cpu,
        );
    });
}
