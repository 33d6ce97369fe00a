//! Reading size-prefixed frames without trusting the size.

use std::{
    cell::RefCell,
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Poll, ready},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tidemill_runtime::Instant;
use tidemill_wire::{ApiKey, batch::Hasher};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::{Frame, NetShared, Share};

/// Bytes of a size prefix.
const PREFIX: usize = 4;
/// Least bytes of a connection's buffer once something has come: so much of a large frame needs no
/// share of memory yet.
const IDLE_BUFFER: usize = 512;
/// Bytes taken with the first read of a frame: most requests, and Produce of single records, come
/// whole, and a read that leaves room needs no second one to learn that there is no more.
const FIRST_READ: usize = 4 << 10;
/// A frame up to here is copied off the buffer, so that what is kept of it keeps no other frame.
const COPIED_MAX: usize = FIRST_READ;
/// Bytes allocated for a large frame before its data has come; grows with what really comes.
const FIRST_ALLOCATION: usize = 256 << 10;
/// How many times what has come of a large frame is allocated for all of it, up to
/// [`GROWS_FAST_BELOW`]. Each step copies what came before: with this a batch of 4 MB takes two.
const GROWTH: usize = 16;
/// Above this what is allocated doubles only: a claim costs what was sent for it.
const GROWS_FAST_BELOW: usize = 4 << 20;
/// A frame longer than this takes its share of the memory for large requests as it comes. Shorter
/// ones (heartbeats, fetches, commits) never wait for it.
const LARGE_FRAME: usize = 64 << 10;

/// Produce requests from here on are hashed while they are read: most of one is one batch, which is
/// needed in pieces anyway, and the processor has nothing else to do until more of it has come.
const HASHED_FROM: usize = 1 << 20;
/// The first bytes of a Produce request.
const PRODUCE: [u8; 2] = ApiKey::Produce.code().to_be_bytes();

/// Bytes a second that a large frame must bring while others wait for its memory.
const LEAST_RATE: u64 = 1 << 20;
/// Time that it has beside that.
const GRACE: Duration = Duration::from_secs(3);

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
    /// A large frame took its time while others waited for its memory.
    Slow,
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
            Self::Slow => f.write_str("a large request came too slowly while others waited"),
            Self::Io(error) => write!(f, "read failed: {error}"),
        }
    }
}

impl std::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Size { .. } | Self::Truncated | Self::Slow => None,
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

type Acquire = Pin<Box<dyn Future<Output = Share> + Send>>;

thread_local! {
    /// Where a frame begins to be read: connections that wait for one need no room of their own.
    static FIRST: RefCell<[u8; FIRST_READ]> = const { RefCell::new([0; FIRST_READ]) };
}

/// Appends to `buf` what has come, by way of the thread's room. Cancel safe.
async fn first_read<R: AsyncRead + Unpin>(
    from: &mut R,
    buf: &mut BytesMut,
) -> std::io::Result<usize> {
    poll_fn(|context| {
        FIRST.with_borrow_mut(|first| {
            let mut first = ReadBuf::new(first);
            ready!(Pin::new(&mut *from).poll_read(context, &mut first))?;
            buf.reserve(first.filled().len().max(IDLE_BUFFER));
            buf.extend_from_slice(first.filled());
            Poll::Ready(Ok(first.filled().len()))
        })
    })
    .await
}

/// Reads frames; keeps what it has read when a call is cancelled.
pub struct FrameReader {
    buf: BytesMut,
    /// The next bytes of a large frame that has no memory for them yet.
    ahead: BytesMut,
    /// Bytes of the frame being read, behind its prefix.
    want: Option<usize>,
    /// Checksums of what has come of a frame that is hashed.
    hasher: Hasher,
    /// Memory for what is allocated of a large frame.
    share: Option<Share>,
    acquiring: Option<Acquire>,
    /// When the last bytes came.
    last_read: Instant,
    /// When the first bytes of the present frame came.
    began: Option<Instant>,
    /// The same of a large frame, as if it had never waited for memory.
    taking_since: Instant,
}

impl FrameReader {
    /// A reader whose silence counts from `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            buf: BytesMut::new(),
            ahead: BytesMut::new(),
            want: None,
            hasher: Hasher::default(),
            share: None,
            acquiring: None,
            last_read: now,
            began: None,
            taking_since: now,
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
    pub fn resume(&mut self, now: Instant) {
        self.taking_since += now.saturating_duration_since(self.last_read);
        self.last_read = now;
    }

