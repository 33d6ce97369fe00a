//! Connections: reading frames within bounds, running requests, answering in order.
//!
//! One task serves one connection. It starts requests in the order they came (idempotent producers
//! need that), lets them run concurrently, and writes the responses in that same order (K6). It
//! knows no request: what to do with a frame is the [`Service`]'s business.

mod connection;
mod in_flight;
mod listener;
mod memory;
mod reader;
mod transport;
mod writer;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tidemill_runtime::{Clock, Instant};
use tidemill_wire::{Slice, batch::Hashed};

pub use connection::{Phase, serve_connection};
pub(crate) use listener::next_connection;
pub use listener::{Advertised, accept_loop};
pub use memory::{RequestMemory, Share};
pub use reader::{FrameError, FrameReader, Step};
pub use transport::{More, Outgoing, Transport};
pub use writer::FrameWriter;

/// Longest request in bytes if nothing else is set: Kafka's `socket.request.max.bytes`.
pub const REQUEST_MAX_BYTES: usize = 100 << 20;
/// Kafka's `connections.max.idle.ms`.
pub const IDLE_MAX: Duration = Duration::from_secs(600);
/// A client that has begun a frame must send its next byte within this time; a half frame holds
/// memory, and a working client sends a request in one go.
pub const FRAME_SILENCE_MAX: Duration = Duration::from_secs(30);
/// Connections at once: each costs a file descriptor, and common hard limits are 65,536.
pub const CONNECTIONS_MAX: usize = 20_000;
/// Requests of one connection that are running or whose response waits to be written. Clients keep
/// five (Java) to some hundred (librdkafka) in flight; beyond this the socket's buffer holds them.
pub const IN_FLIGHT_MAX: usize = 128;
/// Fetches of one connection in flight, as each may hold a whole response's memory.
pub const FETCHES_IN_FLIGHT_MAX: usize = 4;
/// Bytes of finished responses that wait for the socket before the connection is read on.
pub const WRITE_QUEUE_MAX_BYTES: usize = 1 << 20;
/// Bytes of large requests in memory, over all connections, one beyond them apart: a sixteenth of
/// the most that all caches and buffers may take.
pub const REQUEST_MEMORY_BYTES: usize = 256 << 20;

/// The limits of the connection layer.
#[derive(Clone, Debug)]
pub struct NetLimits {
    /// Longest request in bytes (`socket.request.max.bytes`).
    pub request_max_bytes: usize,
    /// A connection without traffic is closed after this (`connections.max.idle.ms`).
    pub idle_max: Duration,
    /// A begun frame that stays silent for this long closes its connection.
    pub frame_silence_max: Duration,
    /// Connections at once (`max.connections`).
    pub connections_max: usize,
    /// Requests per connection in flight.
    pub in_flight_max: usize,
    /// Bytes of large requests in memory (`queued.max.request.bytes`).
    pub request_memory_bytes: usize,
}

impl Default for NetLimits {
    fn default() -> Self {
        Self {
            request_max_bytes: REQUEST_MAX_BYTES,
            idle_max: IDLE_MAX,
            frame_silence_max: FRAME_SILENCE_MAX,
            connections_max: CONNECTIONS_MAX,
            in_flight_max: IN_FLIGHT_MAX,
            request_memory_bytes: REQUEST_MEMORY_BYTES,
        }
    }
}

/// What all connections of a broker share.
#[derive(Clone, Debug)]
pub struct NetShared {
    /// The limits.
    pub limits: Arc<NetLimits>,
    /// Memory for large requests.
    pub memory: RequestMemory,
    /// Time.
    pub clock: Clock,
}

impl NetShared {
    /// Shared state under `limits`.
    #[must_use]
    pub fn new(limits: NetLimits, clock: Clock) -> Self {
        Self {
            memory: RequestMemory::new(limits.request_memory_bytes),
            limits: Arc::new(limits),
            clock,
        }
    }
}

/// A request as it came: the bytes behind the size prefix.
#[derive(Debug)]
pub struct Frame {
    /// Header and body.
    pub bytes: Bytes,
    /// Checksums of the bytes of a large Produce request.
    pub hashed: Hashed,
    /// When its first bytes were read.
    pub began: Instant,
    /// Its share of the memory for large requests, to be kept until it is answered.
    pub share: Option<Share>,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Unique within the process.
    pub connection: u64,
    /// The client's address, as text for logs and group members ("/127.0.0.1" as Kafka prints it).
    pub address: Option<SocketAddr>,
    /// The address that clients of this listener are told (K93).
    pub advertised: Arc<Advertised>,
    /// Held by the request whose batches are being checked and appended: the next one's follow.
    pub produce_turn: Arc<tokio::sync::Mutex<()>>,
    /// Held by the request that is about to change a group: the next one's change follows.
    pub group_turn: Arc<tokio::sync::Mutex<()>>,
}

impl Peer {
    /// The client's host as Kafka prints it in group descriptions.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.map_or_else(
            || "/unknown".to_owned(),
            |address| format!("/{}", address.ip()),
        )
    }
}

/// How a request bears on reading the ones behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Holds data that is not yet durable; mutes its connection while the log is over its limit.
    Produce,
    /// May hold a large response.
    Fetch,
    /// Anything else.
    Light,
}

/// How a request ended.
#[derive(Debug)]
pub enum Reply {
    /// A whole response frame as slices.
    Send(Vec<Slice>),
    /// The same, and when what it waited for was committed.
    Woken(Vec<Slice>, Instant),
    /// Nothing is sent (Produce with acks=0).
    Nothing,
    /// The connection must be closed; what was answered before goes out first.
    Close,
}

/// A request that has been taken.
pub struct Call {
    /// Ends with the reply. Its first poll is the request's start.
    pub reply: BoxFuture<'static, Reply>,
    /// How it bears on reading.
    pub weight: Weight,
}

/// What serves the frames.
pub trait Service: Send + Sync + 'static {
    /// Takes a request. `None` closes the connection after the answers before it.
    fn call(self: &Arc<Self>, peer: &Arc<Peer>, frame: Frame) -> Option<Call>;

    /// The socket has taken bytes: how long after the oldest response of them was ready, if it has
    /// all, and after the commit that a response had waited for, if its first byte is among them.
    fn wrote(&self, ready: Option<Duration>, committed: Option<Duration>) {
        let _ = (ready, committed);
    }

    /// A connection begins.
    fn connected(&self) {}

    /// A connection has ended, be it by a panic.
    fn disconnected(&self) {}

    /// `None` if produced data has room; otherwise a future that ends when it has again.
    fn no_room(&self) -> Option<BoxFuture<'static, ()>>;
}
