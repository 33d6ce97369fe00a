//! Filling the page cache with what is about to be read.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read},
    path::Path,
};

use crate::error::BenchError;

/// Bytes read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Reads every file below `dir` through the page cache; returns their bytes. Kafka writes through
/// the page cache and Tidemill past it, so that a measurement which is to be warm on both sides
/// must read both sides' files itself. Files that go meanwhile are left out.
///
/// # Errors
/// A file or directory cannot be read.
pub fn warm(dir: &Path) -> Result<u64, BenchError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut dirs = vec![dir.to_owned()];
    let mut bytes = 0;
    while let Some(dir) = dirs.pop() {
        let failed = || BenchError::io(format!("`{}`", dir.display()));
        for entry in fs::read_dir(&dir).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let kind = entry.file_type().map_err(failed())?;
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() {
                bytes += read_through(&entry.path(), &mut buffer)?;
            }
        }
    }
    Ok(bytes)
}

fn read_through(path: &Path, buffer: &mut [u8]) -> Result<u64, BenchError> {
    let failed = || BenchError::io(format!("`{}`", path.display()));
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        other => other.map_err(failed())?,
    };
    let mut bytes = 0;
    loop {
        match file.read(buffer) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes += read as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed()(error)),
        }
    }
}
