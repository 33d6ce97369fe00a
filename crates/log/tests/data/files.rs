//! Reads out of local files: the same bytes as through memory, checked, and whole whatever becomes
//! of the object.

use std::{fs, os::unix::fs::FileExt, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use tidemill_log::{
    Log, keys,
    read::{Isolation, ReadError, ReadRequest, ReadResult},
    recover::Recovered,
    types::Extent,
};
use tidemill_store::{Directory, DirectoryOptions, Store, StoreOptions};
use tidemill_wire::{Slice, ids::Offset};

use crate::harness::{Rig, START_MS, WRITER, World, partition, simulate, small_limits};

/// A log over a real directory, all of it rolled and nothing of it in memory.
async fn rolled(world: &mut World, dir: &tempfile::TempDir) -> Rig {
    let options = DirectoryOptions::default();
    let directory = Directory::open(dir.path(), options, world.runtime.clone());
    let directory = Arc::new(directory.await.unwrap());
    world.store = Store::new(directory, world.runtime.clone(), StoreOptions::default());
    let mut limits = small_limits();
    limits.tail_bytes_max = 0;
    let mut rig = world.open(WRITER, limits, Recovered::default()).await;
    for index in 0..3 {
        rig.lead(index);
    }
    for round in 0..12 {
        for index in 0..3 {
            // Batches longer than what is checked at once, as long as a chunk, and many in one.
            match (round + index) % 4 {
                0 => rig.append(index, &[START_MS, START_MS + 1], 150_000).await,
                1 => rig.append(index, &[START_MS; 3], 20_000).await,
                _ => {
                    for _ in 0..30 {
                        rig.append(index, &[START_MS], 1_500).await;
                    }
                }
            }
        }
        rig.roller.round().await.unwrap();
    }
    rig
}

fn request(offset: Offset, max_bytes: usize) -> ReadRequest {
    ReadRequest {
        offset,
        max_bytes,
        isolation: Isolation::Uncommitted,
        at_least_one: true,
    }
}

async fn to_send(
    log: &Log,
    index: i32,
    wanted: ReadRequest,
) -> Result<ReadResult<Slice>, ReadError> {
    let partition = log.partition(partition(index)).unwrap();
    partition.read_to_send(wanted).await
}

fn joined(result: &ReadResult<Slice>) -> Bytes {
    let slices = result.slices.iter().map(|slice| slice.to_bytes().unwrap());
    slices.collect::<Vec<_>>().concat().into()
}

fn in_files(result: &ReadResult<Slice>) -> usize {
    let files = result
        .slices
        .iter()
        .filter(|slice| slice.memory().is_none());
    files.count()
}

/// What was read is what memory gives, but that it may end with a chunk when it has most of it.
fn same(sent: &ReadResult<Slice>, memory: &Bytes, max_bytes: usize, what: &str) {
    let bytes = joined(sent);
    assert_eq!(bytes.len(), sent.size, "{what}");
    assert!(memory.starts_with(&bytes), "{what}");
    assert_eq!(bytes.is_empty(), memory.is_empty(), "{what}");
    let enough = bytes.len() > max_bytes / 2;
    assert!(
        enough || bytes.len() == memory.len(),
        "{what}: {}",
        bytes.len()
    );
}

/// What was checked a moment ago is not checked again.
async fn a_while(world: &World) {
    world.runtime.clock.sleep(Duration::from_secs(61)).await;
}

/// The first extent that is long enough to be sent from its file, and its file.
fn long_extent(rig: &Rig, dir: &tempfile::TempDir, index: i32) -> (Extent, PathBuf) {
    let extents = rig.log.partition(partition(index)).unwrap().extents();
    let long = |extent: &&Extent| extent.size_bytes() > 100_000;
    let extent = extents.recent.iter().find(long).unwrap().clone();
    let key = keys::data_key(extent.object);
    let (folder, name) = key.rsplit_once('/').unwrap();
    let mut shards = fs::read_dir(dir.path().join(folder)).unwrap();
    let file = shards.find_map(|shard| {
        let file = shard.unwrap().path().join(name);
        file.exists().then_some(file)
    });
    (extent, file.unwrap())
}

/// Files below the directory that this process holds open.
fn descriptors(dir: &tempfile::TempDir) -> Vec<PathBuf> {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let links = links.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let object = |link: &PathBuf| {
        let shard = link.parent().and_then(|shard| shard.file_name());
        shard.is_some_and(|shard| shard.to_string_lossy().starts_with('~'))
    };
    links
        .filter(|link| link.starts_with(dir.path()) && object(link))
        .filter(|link| link.to_string_lossy().contains("/data/"))
        .collect()
}

#[test]
fn parts_of_files_are_what_is_read_through_memory() {
    simulate(1, |mut world| async move {
        let dir = tempfile::tempdir().unwrap();
        let mut rig = rolled(&mut world, &dir).await;
        // A log start in the midst of an extent, and a read that begins within a batch.
        rig.delete_records(1, Offset(20)).await;
        let (mut files, mut together, mut at_once) = (0, 0, 0);
        for index in 0..3 {
            let partition = rig.log.partition(partition(index)).unwrap();
            let (start, end) = (partition.log_start(), partition.high_watermark());
            for offset in (start.0..end.0).step_by(3).map(Offset) {
                for max_bytes in [0, 1, 17_000, 66_000, 140_000, 310_000, 1 << 20, 50 << 20] {
                    for at_least_one in [true, false] {
                        let wanted = ReadRequest {
                            at_least_one,
                            ..request(offset, max_bytes)
                        };
                        let memory = partition.read(wanted).await.unwrap();
                        let bytes: Bytes = memory.slices.concat().into();
                        let what = format!("{index}: {wanted:?}");
                        let sent = to_send(&rig.log, index, wanted).await.unwrap();
                        same(&sent, &bytes, max_bytes, &what);
                        if sent.size == memory.size {
                            assert_eq!(sent.next_offset, memory.next_offset, "{what}");
                        }
                        // Those that ask for several partitions at once.
                        let several = vec![(partition.clone(), wanted); 2];
                        for read in rig.log.reader().read_files(several).await {
                            let Some(read) = read else { continue };
                            same(&read.unwrap(), &bytes, max_bytes, &what);
                            together += 1;
                        }
                        files += in_files(&sent);
                        if let Some(read) = partition.try_read_to_send(&wanted).unwrap() {
                            same(&read, &bytes, max_bytes, &what);
                            at_once += 1;
                        }
                    }
                }
            }
        }
        assert!(files > 300 && together > 300, "{files}, {together}");
        assert!(at_once > 50, "{at_once}");
    });
}

#[test]
fn only_what_was_checked_a_moment_ago_is_had_at_once() {
    simulate(4, |mut world| async move {
        let dir = tempfile::tempdir().unwrap();
        let rig = rolled(&mut world, &dir).await;
        let (extent, _) = long_extent(&rig, &dir, 0);
        let wanted = request(extent.base_offset, 1 << 20);
        let partition = rig.log.partition(partition(0)).unwrap();
        assert_eq!(partition.try_read_to_send(&wanted).unwrap(), None);
        let sent = to_send(&rig.log, 0, wanted).await.unwrap();
        let down = world.store.counters().bytes_down;
        let at_once = partition
            .try_read_to_send(&wanted)
            .unwrap()
            .expect("checked");
        assert_eq!(world.store.counters().bytes_down, down, "nothing is read");
        assert_eq!(joined(&at_once), joined(&sent));
        a_while(&world).await;
        assert_eq!(partition.try_read_to_send(&wanted).unwrap(), None);
        for meta in world.store.list_all("").await.unwrap() {
            if meta.key.contains("/data/") {
                world.store.delete(&meta.key).await.unwrap();
            }
        }
        assert_eq!(partition.try_read_to_send(&wanted).unwrap(), None);
    });
}

#[test]
fn a_flipped_bit_in_a_file_is_corruption_of_that_partition_alone() {
    simulate(2, |mut world| async move {
        let dir = tempfile::tempdir().unwrap();
        let rig = rolled(&mut world, &dir).await;
        let (extent, path) = long_extent(&rig, &dir, 0);
        let options = &mut fs::OpenOptions::new();
        let file = options.read(true).write(true).open(&path).unwrap();
        let wanted = request(extent.base_offset, 1 << 20);
        let whole = joined(&to_send(&rig.log, 0, wanted).await.unwrap());
        for at in [0, 7, 15, 16, 61, extent.size_bytes() / 2] {
            let at = extent.range.start + at;
            a_while(&world).await;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
            let error = to_send(&rig.log, 0, wanted).await.unwrap_err();
            let named = keys::data_key(extent.object);
            assert!(
                matches!(&error, ReadError::Corrupt { key, .. } if *key == named),
                "{at}: {error}"
            );
            assert!(
                to_send(&rig.log, 1, request(Offset(0), 1 << 20))
                    .await
                    .is_ok()
            );
            file.write_all_at(&byte, at).unwrap();
            let again = to_send(&rig.log, 0, wanted).await.unwrap();
            assert_eq!(joined(&again), whole, "{at}");
        }
    });
}

#[test]
fn what_was_found_is_sent_whole_though_its_object_is_deleted() {
    simulate(3, |mut world| async move {
        let dir = tempfile::tempdir().unwrap();
        let rig = rolled(&mut world, &dir).await;
        let (extent, _) = long_extent(&rig, &dir, 2);
        let wanted = request(extent.base_offset, 1 << 20);
        let memory = rig.log.partition(partition(2)).unwrap().read(wanted).await;
        let memory = memory.unwrap().slices.concat();
        let sent = to_send(&rig.log, 2, wanted).await.unwrap();
        assert!(in_files(&sent) > 0);
        for meta in world.store.list_all("").await.unwrap() {
            if meta.key.contains("/data/") {
                world.store.delete(&meta.key).await.unwrap();
            }
        }
        assert_eq!(joined(&sent), memory);
        assert!(!descriptors(&dir).is_empty());
        drop(sent);
        let left = descriptors(&dir);
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn a_file_that_was_cut_is_never_sent_as_if_it_were_whole() {
    simulate(4, |mut world| async move {
        let dir = tempfile::tempdir().unwrap();
        let rig = rolled(&mut world, &dir).await;
        let (extent, path) = long_extent(&rig, &dir, 0);
        let wanted = request(extent.base_offset, 1 << 20);
        let sent = to_send(&rig.log, 0, wanted).await.unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(extent.range.end - 1_000).unwrap();
        let part = sent.slices.iter().find(|slice| slice.memory().is_none());
        let error = part.unwrap().to_bytes().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        a_while(&world).await;
        // The next read finds that out before anything is promised.
        assert!(to_send(&rig.log, 0, wanted).await.is_err());
        assert!(to_send(&rig.log, 1, request(Offset(0), 1)).await.is_ok());
    });
}
