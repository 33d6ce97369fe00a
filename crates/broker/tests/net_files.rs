//! Answers that lie in files: what a client gets over a real socket and over memory, in which
//! order, and what becomes of the connection and of descriptors when something is wrong.

use std::{fs::File, io::Write, os::fd::AsRawFd, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tidemill_broker::net::{
    Advertised, Call, Frame, NetLimits, NetShared, Peer, Phase, Reply, Service, Transport, Weight,
    serve_connection,
};
use tidemill_runtime::{Clock, TaskHandle, Tasks};
use tidemill_wire::{FileSlice, Slice};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A file of a hundred parts, each opened for its answer alone.
const PART: usize = 300_000;
const PARTS: usize = 100;
/// Long enough for anything local.
const SOON: Duration = Duration::from_secs(20);

/// Answers a frame `[kind, id, ..]` with a size, the id, part `id` of the file, and the id again.
struct Files(std::path::PathBuf);

/// An answer of memory alone, later than those behind it are ready.
const LATE: u8 = 1;

impl Service for Files {
    fn call(self: &Arc<Self>, _: &Arc<Peer>, frame: Frame) -> Option<Call> {
        let (kind, id) = (frame.bytes[0], frame.bytes[1]);
        let path = self.0.clone();
        let reply: BoxFuture<'static, Reply> = Box::pin(async move {
            let number = Bytes::copy_from_slice(&[id]);
            if kind == LATE {
                Clock::system().sleep(Duration::from_millis(100)).await;
                let size = Bytes::copy_from_slice(&2u32.to_be_bytes());
                return Reply::Send(vec![size.into(), number.clone().into(), number.into()]);
            }
            let file = Arc::new(File::open(path).expect("it is there"));
            let size = u32::try_from(PART + 2).expect("small").to_be_bytes();
            let offset = (usize::from(id) * PART) as u64;
            Reply::Send(vec![
                Bytes::copy_from_slice(&size).into(),
                number.clone().into(),
                Slice::File(FileSlice::new(file, offset, PART)),
                number.into(),
            ])
        });
        let weight = Weight::Light;
        Some(Call { reply, weight })
    }

    fn no_room(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

fn part(id: u8) -> Vec<u8> {
    let byte = |at: usize| (at * 7 + at / 251 + usize::from(id) * 31) as u8;
    (0..PART).map(byte).collect()
}

fn file(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("parts");
    let mut file = File::create(&path).expect("a file");
    for id in 0..PARTS {
        file.write_all(&part(u8::try_from(id).expect("small")))
            .expect("written");
    }
    path
}

fn serve<T: Transport + 'static>(path: &Path, stream: T) -> (watch::Sender<Phase>, TaskHandle<()>) {
    let shared = NetShared::new(NetLimits::default(), Clock::system());
    let (phase, watched) = watch::channel(Phase::Run);
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
    let files = Arc::new(Files(path.to_owned()));
    let serve = serve_connection(files, shared, peer, stream, watched);
    (phase, Tasks::new().spawn("connection", serve))
}

async fn socket(path: &Path) -> (TcpStream, watch::Sender<Phase>, TaskHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let client = TcpStream::connect(address).await.expect("connected");
    let (served, _) = listener.accept().await.expect("accepted");
    let (phase, task) = serve(path, served);
    (client, phase, task)
}

async fn ask<W: AsyncWriteExt + Unpin>(to: &mut W, kind: u8, id: u8) {
    let frame = [0, 0, 0, 8, kind, id, 0, 0, 0, 0, 0, 0];
    to.write_all(&frame).await.expect("sent");
}

/// The next answer is part `id`, or the late answer `id`.
async fn expect<R: AsyncReadExt + Unpin>(from: &mut R, kind: u8, id: u8) {
    let size = from.read_u32().await.expect("an answer");
    let mut body = vec![0; size as usize];
    from.read_exact(&mut body).await.expect("all of it");
    let middle = if kind == LATE { Vec::new() } else { part(id) };
    let expected = [&[id][..], &middle, &[id]].concat();
    assert!(body == expected, "answer {id}");
}

/// How often this process has `path` open.
fn descriptors(path: &Path) -> usize {
    let path = path.canonicalize().expect("it is there");
    let links = std::fs::read_dir("/proc/self/fd").expect("readable");
    let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| *link == path).count()
}

async fn all_closed(path: &Path) {
    let clock = Clock::system();
    let began = clock.monotonic();
    while descriptors(path) > 0 {
        let waited = clock.monotonic() - began;
        assert!(waited < SOON, "{} are left", descriptors(path));
        Clock::system().sleep(Duration::from_millis(10)).await;
    }
}

