//! The suite over every backend.

mod common;

use std::sync::Arc;

use common::suite;
use tidemill_runtime::Runtime;
use tidemill_store::{
    Directory, DirectoryOptions, LocalSync, Memory,
    testing::{FaultPlan, FaultyBackend},
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