    /// When a large frame is behind [`LEAST_RATE`], if no more of it comes.
    #[must_use]
    pub fn behind_at(&self) -> Option<Instant> {
        self.want.filter(|want| *want > LARGE_FRAME)?;
        let came = u64::try_from(self.buf.len()).unwrap_or(u64::MAX);
        Some(self.taking_since + GRACE + Duration::from_micros(came * 1_000_000 / LEAST_RATE))
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
        if let Some(frame) = self.whole(shared)? {
            return Ok(Step::Frame(frame));
        }
        let read = match self.want {
            Some(want) => match self.make_room(from, want, shared).await {
                Ok(()) if self.buf.len() == want => return Ok(Step::Frame(self.take(want))),
                Ok(()) => self.read_body(from, want).await,
                ended => ended.map(|()| 0),
            },
            None => first_read(from, &mut self.buf).await,
        };
        match read {
            Ok(0) if self.want.is_none() && self.buf.is_empty() => return Ok(Step::End),
            Ok(0) => return Err(FrameError::Truncated),
            Ok(_) => {
                self.last_read = shared.clock.monotonic();
                self.began.get_or_insert(self.last_read);
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(FrameError::Truncated);
            }
            Err(error) => return Err(FrameError::Io(error)),
        }
        Ok(self.whole(shared)?.map_or(Step::More, Step::Frame))
    }

    /// A frame of which all bytes are here.
    fn whole(&mut self, shared: &NetShared) -> Result<Option<Frame>, FrameError> {
        if self.want.is_none() && self.buf.len() >= PREFIX {
            self.begin(shared)?;
        }
        let whole = self.want.filter(|want| self.buf.len() >= *want);
        Ok(whole.map(|want| self.take(want)))
    }

    /// Takes the prefix.
    fn begin(&mut self, shared: &NetShared) -> Result<(), FrameError> {
        let limit = shared.limits.request_max_bytes;
        let claimed = self.buf.get_i32();
        let want = usize::try_from(claimed).ok();
        let Some(want) = want.filter(|want| (HEADER_MIN..=limit).contains(want)) else {
            return Err(FrameError::Size { claimed, limit });
        };
        self.want = Some(want);
        self.taking_since = self.last_read;
        Ok(())
    }

    /// Makes room for more of a frame, of a large one within its share of memory. Cancel safe: the
    /// place in the queue is kept.
    async fn make_room<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
        want: usize,
        shared: &NetShared,
    ) -> std::io::Result<()> {
        let have = self.buf.len();
        if self.acquiring.is_none() && have >= PREFIX && have < self.buf.capacity() {
            return Ok(());
        }
        // Grows with what has come, so a claim alone pins little.
        let fast = (have * GROWTH).min(GROWS_FAST_BELOW).max(2 * have);
        let mut capacity = want.min(FIRST_ALLOCATION.max(fast));
        if want > LARGE_FRAME && !self.covers(capacity, shared) {
            capacity = want.min(have + FIRST_ALLOCATION);
            if !self.covers(capacity, shared) {
                self.wait_for(capacity, from, shared).await?;
            }
        }
        self.buf.reserve(capacity - have);
        self.buf.extend_from_slice(&std::mem::take(&mut self.ahead));
        Ok(())
    }

    /// True if the share covers `bytes`, or does now.
    fn covers(&mut self, bytes: usize, shared: &NetShared) -> bool {
        let share = self.share.get_or_insert_default();
        self.acquiring.is_none() && shared.memory.try_grow(share, bytes)
    }

    /// Waits for more of the frame, and then for memory: who sends nothing stands in nobody's way.
    async fn wait_for<R: AsyncRead + Unpin>(
        &mut self,
        bytes: usize,
        from: &mut R,
        shared: &NetShared,
    ) -> std::io::Result<()> {
        if self.ahead.is_empty() {
            self.ahead.reserve(IDLE_BUFFER);
            let room = bytes - self.buf.len();
            if from
                .read_buf(&mut (&mut self.ahead).limit(room.min(IDLE_BUFFER)))
                .await?
                == 0
            {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.last_read = shared.clock.monotonic();
        }
        let share = &mut self.share;
        let acquiring = self.acquiring.get_or_insert_with(|| {
            let share = share.take().unwrap_or_default();
            Box::pin(shared.memory.clone().grow(share, bytes))
        });
        *share = Some(acquiring.await);
        self.acquiring = None;
        self.resume(shared.clock.monotonic());
        Ok(())
    }

    async fn read_body<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
        want: usize,
    ) -> std::io::Result<usize> {
        let have = self.buf.len();
        // Not a byte beyond the frame: it is handed on as it lies, without a copy.
        let left = (want - have).min(BYTES_PER_READ);
        let read = from.read_buf(&mut (&mut self.buf).limit(left)).await?;
        if want >= HASHED_FROM && self.buf.starts_with(&PRODUCE) {
            self.hasher.update(&self.buf);
        }
        Ok(read)
    }

    /// Cuts the frame off the buffer.
    fn take(&mut self, want: usize) -> Frame {
        self.want = None;
        let bytes = if want <= COPIED_MAX {
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
            hashed: self.hasher.take(&bytes),
            bytes,
            began,
            share: self.share.take(),
        }
    }
}