async fn in_order<S: AsyncReadExt + AsyncWriteExt + Unpin>(stream: &mut S) {
    let kinds = |id: u8| if id % 5 == 2 { LATE } else { 0 };
    for id in 0..40 {
        ask(stream, kinds(id), id).await;
    }
    for id in 0..40 {
        expect(stream, kinds(id), id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k6_answers_from_files_keep_their_order_among_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path());
    let (mut client, _phase, served) = socket(&path).await;
    in_order(&mut client).await;
    drop(client);
    served.join().await.expect("it ends");
    let (mut client, server) = tokio::io::duplex(10_000);
    let (_phase, served) = serve(&path, server);
    in_order(&mut client).await;
    drop(client);
    served.join().await.expect("it ends");
    all_closed(&path).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_everything_and_holds_few_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path());
    let (mut client, _phase, _served) = socket(&path).await;
    // Far more than the socket's buffers take: the connection is not read on meanwhile.
    for id in 0..100 {
        ask(&mut client, 0, id).await;
    }
    Clock::system().sleep(Duration::from_millis(300)).await;
    let held = descriptors(&path);
    assert!((1..=20).contains(&held), "{held} files are held");
    let mut other = socket(&path).await;
    for id in 0..100 {
        expect(&mut client, 0, id).await;
        if id % 10 == 0 {
            Clock::system().sleep(Duration::from_millis(20)).await;
            ask(&mut other.0, 0, id).await;
            expect(&mut other.0, 0, id).await;
        }
    }
    all_closed(&path).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_goes_in_the_midst_of_a_file_leaves_nothing_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path());
    for reset in [false, true] {
        let (mut client, _phase, served) = socket(&path).await;
        for id in 0..100 {
            ask(&mut client, 0, id).await;
        }
        let mut some = vec![0; PART / 2];
        client.read_exact(&mut some).await.expect("the begin of it");
        if reset {
            client.set_zero_linger().expect("settable");
        }
        drop(client);
        let ended = Clock::system().timeout(SOON, served.join()).await;
        ended.expect("it ends").expect("without a panic");
        all_closed(&path).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_ends_early_closes_the_connection_and_no_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path());
    let (mut client, _phase, served) = socket(&path).await;
    let mut other = socket(&path).await;
    ask(&mut client, 0, 98).await;
    expect(&mut client, 0, 98).await;
    let cut = File::options().write(true).open(&path).expect("writable");
    cut.set_len((99 * PART + 1_000) as u64).expect("cut");
    drop(cut);
    ask(&mut client, 0, 99).await;
    ask(&mut client, 0, 3).await;
    let size = client.read_u32().await.expect("the begin of it");
    assert_eq!(size as usize, PART + 2);
    let mut rest = Vec::new();
    // Closed or reset: either way no byte stands for one that is missing.
    let _ = client.read_to_end(&mut rest).await;
    assert_eq!(rest.len(), 1_001);
    assert!(rest[1..] == part(99)[..1_000]);
    served.join().await.expect("without a panic");
    ask(&mut other.0, 0, 5).await;
    expect(&mut other.0, 0, 5).await;
    all_closed(&path).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_sent_directly_is_read_instead() {
    // A pipe's end is no file that `sendfile` takes.
    #[derive(Debug)]
    struct Odd(std::os::fd::OwnedFd);
    impl tidemill_wire::PayloadFile for Odd {
        fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
            std::os::fd::AsFd::as_fd(&self.0)
        }
        fn read_exact_at(&self, into: &mut [u8], offset: u64) -> std::io::Result<()> {
            for (at, byte) in into.iter_mut().enumerate() {
                *byte = (offset as usize + at) as u8;
            }
            Ok(())
        }
    }
    struct Odds;
    impl Service for Odds {
        fn call(self: &Arc<Self>, _: &Arc<Peer>, _: Frame) -> Option<Call> {
            let (read, _write) = std::io::pipe().expect("a pipe");
            assert!(read.as_raw_fd() > 0);
            let odd = Arc::new(Odd(read.into()));
            let slice = Slice::File(FileSlice::new(odd, 3, 200_000));
            let size = Bytes::copy_from_slice(&200_000u32.to_be_bytes());
            Some(Call {
                reply: Box::pin(async move { Reply::Send(vec![size.into(), slice]) }),
                weight: Weight::Fetch,
            })
        }

        fn no_room(&self) -> Option<BoxFuture<'static, ()>> {
            None
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut client = TcpStream::connect(address).await.expect("connected");
    let (served, _) = listener.accept().await.expect("accepted");
    let shared = NetShared::new(NetLimits::default(), Clock::system());
    let (_phase, watched) = watch::channel(Phase::Run);
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
    let serve = serve_connection(Arc::new(Odds), shared, peer, served, watched);
    Tasks::new().spawn("connection", serve);
    ask(&mut client, 0, 0).await;
    let size = client.read_u32().await.expect("an answer");
    let mut body = vec![0; size as usize];
    client.read_exact(&mut body).await.expect("all of it");
    assert!(
        body.iter()
            .enumerate()
            .all(|(at, byte)| *byte == (at + 3) as u8)
    );
}
