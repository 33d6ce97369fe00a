//! Proof that nobody has sealed this writer (R7).

use std::time::Duration;

use parking_lot::Mutex;
use tidemill_runtime::Instant;
use tokio::sync::Mutex as AsyncMutex;

use super::Wal;
use crate::{
    error::{AppendFailed, Superseded},
    types::WAL_SPAN,
};

/// Pause after a probe that the store did not answer.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Proofs {
    /// When the newest PUT or GET that proved it was sent.
    sent: Option<Instant>,
    /// Probes begun, and the newest of them that proved it.
    begun: u64,
    proved: u64,
}

#[derive(Debug)]
pub(super) struct Freshness {
    exclusive: bool,
    proofs: Mutex<Proofs>,
    /// One probe at a time; whoever waits behind it shares the next.
    turn: AsyncMutex<()>,
}

impl Freshness {
    pub fn new(exclusive: bool) -> Self {
        Self {
            exclusive,
            proofs: Mutex::default(),
            turn: AsyncMutex::new(()),
        }
    }

    /// A PUT first sent at `sent` has succeeded.
    pub fn put_landed(&self, sent: Instant) {
        let mut proofs = self.proofs.lock();
        proofs.sent = proofs.sent.max(Some(sent));
    }
}

impl Wal {
    pub(crate) async fn fresh(&self, since: Instant) -> Result<(), Superseded> {
        // A probe begun from here on began after the request came.
        let before = self.freshness.proofs.lock().begun;
        loop {
            if self.stopped().is_some() {
                return Err(Superseded);
            }
            if self.is_proved(since, before) {
                return Ok(());
            }
            let turn = self.freshness.turn.lock().await;
            if self.is_proved(since, before) {
                continue;
            }
            self.probe().await;
            drop(turn);
        }
    }

    fn is_proved(&self, since: Instant, before: u64) -> bool {
        let proofs = self.freshness.proofs.lock();
        self.freshness.exclusive
            || proofs.sent.is_some_and(|sent| sent > since)
            || proofs.proved > before
    }

    /// One GET of the own next number; or, where the span is full, a wait for a PUT to be decided.
    async fn probe(&self) {
        let decided = self.decided.notified();
        let progress = self.progress();
        if progress.next - progress.decided_below >= WAL_SPAN {
            // The next number may lie behind a sealer's last marker: nothing there proves nothing.
            decided.await;
            return;
        }
        let sent = self.runtime.clock.monotonic();
        let probe = {
            let mut proofs = self.freshness.proofs.lock();
            proofs.begun += 1;
            proofs.begun
        };
        // One byte is enough to tell whether there is an object.
        match self.objects.read_prefix(progress.next, 1).await {
            Ok(None) => {
                let mut proofs = self.freshness.proofs.lock();
                proofs.proved = proofs.proved.max(probe);
                proofs.sent = proofs.sent.max(Some(sent));
            }
            Ok(Some(_)) if self.progress().next > progress.next => {
                // Perhaps our own PUT, sent since; its outcome decides.
                if self.progress().decided_below <= progress.next {
                    decided.await;
                }
            }
            Ok(Some(_)) => {
                tracing::error!(writer = %self.writer, number = progress.next, "WAL was closed");
                self.stop(AppendFailed::Fenced);
            }
            Err(error) => {
                tracing::warn!(writer = %self.writer, %error, "no proof of freshness");
                self.runtime.clock.sleep(PROBE_PAUSE).await;
            }
        }
    }
}
