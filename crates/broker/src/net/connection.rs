//! One connection: in order in, concurrently through, in order out.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tidemill_runtime::Instant;
use tidemill_wire::Slice;
use tokio::{
    io::{AsyncRead, AsyncWriteExt},
    sync::watch,
};

use super::{
    Call, FETCHES_IN_FLIGHT_MAX, Frame, FrameError, FrameReader, FrameWriter, NetShared, Outgoing,
    Peer, Reply, Service, Step, Transport, WRITE_QUEUE_MAX_BYTES, Weight, in_flight::InFlight,
};

/// Reads and writes of parts of large frames in a row before other tasks of the thread get their
/// turn: a megabyte, in a third of a millisecond or less. A turn costs some 30 microseconds where
/// cores are idle, as another thread is woken to look for work.
const PARTS_IN_A_ROW: u32 = 4;

/// A connection that is not read on is looked at this often: its client may have hung up, or send
/// a large frame too slowly.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How far the broker's stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Serving.
    Run,
    /// No new request is read; what runs is answered.
    Drain,
    /// Everything is dropped.
    Stop,
}

/// A request that runs.
struct Running {
    weight: Weight,
    reply: BoxFuture<'static, Reply>,
    /// Requests of the connection that run and are no fetches.
    others: Arc<AtomicUsize>,
}

impl Future for Running {
    type Output = (Weight, Reply);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let weight = self.weight;
        let polled = self.reply.as_mut().poll(cx);
        if polled.is_ready() && weight != Weight::Fetch {
            self.others.fetch_sub(1, Ordering::Relaxed);
        }
        polled.map(|reply| (weight, reply))
    }
}

/// What happened in one turn of the loop.
enum Turn {
    Answered((Weight, Reply)),
    /// The client has hung up, and nothing runs but fetches that wait.
    Abandoned,
    Written(std::io::Result<()>),
    Read(Result<Step, FrameError>),
    Room,
    Timer,
    Phase,
}

struct Connection<S> {
    service: Arc<S>,
    peer: Arc<Peer>,
    shared: NetShared,
    reader: FrameReader,
    writer: FrameWriter,
    in_flight: InFlight<Running>,
    produces: usize,
    fetches: usize,
    /// Requests that run and are no fetches.
    others: Arc<AtomicUsize>,
    /// The client sends nothing more: nobody waits for what a fetch waits for.
    hung_up: bool,
    /// When the timer last came.
    looked: Instant,
    /// Set while produced data has no room; ends when it has.
    muted: Option<BoxFuture<'static, ()>>,
    /// No further request is read.
    closing: bool,
    /// Whether this turn may read; after a pause silence counts anew.
    was_reading: bool,
    last_write: Instant,
    /// When the oldest response that waits to be written was ready.
    ready: Option<Instant>,
    /// When what a response waited for was committed, until its first byte is written.
    committed: Option<Instant>,
}

/// Tells the service of a connection's begin, and of its end however it comes.
struct Counted<S: Service>(Arc<S>);

impl<S: Service> Counted<S> {
    fn new(service: &Arc<S>) -> Self {
        service.connected();
        Self(Arc::clone(service))
    }
}

impl<S: Service> Drop for Counted<S> {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}

/// Serves `stream` until it ends, is idle for too long, or `phase` says so.
pub async fn serve_connection<S, IO>(
    service: Arc<S>,
    shared: NetShared,
    peer: Arc<Peer>,
    stream: IO,
    mut phase: watch::Receiver<Phase>,
) where
    S: Service,
    IO: Transport,
{
    let now = shared.clock.monotonic();
    let _counted = Counted::new(&service);
    let (mut read, mut write) = stream.halves();
    let mut connection = Connection {
        service,
        peer,
        reader: FrameReader::new(now),
        writer: FrameWriter::default(),
        in_flight: InFlight::new(),
        produces: 0,
        fetches: 0,
        others: Arc::default(),
        hung_up: false,
        looked: now,
        muted: None,
        closing: false,
        was_reading: true,
        last_write: now,
        ready: None,
        committed: None,
        shared,
    };
    let clean = connection.run(&mut read, &mut write, &mut phase).await;
    if clean {
        // FIN rather than RST, so that the client sees a close and not an error (K9).
        let _ = write.shutdown().await;
    }
}

