//! Writing responses: memory with vectored writes, parts of files from file to socket.

use std::{collections::VecDeque, future::poll_fn, io::IoSlice};

use tidemill_wire::codec::Slice;

use super::{Outgoing, transport::More};

/// Slices handed to one write; the kernel takes up to 1,024, and few responses have more than this.
const SLICES_PER_WRITE: usize = 64;
/// Bytes handed to one write. The kernel copies them before it returns: with this in a tenth of a
/// millisecond, after which others of the same thread get their turn, and the reader at the other
/// end has begun.
const BYTES_PER_WRITE: usize = 256 << 10;
/// What a part of a file counts among the bytes that wait: it holds an open file and no memory, and
/// an answer of sixteen of them is as much as a connection may hold before it is read on.
const FILE_WEIGHT: usize = 64 << 10;

/// Responses that wait for the socket.
#[derive(Debug, Default)]
pub struct FrameWriter {
    slices: VecDeque<Slice>,
    held: usize,
}

/// What a slice counts among what a connection holds.
fn weight(slice: &Slice) -> usize {
    match slice {
        Slice::Memory(bytes) => bytes.len(),
        Slice::File(_) => FILE_WEIGHT,
    }
}

impl FrameWriter {
    /// Appends a response.
    pub fn push(&mut self, slices: Vec<Slice>) {
        for slice in slices {
            if !slice.is_empty() {
                self.held += weight(&slice);
                self.slices.push_back(slice);
            }
        }
    }

    /// Bytes of memory that wait, a part of a file counted as [`FILE_WEIGHT`].
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Writes as much as the socket takes at once, at least one byte. Cancel safe.
    ///
    /// # Errors
    /// Those of the socket or of a file; `WriteZero` if the socket takes nothing, `UnexpectedEof`
    /// if a file ends before what is to be sent of it. The connection can only be closed then.
    pub async fn write_some<W: Outgoing>(&mut self, to: &mut W) -> std::io::Result<()> {
        let written = match self.slices.front() {
            None => return Ok(()),
            Some(Slice::File(file)) => poll_fn(|cx| to.poll_send_file(cx, file)).await?,
            Some(Slice::Memory(_)) => self.write_memory(to).await?,
        };
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        self.advance(written);
        Ok(())
    }

    /// Writes the slices in front of the next part of a file.
    async fn write_memory<W: Outgoing>(&self, to: &mut W) -> std::io::Result<usize> {
        let mut views = [IoSlice::new(&[]); SLICES_PER_WRITE];
        let (mut count, mut left) = (0, BYTES_PER_WRITE);
        for (view, slice) in views.iter_mut().zip(&self.slices) {
            let Slice::Memory(bytes) = slice else { break };
            let taken = bytes.len().min(left);
            *view = IoSlice::new(&bytes[..taken]);
            count += 1;
            left -= taken;
            if left == 0 {
                break;
            }
        }
        let more = match self.slices.get(count) {
            Some(Slice::File(_)) => More::Follows,
            _ => More::No,
        };
        poll_fn(|cx| to.poll_write_slices(cx, &views[..count], more)).await
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(front) = self.slices.front_mut() {
            let before = weight(front);
            if front.len() > written {
                front.advance(written);
                self.held -= before - weight(front);
                return;
            }
            written -= front.len();
            self.held -= before;
            self.slices.pop_front();
            if written == 0 {
                return;
            }
        }
    }
}
