//! Writing large files past the page cache.
//!
//! What is written here is read again from memory or much later, if at all, so its pages in the
//! cache would be filled, written back and dropped for nothing. In a virtual machine whose host
//! gives memory out page by page they cost far more than the write itself.

use std::{
    fs::File,
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::real::write_all;

/// Files shorter than this go through the page cache: a request to the disk costs more than their
/// copy.
const LENGTH_MIN: usize = 64 << 10;
/// Bytes a write: with a megabyte the disk is busy, with a quarter of it half of the time it waits.
const BUFFER_BYTES: usize = 1 << 20;
/// Memory, offset and length of a direct write are multiples of it: the largest block in use.
const ALIGN: usize = 4 << 10;
/// Buffers kept for the next write; more than that many writes at once allocate theirs.
const BUFFERS_KEPT: usize = 8;

/// Writes past the page cache where the file system can.
#[derive(Debug, Default)]
pub(super) struct Direct {
    /// Set once the file system has refused.
    refused: AtomicBool,
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Direct {
    /// Writes all of a new file.
    ///
    /// # Errors
    /// As the file system's write.
    pub(super) fn write(&self, file: &mut File, slices: &[Bytes]) -> io::Result<()> {
        let len: usize = slices.iter().map(Bytes::len).sum();
        let is_direct = len >= LENGTH_MIN
            && !self.refused.load(Ordering::Relaxed)
            && set(file, OFlags::DIRECT).is_ok();
        if !is_direct {
            return write_all(file, slices);
        }
        let mut buffer = self.take();
        let written = write_blocks(file, slices, len, &mut buffer);
        self.keep(buffer);
        set(file, OFlags::empty())?;
        let done = written?;
        if done == 0 {
            // Some file systems take the flag and then refuse the writes.
            self.refused.store(true, Ordering::Relaxed);
        }
        write_all(file, &after(slices, done))
    }

    fn take(&self) -> Vec<u8> {
        let kept = self.buffers.lock().pop();
        kept.unwrap_or_else(|| vec![0; BUFFER_BYTES + ALIGN])
    }

    fn keep(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock();
        if buffers.len() < BUFFERS_KEPT {
            buffers.push(buffer);
        }
    }
}

fn set(file: &File, flags: OFlags) -> io::Result<()> {
    rustix::fs::fcntl_setfl(file, flags).map_err(io::Error::from)
}

/// Writes the whole blocks of `len` bytes; fewer if the file system stops within a block or refuses
/// the rest. Returns how many bytes it wrote.
fn write_blocks(
    file: &mut File,
    slices: &[Bytes],
    len: usize,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let start = buffer.as_ptr().align_offset(ALIGN);
    let Some(room) = buffer.get_mut(start..start + BUFFER_BYTES) else {
        return Ok(0);
    };
    let whole = len / ALIGN * ALIGN;
    let mut source = Source { slices, at: 0 };
    let mut done = 0;
    while done < whole {
        let piece = &mut room[..BUFFER_BYTES.min(whole - done)];
        source.fill(piece);
        let mut left = &*piece;
        while !left.is_empty() {
            match file.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    done += written;
                    left = &left[written..];
                    if written % ALIGN != 0 {
                        return Ok(done);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(done)
}

/// What is not yet copied.
struct Source<'a> {
    slices: &'a [Bytes],
    /// Bytes taken of the first slice.
    at: usize,
}

impl Source<'_> {
    fn fill(&mut self, mut room: &mut [u8]) {
        while let Some(first) = self.slices.first()
            && !room.is_empty()
        {
            let rest = &first[self.at..];
            let taken = rest.len().min(room.len());
            room[..taken].copy_from_slice(&rest[..taken]);
            room = &mut room[taken..];
            self.at += taken;
            if taken == rest.len() {
                self.slices = &self.slices[1..];
                self.at = 0;
            }
        }
    }
}

/// The slices without their first `done` bytes.
fn after(slices: &[Bytes], mut done: usize) -> Vec<Bytes> {
    let mut rest = Vec::new();
    for slice in slices {
        let skipped = done.min(slice.len());
        done -= skipped;
        if skipped < slice.len() {
            rest.push(slice.slice(skipped..));
        }
    }
    rest
}