impl<S: Service> Connection<S> {
    /// True if what was answered has been written and the socket is to be closed politely.
    async fn run<R, W>(
        &mut self,
        read: &mut R,
        write: &mut W,
        phase: &mut watch::Receiver<Phase>,
    ) -> bool
    where
        R: AsyncRead + Unpin,
        W: Outgoing,
    {
        let clock = self.shared.clock.clone();
        let mut timer_at = self.deadline();
        let mut timer: Pin<Box<_>> = Box::pin(clock.sleep_until(timer_at));
        let mut parts = 0;
        loop {
            if self.closing && self.in_flight.is_empty() && self.writer.is_empty() {
                return true;
            }
            self.note_reading();
            // The deadline moves out by itself; only a nearer one needs a new timer.
            if (self.reader.owed() || !self.was_reading) && self.deadline() < timer_at {
                timer_at = self.deadline();
                timer = Box::pin(clock.sleep_until(timer_at));
            }
            let (turn, waited) = noting_waits(self.turn(read, write, timer.as_mut(), phase)).await;
            parts = match self.is_part(&turn) {
                true if waited => 1,
                true => parts + 1,
                false => 0,
            };
            match turn {
                Turn::Answered(answer) => self.answered(answer),
                Turn::Abandoned => self.drop_running(),
                Turn::Written(Ok(())) => self.written(clock.monotonic()),
                Turn::Written(Err(error)) => {
                    if error.kind() == std::io::ErrorKind::UnexpectedEof {
                        let peer = self.peer.host();
                        tracing::error!(peer, "a stored object is shorter than what is sent of it");
                    }
                    return false;
                }
                Turn::Read(Ok(Step::Frame(frame))) => self.start(frame),
                Turn::Read(Ok(Step::More)) => {}
                Turn::Read(Ok(Step::End)) => (self.closing, self.hung_up) = (true, true),
                Turn::Read(Err(error)) => {
                    self.log_close(&error);
                    self.closing = true;
                }
                Turn::Room => self.muted = None,
                Turn::Timer => {
                    if self.is_over(clock.monotonic()) {
                        return self.writer.is_empty();
                    }
                    self.hung_up |= !self.was_reading && write.is_hung_up();
                    timer_at = self.next_look();
                    timer = Box::pin(clock.sleep_until(timer_at));
                }
                Turn::Phase => match *phase.borrow_and_update() {
                    Phase::Run => {}
                    Phase::Drain => self.closing = true,
                    Phase::Stop => return false,
                },
            }
            if parts == PARTS_IN_A_ROW {
                parts = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether a large frame moved on, and more of it follows.
    fn is_part(&self, turn: &Turn) -> bool {
        match turn {
            Turn::Written(Ok(())) => !self.writer.is_empty(),
            Turn::Read(Ok(Step::More)) => true,
            _ => false,
        }
    }

    async fn turn<R, W>(
        &mut self,
        read: &mut R,
        write: &mut W,
        timer: Pin<&mut (impl Future<Output = ()> + Send)>,
        phase: &mut watch::Receiver<Phase>,
    ) -> Turn
    where
        R: AsyncRead + Unpin,
        W: Outgoing,
    {
        let reading = self.was_reading;
        let muted = self.muted.is_some();
        // First what runs: a request just taken is started before the next one is read, and all
        // answers that are ready go out in one write.
        tokio::select! {
            biased;
            turn = next_answer(&mut self.in_flight, self.hung_up.then_some(&*self.others)),
                if !self.in_flight.is_empty() => turn,
            changed = phase.changed() => {
                if changed.is_err() {
                    // The broker is gone.
                    self.closing = true;
                }
                Turn::Phase
            }
            written = self.writer.write_some(write), if !self.writer.is_empty() => {
                Turn::Written(written)
            }
            () = async {
                match &mut self.muted {
                    Some(room) => room.await,
                    None => std::future::pending().await,
                }
            }, if muted => Turn::Room,
            frame = self.reader.step(read, &self.shared), if reading => Turn::Read(frame),
            () = timer => Turn::Timer,
        }
    }

    /// Whether the next turn may read.
    fn note_reading(&mut self) {
        if self.produces == 0 {
            self.muted = None;
        }
        let reading = self.may_read();
        if reading && !self.was_reading {
            self.reader.resume(self.shared.clock.monotonic());
        }
        self.was_reading = reading;
    }

    fn may_read(&self) -> bool {
        !self.closing
            && self.muted.is_none()
            && self.in_flight.len() < self.shared.limits.in_flight_max
            && self.fetches < FETCHES_IN_FLIGHT_MAX
            && self.writer.held() < WRITE_QUEUE_MAX_BYTES
    }

    fn start(&mut self, frame: Frame) {
        let Some(call) = self.service.call(&self.peer, frame) else {
            self.closing = true;
            return;
        };
        let Call { reply, weight } = call;
        match weight {
            Weight::Produce => {
                self.produces += 1;
                self.muted = self.service.no_room();
            }
            Weight::Fetch => self.fetches += 1,
            Weight::Light => {}
        }
        if weight != Weight::Fetch {
            self.others.fetch_add(1, Ordering::Relaxed);
        }
        let others = Arc::clone(&self.others);
        self.in_flight.push(Running {
            weight,
            reply,
            others,
        });
    }

    /// What runs is not answered.
    fn drop_running(&mut self) {
        self.in_flight = InFlight::new();
        (self.produces, self.fetches) = (0, 0);
        self.others = Arc::default();
    }

    fn answered(&mut self, (weight, reply): (Weight, Reply)) {
        match weight {
            Weight::Produce => self.produces -= 1,
            Weight::Fetch => self.fetches -= 1,
            Weight::Light => {}
        }
        match reply {
            Reply::Send(slices) => self.push(slices, None),
            Reply::Woken(slices, committed) => self.push(slices, Some(committed)),
            Reply::Nothing => {}
            Reply::Close => {
                // The client is to start over.
                self.drop_running();
                self.closing = true;
            }
        }
    }

    fn push(&mut self, slices: Vec<Slice>, committed: Option<Instant>) {
        self.ready
            .get_or_insert_with(|| self.shared.clock.monotonic());
        self.committed = self.committed.or(committed);
        self.writer.push(slices);
    }

    fn written(&mut self, now: Instant) {
        self.last_write = now;
        let since = |then: Instant| now.saturating_duration_since(then);
        let committed = self.committed.take().map(since);
        let all = self.writer.is_empty();
        let ready = if all { self.ready.take() } else { None };
        self.service.wrote(ready.map(since), committed);
    }

    fn last_activity(&self) -> Instant {
        self.reader.last_read().max(self.last_write)
    }

    /// When the connection must be looked at again.
    fn deadline(&self) -> Instant {
        let limits = &self.shared.limits;
        let idle = self.last_activity() + limits.idle_max;
        if !self.was_reading {
            return idle.min(self.last_activity().max(self.looked) + LOOK_EVERY);
        }
        if !self.reader.owed() {
            return idle;
        }
        let silent = self.reader.last_read() + limits.frame_silence_max;
        match self.reader.behind_at() {
            Some(behind) => silent.min(behind.max(self.looked + LOOK_EVERY)),
            None => silent,
        }
    }

    /// When the timer is to come next.
    fn next_look(&self) -> Instant {
        // A request that runs for longer than the connection may be idle keeps it.
        match self.deadline() {
            passed if passed <= self.looked => self.looked + LOOK_EVERY,
            deadline => deadline,
        }
    }

    /// The timer has come: whether the connection is to be closed.
    fn is_over(&mut self, now: Instant) -> bool {
        self.looked = now;
        let too_slow = self.too_slow();
        if let Some(error) = &too_slow {
            self.log_close(error);
        }
        too_slow.is_some() || self.expired(now)
    }

    /// A large frame must not take its time while others wait for the memory that it holds.
    fn too_slow(&self) -> Option<FrameError> {
        let owed = self.was_reading && self.reader.owed() && self.shared.memory.is_contended();
        let behind = self.reader.behind_at().filter(|_| owed)?;
        (behind <= self.looked).then_some(FrameError::Slow)
    }

    fn expired(&self, now: Instant) -> bool {
        let limits = &self.shared.limits;
        if self.reader.owed() && self.was_reading {
            return now >= self.reader.last_read() + limits.frame_silence_max;
        }
        // A running request keeps the connection. A client that reads no answer does not, nor one
        // that lets a fetch wait for longer than it may be idle.
        let waits = self.others.load(Ordering::Relaxed) > 0 && self.writer.is_empty();
        !waits && now >= self.last_activity() + limits.idle_max
    }

    fn log_close(&self, error: &FrameError) {
        match error {
            FrameError::Io(_) | FrameError::Truncated => {
                tracing::debug!(peer = %self.peer.host(), %error, "connection closed");
            }
            FrameError::Size { .. } | FrameError::Slow => {
                tracing::warn!(peer = %self.peer.host(), %error, "connection closed");
            }
        }
    }
}

/// What comes of `turn`, and whether others of the thread had theirs meanwhile.
async fn noting_waits<T>(turn: impl Future<Output = T>) -> (T, bool) {
    let mut turn = std::pin::pin!(turn);
    let mut waited = false;
    let done = std::future::poll_fn(|cx| {
        let polled = turn.as_mut().poll(cx);
        waited |= polled.is_pending();
        polled
    });
    (done.await, waited)
}

/// The next answer in order. `others` is given once the client has hung up: fetches that wait are
/// abandoned as soon as nothing else runs.
async fn next_answer(in_flight: &mut InFlight<Running>, others: Option<&AtomicUsize>) -> Turn {
    std::future::poll_fn(|cx| match in_flight.poll_next(cx) {
        Poll::Ready(Some(answer)) => Poll::Ready(Turn::Answered(answer)),
        Poll::Ready(None) => Poll::Pending,
        Poll::Pending if others.is_some_and(|others| others.load(Ordering::Relaxed) == 0) => {
            Poll::Ready(Turn::Abandoned)
        }
        Poll::Pending => Poll::Pending,
    })
    .await
}
