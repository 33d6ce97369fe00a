//! Accepting connections within the limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tidemill_runtime::Tasks;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};

use super::{NetShared, Peer, Phase, Service, serve_connection};

/// Pause after a failed accept: out of file descriptors, most likely.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The address that clients are told to come back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// Host name or address, never a wildcard (K93).
    pub host: String,
    /// Port.
    pub port: u16,
}

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// A number for a new connection, unique within the process.
pub(crate) fn next_connection() -> u64 {
    NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed)
}

/// Accepts until `phase` leaves [`Phase::Run`]. At the limit of connections the backlog waits.
pub async fn accept_loop<S: Service>(
    service: Arc<S>,
    shared: NetShared,
    tasks: Tasks,
    listener: TcpListener,
    advertised: Advertised,
    phase: watch::Receiver<Phase>,
) {
    let advertised = Arc::new(advertised);
    let slots = Arc::new(Semaphore::new(shared.limits.connections_max));
    let mut stop = phase.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|phase| *phase != Phase::Run) => return,
            accepted = accept(&slots, &listener) => accepted,
        };
        let (slot, (stream, address)) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                shared.clock.sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        // Answers are written whole; waiting to join them with more only delays them.
        let _ = stream.set_nodelay(true);
        let peer = Arc::new(Peer {
            connection: next_connection(),
            address: Some(address),
            advertised: Arc::clone(&advertised),
            produce_turn: Arc::default(),
            group_turn: Arc::default(),
        });
        let served = serve_connection(
            Arc::clone(&service),
            shared.clone(),
            peer,
            stream,
            phase.clone(),
        );
        tasks.spawn("connection", async move {
            served.await;
            drop(slot);
        });
    }
}

type Accepted = (
    Option<tokio::sync::OwnedSemaphorePermit>,
    (tokio::net::TcpStream, std::net::SocketAddr),
);

async fn accept(slots: &Arc<Semaphore>, listener: &TcpListener) -> std::io::Result<Accepted> {
    // The semaphore is never closed.
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    Ok((slot, listener.accept().await?))
}
