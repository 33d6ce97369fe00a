//! How much memory the process may use.

use std::fs;
use std::path::Path;

/// Memory of a machine that does not tell: small, so that caches stay small.
const UNKNOWN_MEMORY_BYTES: u64 = 1 << 30;

/// The machine's memory, or less if a cgroup (v1 or v2) of the process has a limit. `root` is
/// the root directory, `/` but in tests.
#[must_use]
pub fn memory_bytes(root: &Path) -> u64 {
    let machine = machine_bytes(root).unwrap_or(UNKNOWN_MEMORY_BYTES);
    cgroup_bytes(root).into_iter().fold(machine, u64::min)
}

fn machine_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The limits of the process's cgroup and of all above it; inside a container the path of
/// `/proc/self/cgroup` may not exist, and the mounted root is its own.
fn cgroup_bytes(root: &Path) -> Vec<u64> {
    let mut limits = Vec::new();
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (base, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            "memory" => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let base = root.join(base);
        let mut at = base.join(path.trim_start_matches('/'));
        while at.starts_with(&base) {
            let limit = fs::read_to_string(at.join(file)).ok();
            limits.extend(limit.and_then(|text| text.trim().parse::<u64>().ok()));
            if !at.pop() {
                break;
            }
        }
    }
    limits
}
