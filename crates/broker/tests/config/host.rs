//! Memory of the host, with and without a cgroup's limit.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tidemill_broker::config::memory_bytes;

fn root(files: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().expect("a directory");
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    }
    root
}

const MACHINE: (&str, &str) = (
    "proc/meminfo",
    "MemTotal:        8388608 kB\nMemFree: 1 kB\n",
);

#[test]
fn the_machines_memory_counts_without_a_limit() {
    assert_eq!(memory_bytes(root(&[MACHINE]).path()), 8 << 30);
    let unlimited = [
        MACHINE,
        ("proc/self/cgroup", "0::/a\n"),
        ("sys/fs/cgroup/a/memory.max", "max\n"),
    ];
    assert_eq!(memory_bytes(root(&unlimited).path()), 8 << 30);
}

#[test]
fn the_least_limit_on_the_way_up_counts() {
    let nested = [
        MACHINE,
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/b/memory.max", "2147483648\n"),
        ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
    ];
    assert_eq!(memory_bytes(root(&nested).path()), 1 << 30);
    let container = [
        MACHINE,
        ("proc/self/cgroup", "0::/not/mounted/here\n"),
        ("sys/fs/cgroup/memory.max", "536870912\n"),
    ];
    assert_eq!(memory_bytes(root(&container).path()), 1 << 29);
}

#[test]
fn the_older_cgroups_are_read_too() {
    let older = [
        MACHINE,
        ("proc/self/cgroup", "4:memory:/a\n3:cpu:/a\n"),
        (
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "268435456\n",
        ),
        (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        ),
    ];
    assert_eq!(memory_bytes(root(&older).path()), 1 << 28);
}

#[test]
fn a_machine_that_does_not_tell_counts_as_small() {
    assert_eq!(memory_bytes(root(&[]).path()), 1 << 30);
    assert!(memory_bytes(Path::new("/")) > 0);
}
