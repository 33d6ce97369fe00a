//! Connections that take their time: what they hold is nobody else's loss.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use tidemill_broker::net::{
    Advertised, Call, Frame, NetLimits, NetShared, Peer, Phase, Reply, Service, Transport, Weight,
    serve_connection,
};
use tidemill_runtime::{Clock, Tasks};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Kinds of frames, their first bytes.
const ECHO: u8 = 0;
/// Waits for records that never come.
const FETCH: u8 = 1;
/// Is done after a second.
const SECOND: u8 = 2;

struct Waits {
    clock: Clock,
    done: AtomicUsize,
    /// Fetches that wait.
    parked: Arc<AtomicUsize>,
    connections: AtomicUsize,
}

struct Parked(Arc<AtomicUsize>);

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service for Waits {
    fn call(self: &Arc<Self>, _: &Arc<Peer>, frame: Frame) -> Option<Call> {
        let kind = frame.bytes[0];
        let this = Arc::clone(self);
        let reply: BoxFuture<'static, Reply> = Box::pin(async move {
            match kind {
                FETCH => {
                    this.parked.fetch_add(1, Ordering::Relaxed);
                    let _parked = Parked(Arc::clone(&this.parked));
                    std::future::pending::<()>().await;
                }
                SECOND => this.clock.sleep(Duration::from_secs(1)).await,
                _ => {}
            }
            this.done.fetch_add(1, Ordering::Relaxed);
            // Its share of memory is held until here.
            drop(frame);
            Reply::Send(vec![Bytes::from_static(&[0, 0, 0, 1, 7]).into()])
        });
        let weight = match kind {
            FETCH => Weight::Fetch,
            SECOND => Weight::Produce,
            _ => Weight::Light,
        };
        Some(Call { reply, weight })
    }

    fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    fn no_room(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

struct Harness {
    service: Arc<Waits>,
    shared: NetShared,
    phase: watch::Sender<Phase>,
    tasks: Tasks,
}

fn start(clock: Clock, request_memory_bytes: usize) -> Harness {
    let limits = NetLimits {
        request_max_bytes: 100 << 20,
        request_memory_bytes,
        ..NetLimits::default()
    };
    Harness {
        service: Arc::new(Waits {
            clock: clock.clone(),
            done: AtomicUsize::new(0),
            parked: Arc::default(),
            connections: AtomicUsize::new(0),
        }),
        shared: NetShared::new(limits, clock),
        phase: watch::channel(Phase::Run).0,
        tasks: Tasks::inline(),
    }
}

impl Harness {
    fn serve(&self, stream: impl Transport + 'static) {
        let peer = Arc::new(Peer {
            connection: 1,
            address: None,
            advertised: Arc::new(Advertised {
                host: "127.0.0.1".to_owned(),
                port: 9092,
            }),
            produce_turn: Arc::default(),
            group_turn: Arc::default(),
        });
        let service = Arc::clone(&self.service);
        let phase = self.phase.subscribe();
        let serve = serve_connection(service, self.shared.clone(), peer, stream, phase);
        self.tasks.spawn("connection", serve);
    }

    fn connect(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(1 << 16);
        self.serve(server);
        client
    }

    async fn pass(&self, seconds: u64) {
        let clock = &self.shared.clock;
        clock.sleep(Duration::from_secs(seconds)).await;
    }

    fn connections(&self) -> usize {
        self.service.connections.load(Ordering::Relaxed)
    }

    fn parked(&self) -> usize {
        self.service.parked.load(Ordering::Relaxed)
    }
}

fn frame(kind: u8, len: usize) -> Vec<u8> {
    let mut frame = u32::try_from(len).expect("small").to_be_bytes().to_vec();
    frame.push(kind);
    frame.resize(4 + len, 7);
    frame
}

async fn answered(client: &mut (impl AsyncReadExt + Unpin)) {
    let mut answer = [0; 5];
    client.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(answer, [0, 0, 0, 1, 7]);
}

/// Sends a byte every second until the connection is closed.
async fn drip(clock: Clock, mut client: DuplexStream) {
    while client.write_all(&[7]).await.is_ok() {
        clock.sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_holds_no_memory_that_others_need() {
    let h = start(Clock::simulated(0), 1 << 20);
    for _ in 0..50 {
        let mut client = h.connect();
        let claim = frame(ECHO, 90 << 20);
        client.write_all(&claim[..100]).await.expect("taken");
        h.tasks.spawn("drip", drip(h.shared.clock.clone(), client));
    }
    h.pass(60).await;
    assert_eq!(h.connections(), 50, "slow, but in nobody's way");
    assert!(!h.shared.memory.is_contended());
    let began = h.shared.clock.monotonic();
    let mut good = h.connect();
    for len in [500_000, 1 << 20, 8 << 20, 70_000] {
        good.write_all(&frame(ECHO, len)).await.expect("taken");
        answered(&mut good).await;
    }
    assert_eq!(h.shared.clock.monotonic(), began, "nothing was waited for");
    assert_eq!(h.shared.memory.free_bytes(), 1 << 20, "all is given back");
}

/// What is full of half frames is free again within seconds, whether they stay silent or go on.
#[tokio::test(start_paused = true)]
async fn half_frames_are_cut_off_when_others_wait_for_their_memory() {
    for drips in [false, true] {
        let h = start(Clock::simulated(0), 1 << 20);
        let mut silent = Vec::new();
        for _ in 0..4 {
            let mut client = h.connect();
            let half = frame(ECHO, 90 << 20);
            client.write_all(&half[..300_000]).await.expect("taken");
            match drips {
                true => drop(h.tasks.spawn("drip", drip(h.shared.clock.clone(), client))),
                false => silent.push(client),
            }
        }
        h.pass(10).await;
        let began = h.shared.clock.monotonic();
        let mut good = h.connect();
        for _ in 0..3 {
            good.write_all(&frame(ECHO, 500_000)).await.expect("taken");
            answered(&mut good).await;
        }
        let took = h.shared.clock.monotonic() - began;
        assert!(took < Duration::from_secs(20), "{drips}: {took:?}");
        h.pass(60).await;
        drop(good);
        h.pass(1).await;
        // The last that drips stays: nobody waits for what it holds.
        assert_eq!(h.connections(), usize::from(drips));
        assert!(!h.shared.memory.is_contended(), "{drips}");
    }
}

/// Frames that each hold a part of all memory and need more of it are read one after the other.
#[tokio::test(start_paused = true)]
async fn large_frames_at_once_all_come_through() {
    let h = start(Clock::simulated(0), 1 << 20);
    let began = h.shared.clock.monotonic();
    let all = (0..20).map(|_| {
        let mut client = h.connect();
        async move {
            let (mut read, mut write) = tokio::io::split(&mut client);
            let large = frame(SECOND, 3 << 20);
            let (sent, ()) = futures_util::join!(write.write_all(&large), answered(&mut read));
            sent.expect("taken");
        }
    });
    join_all(all).await;
    assert!(h.shared.clock.monotonic() - began < Duration::from_secs(25));
    assert_eq!(h.shared.memory.free_bytes(), 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn k9_a_fetch_ends_with_its_client_and_what_else_runs_does_not() {
    let h = start(Clock::simulated(0), 1 << 20);
    let mut client = h.connect();
    let requests = [frame(FETCH, 20), frame(SECOND, 20), frame(FETCH, 20)].concat();
    client.write_all(&requests).await.expect("taken");
    h.pass(0).await;
    drop(client);
    h.shared.clock.sleep(Duration::from_millis(500)).await;
    assert_eq!((h.connections(), h.parked()), (1, 2), "the second runs");
    h.pass(1).await;
    assert_eq!((h.connections(), h.parked()), (0, 0));
    assert_eq!(h.service.done.load(Ordering::Relaxed), 1, "to its end");
}

/// As long as its client may be idle; Kafka closes such a connection too.
#[tokio::test(start_paused = true)]
async fn k9_a_fetch_does_not_keep_an_idle_connection_for_ever() {
    let h = start(Clock::simulated(0), 1 << 20);
    let mut client = h.connect();
    client.write_all(&frame(FETCH, 20)).await.expect("taken");
    let idle = h.shared.limits.idle_max.as_secs();
    h.pass(idle - 1).await;
    assert_eq!((h.connections(), h.parked()), (1, 1));
    h.pass(2).await;
    assert_eq!((h.connections(), h.parked()), (0, 0));
    assert_eq!(client.read(&mut [0; 8]).await.expect("a close"), 0);
}

/// So many fetches wait that no more is read: the end of the stream is seen all the same.
#[tokio::test]
async fn k9_a_client_that_hangs_up_is_missed_although_nothing_is_read() {
    let h = start(Clock::system(), 1 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut client = TcpStream::connect(address).await.expect("it listens");
    h.serve(listener.accept().await.expect("a client").0);
    let fetches = frame(FETCH, 20).repeat(10);
    client.write_all(&fetches).await.expect("sent");
    client
        .write_all(&frame(SECOND, 100_000))
        .await
        .expect("sent");
    let within = h.shared.clock.monotonic() + Duration::from_secs(60);
    let soon = || h.shared.clock.monotonic() < within;
    while h.parked() < 4 && soon() {
        h.shared.clock.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(h.parked(), 4, "and the rest is not read");
    drop(client);
    while h.connections() > 0 && soon() {
        h.shared.clock.sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((h.connections(), h.parked()), (0, 0));
    assert_eq!(
        h.service.done.load(Ordering::Relaxed),
        1,
        "what was sent is done"
    );
}
