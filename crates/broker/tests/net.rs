//! The connection layer against a service that knows no Kafka: the first byte of a frame's body
//! says what to do.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tidemill_broker::net::{
    Advertised, Call, Frame, NetLimits, NetShared, Peer, Phase, Reply, Service, Transport, Weight,
    serve_connection,
};
use tidemill_runtime::{Clock, TaskHandle, Tasks};
use tokio::{
    io::{
        AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf,
        WriteHalf,
    },
    sync::watch,
};

/// Frames are 8 bytes and more: a kind, then anything.
const ECHO: u8 = 0;
const SLOW: u8 = 1;
const PRODUCE: u8 = 2;
const PANIC: u8 = 3;
const NOTHING: u8 = 4;
const CLOSE: u8 = 5;

struct Echo {
    clock: Clock,
    started: Mutex<Vec<u8>>,
    room: watch::Sender<bool>,
    calls: AtomicUsize,
}

impl Service for Echo {
    fn call(self: &Arc<Self>, _: &Arc<Peer>, frame: Frame) -> Option<Call> {
        let kind = frame.bytes[0];
        let this = Arc::clone(self);
        this.calls.fetch_add(1, Ordering::Relaxed);
        let reply: BoxFuture<'static, Reply> = Box::pin(async move {
            this.started.lock().push(frame.bytes[1]);
            match kind {
                SLOW => this.clock.sleep(Duration::from_secs(5)).await,
                PRODUCE => {
                    let _ = this.room.subscribe().wait_for(|room| *room).await;
                }
                PANIC => panic!("handler"),
                NOTHING => return Reply::Nothing,
                CLOSE => return Reply::Close,
                _ => {}
            }
            let size = u32::try_from(frame.bytes.len()).expect("small");
            Reply::Send(vec![
                Bytes::copy_from_slice(&size.to_be_bytes()).into(),
                frame.bytes.clone().into(),
            ])
        });
        let weight = if kind == PRODUCE {
            Weight::Produce
        } else {
            Weight::Light
        };
        Some(Call { reply, weight })
    }

    fn no_room(&self) -> Option<BoxFuture<'static, ()>> {
        let mut room = self.room.subscribe();
        if *room.borrow() {
            return None;
        }
        Some(Box::pin(async move {
            let _ = room.wait_for(|room| *room).await;
        }))
    }
}

struct Harness {
    echo: Arc<Echo>,
    client: DuplexStream,
    phase: watch::Sender<Phase>,
    served: TaskHandle<()>,
    shared: NetShared,
}

fn start() -> Harness {
    let clock = Clock::simulated(0);
    let limits = NetLimits {
        request_max_bytes: 1 << 20,
        ..NetLimits::default()
    };
    let shared = NetShared::new(limits, clock.clone());
    let (phase, watched) = watch::channel(Phase::Run);
    let echo = Arc::new(Echo {
        clock,
        started: Mutex::new(Vec::new()),
        room: watch::channel(true).0,
        calls: AtomicUsize::new(0),
    });
    let (client, server) = tokio::io::duplex(1 << 16);
    let advertised = Arc::new(Advertised {
        host: "127.0.0.1".to_owned(),
        port: 9092,
    });
    let peer = Arc::new(Peer {
        connection: 1,
        address: None,
        advertised,
        produce_turn: Arc::default(),
        group_turn: Arc::default(),
    });
    let serve = serve_connection(Arc::clone(&echo), shared.clone(), peer, server, watched);
    let served = Tasks::inline().spawn("connection", serve);
    Harness {
        echo,
        client,
        phase,
        served,
        shared,
    }
}

fn frame(kind: u8, id: u8, len: usize) -> Vec<u8> {
    let mut frame = u32::try_from(len).expect("small").to_be_bytes().to_vec();
    frame.extend([kind, id]);
    frame.resize(4 + len, 7);
    frame
}

async fn answer(client: &mut DuplexStream) -> u8 {
    let size = client.read_u32().await.expect("an answer");
    let mut body = vec![0; size as usize];
    client.read_exact(&mut body).await.expect("its body");
    body[1]
}

async fn closed(client: &mut DuplexStream) -> bool {
    client
        .read(&mut [0; 16])
        .await
        .expect("a close, not an error")
        == 0
}

#[tokio::test(start_paused = true)]
async fn k6_requests_run_concurrently_and_are_answered_in_order() {
    let mut h = start();
    let began = h.shared.clock.monotonic();
    for (kind, id) in [(SLOW, 1), (ECHO, 2), (SLOW, 3), (NOTHING, 4), (ECHO, 5)] {
        h.client
            .write_all(&frame(kind, id, 20))
            .await
            .expect("written");
    }
    for id in [1, 2, 3, 5] {
        assert_eq!(answer(&mut h.client).await, id);
    }
    assert_eq!(*h.echo.started.lock(), [1, 2, 3, 4, 5]);
    assert!(
        h.shared.clock.monotonic() - began < Duration::from_secs(6),
        "both slow ones at once"
    );
}

