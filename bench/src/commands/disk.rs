//! `disk`: what the disk itself gives.

use std::fs;

use tidemill_runtime::Runtime;
use tidemill_store::LocalSync;

use super::Output;
use crate::{
    cli,
    disk::{DiskLoad, disk},
    error::BenchError,
    probe::Usage,
    report::Row,
};

pub async fn run(
    args: cli::Disk,
    runtime: &Runtime,
    out: &mut Output<'_>,
) -> Result<(), BenchError> {
    let sync = if args.unsynced {
        LocalSync::Os
    } else {
        LocalSync::Always
    };
    let load = DiskLoad {
        object_bytes: args.object_bytes,
        objects: args.objects,
        in_flight: args.in_flight,
        sync,
    };
    let name = format!("bench-disk-{:016x}", runtime.entropy.next_u64());
    let dir = args.dir.join(name);
    fs::create_dir_all(&dir).map_err(BenchError::io(format!("`{}`", dir.display())))?;
    let measured = disk(&dir, load, runtime).await;
    // What was measured stands even if some of it stays behind.
    let removed = fs::remove_dir_all(&dir);
    let row = Row::new("disk")
        .count("object_bytes", args.object_bytes as u64)
        .count("in_flight", args.in_flight as u64)
        .text("sync", if args.unsynced { "os" } else { "always" });
    out.rows(&[measured?.describe(&Usage::default(), row)])?;
    removed.map_err(BenchError::io(format!("`{}`", dir.display())))
}
