//! Where a key's file lies.
//!
//! A key is a path below the root, but numbers (last parts of exactly 20 digits) lie in shard
//! directories of at most 4,096 numbers, which no key shows: `a/wal/7/00000000000000005000` is the
//! file `a/wal/7/~0000000000000001/00000000000000005000`.

use std::path::{Path, PathBuf};

/// Numbers a directory.
pub(crate) const SHARD: u64 = 4_096;
/// The first character of a shard directory; no key has it.
const SHARD_MARK: char = '~';
/// Held by the process that writes.
pub(crate) const LOCK_FILE: &str = "LOCK";
/// Spare names of unfinished files, where the file system needs them.
pub(crate) const TEMP_DIR: &str = ".tmp";
/// What a torn file is moved to, and what some file systems have at their top.
pub(crate) const LOST_FOUND: &str = "lost+found";

/// The number, if `name` is one.
fn number(name: &str) -> Option<u64> {
    let is_number = name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { name.parse().ok() } else { None }
}

/// The name of `n`'s shard directory.
fn shard_name(n: u64) -> String {
    format!("{SHARD_MARK}{:016}", n / SHARD)
}

/// The first number of a shard directory's name.
pub(crate) fn shard_start(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(SHARD_MARK)?;
    let is_shard = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_shard {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(SHARD)
}

/// The directory, relative to the root and without slash at its end, that holds `key`'s file.
pub(crate) fn dir_of(key: &str) -> String {
    let (folder, name) = key.rsplit_once('/').unwrap_or(("", key));
    match (number(name), folder) {
        (None, folder) => folder.to_owned(),
        (Some(n), "") => shard_name(n),
        (Some(n), folder) => format!("{folder}/{}", shard_name(n)),
    }
}

/// True for numbers of a write-ahead log (`<hh>/wal/<writer>/<n>`), whose torn ones a start can
/// tell from whole ones.
pub(crate) fn is_wal(key: &str) -> bool {
    key.split('/').nth(1) == Some("wal")
}

/// True if the last part of the directory is a shard.
pub(crate) fn is_shard(dir: &str) -> bool {
    shard_start(dir.rsplit('/').next().unwrap_or(dir)).is_some()
}

/// The file of `key` below `root`.
pub(crate) fn path_of(root: &Path, key: &str) -> PathBuf {
    let name = key.rsplit('/').next().unwrap_or(key);
    let mut path = root.join(dir_of(key));
    path.push(name);
    path
}

/// True for names at the top that belong to us or to the file system and not to any key.
pub(crate) fn is_reserved_top(name: &str) -> bool {
    name == LOCK_FILE || name == LOST_FOUND
}

/// True for names that are never part of a key: unfinished files.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}
