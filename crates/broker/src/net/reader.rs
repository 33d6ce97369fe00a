//! Reading size-prefixed frames without trusting the size.

use std::{fmt, future::Future, pin::Pin, sync::Arc, task::Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tidemill_runtime::Instant;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use super::{Frame, NetShared};

/// Bytes of a size prefix.
const PREFIX: usize = 4;
/// Bytes an idle connection's buffer holds: most requests but Produce fit, so they take one read.
const IDLE_BUFFER: usize = 512;
/// Bytes allocated for a large frame before its data has come; grows with what really comes.
const FIRST_ALLOCATION: usize = 256 << 10;
/// How many times what has come of a large frame is allocated for all of it. Each step copies what
/// came before: with this a batch of 4 MB takes two.
const GROWTH: usize = 16;
/// A frame longer than this takes its share of the memory for large requests first. Shorter ones
/// (heartbeats, fetches, commits) never wait for it.
const LARGE_FRAME: usize = 64 << 10;

/// Bytes of a large frame taken with one read. The kernel copies them before it returns: with this
/// in a tenth of a millisecond, after which others of the same thread get their turn.
const BYTES_PER_READ: usize = 256 << 10;

/// Why no further frame comes.
#[derive(Debug)]
pub enum FrameError {
    /// The size prefix is negative, too small for a header, or beyond the limit (K7).
    Size {
        /// As claimed.
        claimed: i32,
        /// The limit in bytes.
        limit: usize,
    },
    /// The client closed within a frame.
    Truncated,
    /// The socket failed.
    Io(std::io::Error),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { claimed, limit } => {
                write!(f, "frame size {claimed} is not within 8 and {limit}")
            }
            Self::Truncated => f.write_str("connection closed within a frame"),
            Self::Io(error) => write!(f, "read failed: {error}"),
        }
    }
}

impl std::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Size { .. } | Self::Truncated => None,
        }
    }
}

/// What one read brought.
#[derive(Debug)]
pub enum Step {
    /// A whole frame.
    Frame(Frame),
    /// A part of one.
    More,
    /// The client closed between frames.
    End,
}

/// Fewest bytes of a request: key, version and correlation id.
const HEADER_MIN: usize = 8;

type Acquire = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// Reads frames; keeps what it has read when a call is cancelled.
pub struct FrameReader {
    buf: BytesMut,
    /// Bytes of the frame being read, behind its prefix.
    want: Option<usize>,
    permit: Option<OwnedSemaphorePermit>,
    acquiring: Option<Acquire>,
    /// When the last bytes came.
    last_read: Instant,
    /// When the first bytes of the present frame came.
    began: Option<Instant>,
}

impl FrameReader {
    /// A reader whose silence counts from `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            buf: BytesMut::new(),
            want: None,
            permit: None,
            acquiring: None,
            last_read: now,
            began: None,
        }
    }

    /// When the last bytes came.
    #[must_use]
    pub const fn last_read(&self) -> Instant {
        self.last_read
    }

    /// Whether the client owes us the rest of a frame, and nothing on our side holds it up.
    #[must_use]
    pub fn owed(&self) -> bool {
        self.acquiring.is_none() && (self.want.is_some() || !self.buf.is_empty())
    }

    /// Lets silence count from `now`: the connection was not read for a while.
    pub const fn resume(&mut self, now: Instant) {
        self.last_read = now;
    }

    /// Reads once, unless a whole frame lies here already. Cancel safe.
    ///
    /// # Errors
    /// [`FrameError`]; the connection is to be closed then.
    pub async fn step<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
        shared: &NetShared,
    ) -> Result<Step, FrameError> {
        if let Some(frame) = self.whole(shared).await? {
            return Ok(Step::Frame(frame));
        }
        let read = match self.want {
            Some(want) => self.read_body(from, want).await,
            None => {
                self.buf.reserve(IDLE_BUFFER);
                from.read_buf(&mut self.buf).await
            }
        };
        match read {
            Ok(0) if self.want.is_none() && self.buf.is_empty() => return Ok(Step::End),
            Ok(0) => return Err(FrameError::Truncated),
            Ok(_) => {
                self.last_read = shared.clock.monotonic();
                self.began.get_or_insert(self.last_read);
            }
            Err(error) => return Err(FrameError::Io(error)),
        }
        Ok(self.whole(shared).await?.map_or(Step::More, Step::Frame))
    }

    /// A frame of which all bytes are here.
    async fn whole(&mut self, shared: &NetShared) -> Result<Option<Frame>, FrameError> {
        if self.want.is_none() && self.buf.len() >= PREFIX {
            self.begin(shared)?;
        }
        let Some(want) = self.want else {
            return Ok(None);
        };
        self.acquire(shared).await;
        Ok((self.buf.len() >= want).then(|| self.take(want)))
    }

    /// Takes the prefix and prepares for the body.
    fn begin(&mut self, shared: &NetShared) -> Result<(), FrameError> {
        let limit = shared.limits.request_max_bytes;
        let claimed = self.buf.get_i32();
        let want = usize::try_from(claimed).ok();
        let Some(want) = want.filter(|want| (HEADER_MIN..=limit).contains(want)) else {
            return Err(FrameError::Size { claimed, limit });
        };
        self.want = Some(want);
        if want > LARGE_FRAME {
            let units = u32::try_from(want.div_ceil(1024)).unwrap_or(u32::MAX);
            match Arc::clone(&shared.memory).try_acquire_many_owned(units) {
                Ok(permit) => self.permit = Some(permit),
                Err(_) => self.acquiring = Some(acquire(Arc::clone(&shared.memory), units)),
            }
        }
        Ok(())
    }

    /// Waits for the frame's share of memory. The future is kept, so its place in the queue is.
    async fn acquire(&mut self, shared: &NetShared) {
        if let Some(acquiring) = &mut self.acquiring {
            self.permit = std::future::poll_fn(|cx| match acquiring.as_mut().poll(cx) {
                Poll::Ready(permit) => Poll::Ready(permit),
                Poll::Pending => Poll::Pending,
            })
            .await;
            self.acquiring = None;
            self.last_read = shared.clock.monotonic();
        }
    }

    async fn read_body<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
        want: usize,
    ) -> std::io::Result<usize> {
        let have = self.buf.len();
        if self.buf.capacity() == have || have < PREFIX {
            // Grows with what has come, so a claim alone pins little.
            let capacity = want.min(FIRST_ALLOCATION.max(have * GROWTH));
            self.buf.reserve(capacity - have);
        }
        // Not a byte beyond the frame: it is handed on as it lies, without a copy.
        let left = (want - have).min(BYTES_PER_READ);
        from.read_buf(&mut (&mut self.buf).limit(left)).await
    }

    /// Cuts the frame off the buffer.
    fn take(&mut self, want: usize) -> Frame {
        self.want = None;
        let bytes = if want <= IDLE_BUFFER {
            let bytes = Bytes::copy_from_slice(&self.buf[..want]);
            self.buf.advance(want);
            bytes
        } else {
            self.buf.split_to(want).freeze()
        };
        if self.buf.is_empty() && self.buf.capacity() > 2 * IDLE_BUFFER {
            self.buf = BytesMut::new();
        }
        let began = self.began.take().unwrap_or(self.last_read);
        self.began = (!self.buf.is_empty()).then_some(self.last_read);
        Frame {
            bytes,
            began,
            permit: self.permit.take(),
        }
    }
}

fn acquire(memory: Arc<Semaphore>, units: u32) -> Acquire {
    // The semaphore is never closed; without a permit the frame is merely not accounted for.
    Box::pin(async move { memory.acquire_many_owned(units).await.ok() })
}