#[tokio::test(start_paused = true)]
async fn frames_of_any_size_and_cut_anywhere_arrive_whole() {
    let mut h = start();
    for (id, len) in [
        (1u8, 8usize),
        (2, 512),
        (3, 513),
        (4, 70_000),
        (5, 300_000),
        (6, 1 << 20),
    ] {
        let bytes = frame(ECHO, id, len);
        let (mut read, mut write) = tokio::io::split(&mut h.client);
        let send = async {
            for piece in bytes.chunks(1 + len / 3) {
                write.write_all(piece).await.expect("written");
            }
        };
        let mut back = vec![0; 4 + len];
        let receive = async { read.read_exact(&mut back).await.expect("answered") };
        tokio::join!(send, receive);
        assert_eq!(back, bytes, "length {len}");
    }
}

#[tokio::test(start_paused = true)]
async fn k7_bad_sizes_close_the_connection_before_any_allocation() {
    for size in [-1i32, 0, 7, (1 << 20) + 1, i32::MAX, i32::MIN] {
        let mut h = start();
        h.client
            .write_all(&frame(ECHO, 1, 20))
            .await
            .expect("written");
        h.client
            .write_all(&size.to_be_bytes())
            .await
            .expect("written");
        assert_eq!(
            answer(&mut h.client).await,
            1,
            "what came before is answered"
        );
        assert!(closed(&mut h.client).await, "size {size}");
        assert_eq!(h.echo.calls.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_frame_and_silence_is_closed_within_the_limit() {
    for sent in [1, 3, 4, 10, 1000] {
        let mut h = start();
        let began = h.shared.clock.monotonic();
        h.client
            .write_all(&frame(ECHO, 1, 500_000)[..sent])
            .await
            .expect("written");
        assert!(closed(&mut h.client).await);
        let took = h.shared.clock.monotonic() - began;
        assert!(took >= h.shared.limits.frame_silence_max, "{took:?}");
        assert!(
            took < h.shared.limits.frame_silence_max + Duration::from_secs(1),
            "{took:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn k9_idle_connections_are_closed_with_a_fin() {
    let mut h = start();
    let began = h.shared.clock.monotonic();
    h.client
        .write_all(&frame(SLOW, 1, 20))
        .await
        .expect("written");
    assert_eq!(answer(&mut h.client).await, 1);
    assert!(closed(&mut h.client).await);
    let took = h.shared.clock.monotonic() - began;
    let expected = h.shared.limits.idle_max + Duration::from_secs(5);
    assert!(
        took >= expected && took < expected + Duration::from_secs(1),
        "{took:?}"
    );
    h.served.join().await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_produce_over_the_limit_mutes_its_own_connection_only() {
    let mut h = start();
    let mut other = start();
    h.echo.room.send_replace(false);
    other.echo.room.send_replace(false);
    h.client
        .write_all(&frame(PRODUCE, 1, 20))
        .await
        .expect("written");
    h.client
        .write_all(&frame(ECHO, 2, 20))
        .await
        .expect("written");
    other
        .client
        .write_all(&frame(ECHO, 3, 20))
        .await
        .expect("written");
    assert_eq!(
        answer(&mut other.client).await,
        3,
        "no pending produce: read as ever"
    );
    h.shared.clock.sleep(Duration::from_secs(60)).await;
    assert_eq!(*h.echo.started.lock(), [1], "muted behind its produce");
    h.echo.room.send_replace(true);
    assert_eq!(answer(&mut h.client).await, 1);
    assert_eq!(answer(&mut h.client).await, 2);
}

#[tokio::test(start_paused = true)]
async fn f40_a_panic_closes_its_connection_only() {
    let mut h = start();
    h.client
        .write_all(&frame(PANIC, 1, 20))
        .await
        .expect("written");
    assert!(closed(&mut h.client).await);
    assert!(h.served.join().await.is_err(), "the panic is seen");
}

#[tokio::test(start_paused = true)]
async fn k41_an_error_without_answer_closes_after_the_answers_before_it() {
    let mut h = start();
    for (kind, id) in [(SLOW, 1), (CLOSE, 2), (ECHO, 3)] {
        h.client
            .write_all(&frame(kind, id, 20))
            .await
            .expect("written");
    }
    assert_eq!(answer(&mut h.client).await, 1);
    assert!(closed(&mut h.client).await);
}

#[tokio::test(start_paused = true)]
async fn shutdown_answers_what_runs_and_reads_no_more() {
    let mut h = start();
    h.client
        .write_all(&frame(SLOW, 1, 20))
        .await
        .expect("written");
    h.shared.clock.sleep(Duration::from_secs(1)).await;
    h.phase.send_replace(Phase::Drain);
    h.shared.clock.sleep(Duration::from_secs(1)).await;
    h.client
        .write_all(&frame(ECHO, 2, 20))
        .await
        .expect("written");
    assert_eq!(answer(&mut h.client).await, 1);
    assert!(closed(&mut h.client).await);
    h.served.join().await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_not_read_on() {
    let mut h = start();
    let one = frame(ECHO, 1, 100_000);
    let flood = async {
        loop {
            h.client.write_all(&one).await.expect("written");
        }
    };
    let _ = h.shared.clock.timeout(Duration::from_secs(60), flood).await;
    let calls = h.echo.calls.load(Ordering::Relaxed);
    assert!(
        (10..=20).contains(&calls),
        "{calls} requests of 100 kB against a queue of 1 MiB"
    );
}

/// A client whose request of a megabyte is there at once, and who takes all that is written.
struct Ready {
    request: Vec<u8>,
    at: usize,
    /// Bytes of each read and each write.
    moved: Arc<Mutex<Vec<usize>>>,
}

impl Transport for Ready {
    type Read = ReadHalf<Self>;
    type Write = WriteHalf<Self>;

    fn halves(self) -> (Self::Read, Self::Write) {
        tokio::io::split(self)
    }
}

impl AsyncRead for Ready {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let from = self.at;
        let count = buf.remaining().min(self.request.len() - from);
        if count == 0 {
            return Poll::Pending;
        }
        buf.put_slice(&self.request[from..from + count]);
        self.at += count;
        self.moved.lock().push(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Ready {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.moved.lock().push(buf.len());
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = bufs.iter().map(|buf| buf.len()).sum();
        self.moved.lock().push(count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn second_peer() -> Arc<Peer> {
    let advertised = Advertised {
        host: "127.0.0.1".to_owned(),
        port: 9092,
    };
    Arc::new(Peer {
        connection: 2,
        address: None,
        advertised: Arc::new(advertised),
        produce_turn: Arc::default(),
        group_turn: Arc::default(),
    })
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_are_read_at_once_and_wake_nobody_until_they_are_done() {
    let h = start();
    let moved = Arc::new(Mutex::new(Vec::new()));
    let client = Ready {
        request: [1, 2, 3].map(|id| frame(SLOW, id, 1_000)).concat(),
        at: 0,
        moved: moved.clone(),
    };
    let phase = h.phase.subscribe();
    let echo = Arc::clone(&h.echo);
    let serve = serve_connection(echo, h.shared.clone(), second_peer(), client, phase);
    let mut serve = std::pin::pin!(serve);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut poll = || serve.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    assert_eq!(*h.echo.started.lock(), [1, 2, 3]);
    assert_eq!(*moved.lock(), [3 * 1_004]);
    assert_eq!(woken.0.load(Ordering::Relaxed), 0, "it woke itself");
    h.echo.clock.sleep(Duration::from_secs(6)).await;
    assert!(woken.0.load(Ordering::Relaxed) > 0, "nothing woke it");
    assert!(poll().is_pending());
    assert_eq!(moved.lock().iter().sum::<usize>(), 2 * 3 * 1_004);
}

#[tokio::test(start_paused = true)]
async fn a_large_request_and_its_answer_leave_others_their_turn() {
    const LEN: usize = 1_000_000;
    let h = start();
    let moved = Arc::new(Mutex::new(Vec::new()));
    let client = Ready {
        request: frame(ECHO, 1, LEN),
        at: 0,
        moved: moved.clone(),
    };
    let peer = second_peer();
    let phase = h.phase.subscribe();
    let serve = serve_connection(Arc::clone(&h.echo), h.shared.clone(), peer, client, phase);
    let served = Tasks::inline().spawn("connection", serve);
    let total = || moved.lock().iter().sum::<usize>();
    let mut turns = 0;
    while total() < 2 * (4 + LEN) {
        tokio::task::yield_now().await;
        turns += 1;
    }
    assert_eq!(total(), 2 * (4 + LEN));
    let most = moved.lock().iter().copied().max();
    assert!(most <= Some(256 << 10), "{most:?} bytes at once");
    // Eight pieces of a quarter of a megabyte, four of them in a row at most.
    assert!((2..=8).contains(&turns), "{turns} turns of others");
    served.abort();
}
