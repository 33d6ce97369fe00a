//! The suite over every backend.

mod common;

use std::sync::Arc;

use common::suite;
use tidemill_runtime::Runtime;
use tidemill_store::{
    Backend, Directory, DirectoryOptions, LocalSync, Memory, OpenOptions, open,
    testing::{FaultPlan, FaultyBackend, S3Options, S3Server},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    let runtime = Runtime::system();
    suite::run(Arc::new(Memory::new(runtime.clock.clone())), runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory() {
    for sync in [LocalSync::Always, LocalSync::Os] {
        let runtime = Runtime::system();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = DirectoryOptions {
            sync,
            ..DirectoryOptions::default()
        };
        let root = dir.path().join("deep/data");
        let opened = Directory::open(&root, options, runtime.clone())
            .await
            .expect("opens");
        suite::run(Arc::new(opened), runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn faulty_without_faults() {
    let runtime = Runtime::simulated(1, 0);
    let memory = Arc::new(Memory::new(runtime.clock.clone()));
    let faulty = FaultyBackend::new(memory, runtime.clone(), 1, FaultPlan::none());
    suite::run(Arc::new(faulty), runtime).await;
}

async fn server(bucket: &str, runtime: &Runtime) -> S3Server {
    let options = S3Options {
        buckets: vec![bucket.to_owned()],
        ..S3Options::default()
    };
    S3Server::start(options, runtime.clone())
        .await
        .expect("listens")
}

async fn s3(prefix: &str) -> (S3Server, Arc<dyn Backend>, Runtime) {
    let runtime = Runtime::system();
    let server = server("bucket", &runtime).await;
    let options = OpenOptions {
        environment: server.environment(),
        ..OpenOptions::default()
    };
    let url = format!("s3://bucket{prefix}");
    let backend = open(&url, &options, runtime.clone()).await.expect("opens");
    (server, backend, runtime)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_in_process() {
    for prefix in ["", "/a/prefix/"] {
        let (_server, backend, runtime) = s3(prefix).await;
        suite::run(backend, runtime).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_in_process_behind_the_wrapper_of_faults() {
    let (_server, backend, runtime) = s3("/x").await;
    let faulty = FaultyBackend::new(backend, runtime.clone(), 1, FaultPlan::none());
    suite::run(Arc::new(faulty), runtime).await;
}

/// A directory bucket (S3 Express One Zone): sessions, and listings without order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_express_in_process() {
    const BUCKET: &str = "logs--use1-az4--x-s3";
    let runtime = Runtime::system();
    let server = server(BUCKET, &runtime).await;
    let backend = server.open_express(BUCKET, "p").expect("opens");
    assert!(!backend.lists_at_once());
    suite::run(Arc::new(backend), runtime).await;
    assert_eq!(server.counts().sessions, 1, "a session serves for minutes");
}

/// Scripted Google: the server in process speaks as much of its XML interface as is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcs_in_process() {
    let runtime = Runtime::system();
    let server = server("bucket", &runtime).await;
    let options = OpenOptions {
        environment: server.gcs_environment(),
        ..OpenOptions::default()
    };
    let backend = open("gs://bucket/p", &options, runtime.clone())
        .await
        .expect("opens");
    suite::run(backend, runtime).await;
}

/// Real buckets, and emulators run elsewhere: `TIDEMILL_TEST_S3_URL=s3://bucket/prefix` and the
/// usual variables of its cloud; `TIDEMILL_TEST_GCS_URL` and `TIDEMILL_TEST_AZURE_URL` alike.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_buckets_where_named() {
    for name in [
        "TIDEMILL_TEST_S3_URL",
        "TIDEMILL_TEST_GCS_URL",
        "TIDEMILL_TEST_AZURE_URL",
    ] {
        let Ok(url) = std::env::var(name) else {
            continue;
        };
        let runtime = Runtime::system();
        let url = format!(
            "{}/{:016x}",
            url.trim_end_matches('/'),
            runtime.entropy.next_u64()
        );
        let options = OpenOptions {
            environment: std::env::vars().collect(),
            ..Default::default()
        };
        let backend = open(&url, &options, runtime.clone()).await.expect("opens");
        suite::run(backend.clone(), runtime).await;
        for meta in backend.list("", None, usize::MAX).await.expect("lists") {
            backend.delete(&meta.key).await.expect("deletes");
        }
    }
}
