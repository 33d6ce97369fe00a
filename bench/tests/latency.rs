//! The model store and what a message costs on it: counts only, never time.

mod common;

use std::sync::Arc;

use common::serve_on;
use tidemill_bench::{
    latency::{stages, wal_objects},
    load::{E2eLoad, Shape, e2e},
    model::Profile,
    probe::{Sample, parse_metrics},
    store::{ModelOptions, ModelStore},
};
use tidemill_log::LogLimits;
use tidemill_runtime::Runtime;
use tidemill_store::{Backend, Payload, PutAnswer, StoreErrorKind};

const COUNT: u64 = 25;

fn one_at_a_time(shape: Shape, raw: &Arc<ModelStore>) -> E2eLoad {
    E2eLoad {
        topic: "e2e".to_owned(),
        shape,
        count: COUNT,
        warmup: 0,
        raw: Some(raw.clone()),
        seed: 1,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_message_is_one_put_and_nothing_else() {
    let runtime = Runtime::system();
    let options = ModelOptions::new(Profile::NONE, 1);
    let store = Arc::new(ModelStore::new(options, &runtime));
    let raw = Arc::new(ModelStore::new(options, &runtime));
    let broker = serve_on(store.clone(), LogLimits::bucket(), runtime).await;
    broker
        .target
        .create_topic("e2e", 1, &[])
        .await
        .expect("created");
    for record_bytes in [1 << 10, 4 << 10, 64 << 10] {
        let shape = Shape {
            record_bytes,
            batch_records: 1,
        };
        let (before, raw_before) = (store.counts(), raw.counts());
        let up = broker.store.counters().bytes_up;
        let load = one_at_a_time(shape, &raw);
        let out = e2e(&broker.target, &load).await.expect("measured");
        assert_eq!((out.lost, out.doubled, out.reordered), (0, 0, 0));
        let after = store.counts();
        assert_eq!(after.puts - before.puts, COUNT);
        assert_eq!(after.repeated_puts, before.repeated_puts);
        // The question where the log ends wants a proof of leadership; a message wants nothing.
        assert!(after.gets - before.gets <= 1);
        assert_eq!(after.lists, before.lists);
        assert_eq!(raw.counts().puts - raw_before.puts, COUNT);
        // The envelope and directory of an object, and no byte of a record twice.
        let extra = broker.store.counters().bytes_up - up - out.bytes;
        assert!(extra / COUNT < 400, "{extra} bytes for {COUNT} messages");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_message_is_so_many_fragments_and_no_more() {
    let runtime = Runtime::system();
    let options = ModelOptions::new(Profile::NONE, 1);
    let store = Arc::new(ModelStore::new(options, &runtime));
    let broker = serve_on(store.clone(), LogLimits::bucket(), runtime.clone()).await;
    let large = [("max.message.bytes", "8388608")];
    broker
        .target
        .create_topic("e2e", 1, &large)
        .await
        .expect("created");
    let shape = Shape {
        record_bytes: 4 << 10,
        batch_records: 1_000,
    };
    let load = E2eLoad {
        raw: None,
        ..one_at_a_time(shape, &store)
    };
    let before = store.counts();
    let out = e2e(&broker.target, &load).await.expect("measured");
    let after = store.counts();
    let each = (after.puts - before.puts) as f64 / COUNT as f64;
    // Between 128 KiB and 2 MiB a fragment, as the store is measured to be.
    assert!((2.0..=33.0).contains(&each), "{each} PUTs a message");
    assert!(after.gets - before.gets <= 1);
    assert_eq!(after.lists, before.lists);
    let sent = out.bytes / COUNT;
    assert!(sent > 4_000_000, "{sent}");
}

#[test]
fn a_models_url_says_all_of_it() {
    let url = "model:s3?seed=9&stall=0.02&stall_ms=700&errors=0.05&lost=0.1";
    let options = ModelOptions::parse(url)
        .expect("a model")
        .expect("understood");
    assert_eq!((options.profile, options.seed), (Profile::S3, 9));
    assert_eq!(options.to_string(), url);
    let plain = ModelOptions::new(Profile::EXPRESS, 1);
    assert_eq!(plain.to_string(), "model:express?seed=1");
    assert!(ModelOptions::parse("s3://bucket").is_none());
    for wrong in [
        "model:",
        "model:s4",
        "model:s3?stall=2",
        "model:s3?x=1",
        "model:s3?seed",
    ] {
        assert!(
            ModelOptions::parse(wrong).expect("a model").is_err(),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn faults_are_what_they_say() {
    let runtime = Runtime::system();
    let put = async |options| {
        let store = ModelStore::new(options, &runtime);
        let answer = store.put_if_absent("a/1", Payload::default()).await;
        (answer, store.get("a/1").await.is_ok(), store.counts())
    };
    let plain = ModelOptions::new(Profile::NONE, 1);
    let always = 1.0 - f64::EPSILON;
    let (answer, landed, _) = put(plain).await;
    assert_eq!((answer, landed), (Ok(PutAnswer::Created), true));
    let errors = ModelOptions {
        errors: always,
        ..plain
    };
    let (answer, ..) = put(errors).await;
    assert_eq!(
        answer.map_err(|error| error.kind),
        Err(StoreErrorKind::Unavailable)
    );
    let lost = ModelOptions {
        lost: always,
        ..plain
    };
    let (answer, landed, counts) = put(lost).await;
    assert_eq!(
        answer.map_err(|error| error.kind),
        Err(StoreErrorKind::Unknown)
    );
    assert!(landed);
    assert_eq!((counts.puts, counts.repeated_puts, counts.gets), (1, 0, 1));
}

#[tokio::test]
async fn a_key_sent_again_counts_as_such() {
    let runtime = Runtime::system();
    let store = ModelStore::new(ModelOptions::new(Profile::NONE, 1), &runtime);
    for _ in 0..3 {
        let _ = store.put_if_absent("a/wal/1", Payload::default()).await;
    }
    let counts = store.counts();
    assert_eq!((counts.puts, counts.repeated_puts), (1, 2));
}

#[test]
fn stages_are_read_from_a_brokers_histograms() {
    let name = "tidemill_stage_duration_seconds";
    let page = |scale: u32| {
        let mut page = String::new();
        for (bound, count) in [("0.001", 0), ("0.01", 80), ("0.02", 100), ("+Inf", 100)] {
            let labels = format!("{{stage=\"put\",le=\"{bound}\"}}");
            page += &format!("{name}_bucket{labels} {}\n", count * scale);
        }
        page += &format!("{name}_sum{{stage=\"put\"}} {}\n", 0.8 * f64::from(scale));
        page += &format!("{name}_count{{stage=\"put\"}} {}\n", 100 * scale);
        Sample {
            metrics: parse_metrics(&page),
            ..Sample::default()
        }
    };
    let found = stages(&page(1), &page(3));
    let [put] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((put.name, put.count), ("put", 200));
    let close = |value: f64, wanted: f64| (value - wanted).abs() < 1e-9;
    assert!(close(put.mean_ms, 8.0), "{put:?}");
    assert!(close(put.p50_ms, 1.0 + 9.0 * 50.0 / 80.0), "{put:?}");
    assert!(close(put.p99_ms, 10.0 + 10.0 * 19.0 / 20.0), "{put:?}");
    // Nothing between two equal samples.
    assert_eq!(stages(&page(1), &page(1)), Vec::new());
}

#[test]
fn a_taken_port_is_not_measured_in_the_brokers_stead() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").port();
    let bench = env!("CARGO_BIN_EXE_tidemill-bench");
    let ran = std::process::Command::new(bench)
        .args(["latency", "--only", "local", "--tidemill", bench])
        .args(["--port", &port.to_string()])
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success(), "{said}");
    assert!(said.contains(&format!("port {port}")), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raw_side_that_has_caught_up_counts_only_what_it_has_put() {
    let runtime = Runtime::system();
    let raw = ModelStore::new(ModelOptions::new(Profile::NONE, 1), &runtime);
    let put = async |number: u64| {
        let key = format!("raw/{number}");
        let answer = raw.put_if_absent(&key, Payload::new());
        assert_eq!(answer.await.expect("put"), PutAnswer::Created);
    };
    put(0).await;
    raw.catch_up(42);
    put(1).await;
    // Who is ahead stays there.
    raw.catch_up(40);
    assert_eq!(raw.counts().puts, 2);
    // Of 41 that landed, and the one that began the log.
    let page = "tidemill_stage_duration_seconds_count{stage=\"put\"} 41\n";
    let sample = Sample {
        metrics: parse_metrics(page),
        ..Sample::default()
    };
    assert_eq!(wal_objects(&sample), 42);
}
