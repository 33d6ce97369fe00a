//! Writing response slices with vectored writes.

use std::{collections::VecDeque, io::IoSlice};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Slices handed to one write; the kernel takes up to 1,024, and few responses have more than this.
const SLICES_PER_WRITE: usize = 64;

/// Bytes handed to one write. The kernel copies them before it returns: with this in a tenth of a
/// millisecond, after which others of the same thread get their turn, and the reader at the other
/// end has begun.
const BYTES_PER_WRITE: usize = 256 << 10;

/// Responses that wait for the socket.
#[derive(Debug, Default)]
pub struct FrameWriter {
    slices: VecDeque<Bytes>,
    bytes: usize,
}

impl FrameWriter {
    /// Appends a response.
    pub fn push(&mut self, slices: Vec<Bytes>) {
        for slice in slices {
            if !slice.is_empty() {
                self.bytes += slice.len();
                self.slices.push_back(slice);
            }
        }
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Writes as much as the socket takes at once, at least one byte. Cancel safe.
    ///
    /// # Errors
    /// Those of the socket; `WriteZero` if it takes nothing.
    pub async fn write_some<W: AsyncWrite + Unpin>(&mut self, to: &mut W) -> std::io::Result<()> {
        if self.slices.is_empty() {
            return Ok(());
        }
        let mut views = [IoSlice::new(&[]); SLICES_PER_WRITE];
        let mut count = 0;
        let mut left = BYTES_PER_WRITE;
        for (view, slice) in views.iter_mut().zip(&self.slices) {
            let taken = slice.len().min(left);
            *view = IoSlice::new(&slice[..taken]);
            count += 1;
            left -= taken;
            if left == 0 {
                break;
            }
        }
        let written = to.write_vectored(&views[..count]).await?;
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        self.advance(written);
        Ok(())
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(front) = self.slices.front_mut() {
            if front.len() > written {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.slices.pop_front();
            if written == 0 {
                return;
            }
        }
    }
}
